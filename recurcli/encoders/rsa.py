"""RSA: self-attention with recurrence (Huang et al., Encoding Recurrence into Transformers, 2023).

    RSA(X) = { [1 - σ(mu)] softmax(Q K^T / sqrt(K)) + σ(mu) P } V              one gate mu a layer, one P a head

P is a recurrence encoding matrix (`recurcli.ops.recurrence`); its product takes O(T), the softmax O(T²) time and O(T)
memory. Shapes: B batch, T positions, D hidden size, H heads, R of them with a P, K head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.attention import head_size, key_mask
from recurcli.layers.feed_forward import Activation, FeedForward
from recurcli.layers.positions import sinusoidal_positions
from recurcli.ops.recurrence import Kind, recurrence_product, recurrence_product_dense
from recurcli.validation import STRICT


class Head(NamedTuple):
    """One head's P: its kind, its dilation, and its place in eta (regular heads) or in nu and theta (the others)."""

    kind: Kind
    dilation: int
    place: int


def heads_of(counts: Sequence[int], dilations: Sequence[int]) -> list[Head]:
    """The heads that have a P, in order of dilation; the cosine and the sine head of a pair have one place."""
    regular, pairs, _, dilated, dilated_pairs, _ = counts
    heads = [Head("regular", 1, place) for place in range(regular)]
    heads += [Head("regular", dilations[place], regular + place) for place in range(dilated)]
    for place in range(pairs + dilated_pairs):
        dilation = 1 if place < pairs else dilations[dilated + place - pairs]
        heads += [Head("cosine", dilation, place), Head("sine", dilation, place)]
    return sorted(heads, key=lambda head: head.dilation)


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(K)) V: (B, H, T, K) x 3 -> (B, H, T, K); `kept` is what `key_mask` gives.

    Causal attention needs no `kept`: padding on the right is the future of every real token. On a CPU the backward
    pass of torch's fused attention is slow in 16 bits, so short rows of such numbers go through a (T, T) matrix.
    """
    length = query.shape[-2]
    if value.device.type != "cpu" or value.element_size() != 2 or torch.compiler.is_compiling() or length > 256:
        return F.scaled_dot_product_attention(query, key, value, None if causal else kept, is_causal=causal)
    if causal:
        kept = query.new_ones(length, length, dtype=torch.bool).tril()
    scores = (query * query.shape[-1] ** -0.5) @ key.mT
    if kept is not None:
        scores = scores.masked_fill_(~kept, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).to(value.dtype) @ value


class RecurrentAttention(nn.Module):
    """The mixture of the equation above, with biases: (B, T, D) -> (B, T, D).

    `eta`, `nu`, `theta` and `mu` are the paper's: 1 + (k1 + k4) + 2 (k2 + k5) parameters more than attention has.
    Ours: the heads with a P come first, in order of dilation; the other heads are not gated; attention weights are
    never dropped, which would need all of them in memory.
    """

    def __init__(self, config: "RSA.Config") -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.causal = config.causal
        size = config.head_size or head_size(config.hidden_size, config.num_heads)
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.num_heads * size)
        self.output = nn.Linear(config.num_heads * size, config.hidden_size)
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.output.bias)
        counts = config.head_counts
        self.heads = heads_of(counts, config.head_dilations)
        regular, pairs = counts[0] + counts[3], counts[1] + counts[4]
        signs = torch.tensor([1.0, -1.0]).repeat(regular)[:regular]
        self.eta = nn.Parameter(signs * torch.linspace(1, 2, regular)) if regular else None
        self.nu = nn.Parameter(torch.linspace(1, 2, pairs)) if pairs else None
        self.theta = nn.Parameter(torch.full((pairs,), torch.pi / 4)) if pairs else None
        self.mu = nn.Parameter(torch.tensor(float(config.gate_init)))

    def forward(self, x: Tensor, mask: Tensor | None, kept: Tensor | None) -> Tensor:
        """`kept` is what `key_mask` gives for `mask`."""
        projected = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, K)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, K) each
        if mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        attended = softmax_attention(query, key, value, kept, causal=self.causal)
        gated, plain = torch.split(attended, [len(self.heads), self.num_heads - len(self.heads)], dim=1)
        recurrent = self.recurrence(value[:, : len(self.heads)])  # (B, R, T, K)
        gate = torch.sigmoid(self.mu).to(gated.dtype)
        mixed = torch.cat([torch.lerp(gated, recurrent.to(gated.dtype), gate), plain], dim=1)
        return self.output(mixed.transpose(1, 2).flatten(-2))

    def recurrence(self, value: Tensor) -> Tensor:
        """P V of the heads that have a P: (B, R, T, K) -> (B, R, T, K)."""
        # A graph for every length, exported or compiled, has no number of blocks.
        product = recurrence_product_dense if torch.compiler.is_compiling() else recurrence_product
        rates, angles = self.rates_and_angles()
        parts, start = [], 0
        for dilation, group in groupby(self.heads, key=lambda head: head.dilation):
            kinds = [head.kind for head in group]
            these = slice(start, start := start + len(kinds))
            rate, angle, own = rates[these], angles[these], value[:, these]
            parts.append(product(kinds, own, rate=rate, angle=angle, dilation=dilation, causal=self.causal))
        return torch.cat(parts, dim=1)

    def rates_and_angles(self) -> tuple[Tensor, Tensor]:
        """λ = tanh(eta) of regular heads, γ = σ(nu) and θ of the others: (R,) each, in the order of `heads`."""
        zero = torch.zeros_like(self.mu)
        regular = None if self.eta is None else torch.tanh(self.eta)
        paired = None if self.nu is None else torch.sigmoid(self.nu)
        rates, angles = [], []
        for head in self.heads:
            if head.kind == "regular":
                assert regular is not None
                rates.append(regular[head.place])
                angles.append(zero)
            else:
                assert paired is not None and self.theta is not None
                rates.append(paired[head.place])
                angles.append(self.theta[head.place])
        return torch.stack(rates), torch.stack(angles)


class RSALayer(nn.Module):
    """a = LayerNorm(h + RSA(h)); h' = LayerNorm(a + feed_forward(a)): (B, T, D) -> (B, T, D)."""

    def __init__(self, config: "RSA.Config") -> None:
        super().__init__()
        inner = config.feed_forward_size or 4 * config.hidden_size
        self.attention = RecurrentAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config.hidden_size, inner, config.activation, dropout=0.0)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None, kept: Tensor | None) -> Tensor:
        h = self.attention_norm(h + self.dropout(self.attention(h, mask, kept)))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))


class RSA(Encoder):
    """The Transformer with RSA for attention: post-norm, over x + sinusoidal positions.

    12 D² + 13 D parameters a layer at the default sizes, and those of P and gate. Dropout is where Vaswani et al.,
    2017, section 5.4 have it: on embeddings and sublayers' outputs.
    """

    adds_positions = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and hidden states."""
        num_layers: int
        """L, the number of layers."""
        num_heads: int = 8
        """H, the attention heads of a layer."""
        head_size: int | None = None
        """K, the size of a head; null: hidden_size / num_heads, which must then be a whole number."""
        feed_forward_size: int | None = None
        """Width of the feed-forward network; null: four times hidden_size."""
        activation: Activation = "gelu"
        """Nonlinearity of the feed-forward network: gelu or relu."""
        rem_heads: tuple[int, int, int, int, int, int] | None = None
        """How many heads are regular, cosine, sine, dilated regular, dilated cosine, dilated sine; the others are
        ordinary. A cosine and a sine head make a pair. null: num_heads / 4 dilated pairs."""
        dilations: tuple[int, ...] | None = None
        """Dilation of each dilated head, in the order of rem_heads; the sine heads have their cosine heads' and may be
        left out. null: 2, 4, 8 … for the regular heads and again for the pairs."""
        gate_init: float = 0.0
        """Initial mu of every layer, from -3 (nearly plain attention) to 3 (nearly recurrence alone)."""
        causal: bool = False
        """Whether a position sees itself and the past only, or the whole text."""
        dropout: float = 0.1
        """Probability to drop a unit of the embeddings or of a sublayer's output."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers, num_heads=self.num_heads)
            check_sizes(head_size=1 if self.head_size is None else self.head_size)
            check_sizes(feed_forward_size=1 if self.feed_forward_size is None else self.feed_forward_size)
            check_dropout(self.dropout)
            if self.head_size is None:
                head_size(self.hidden_size, self.num_heads)
            if not -3 <= self.gate_init <= 3:
                raise ValueError(f"gate_init must be from -3 to 3, not {self.gate_init}")
            self._check_heads()

        def _check_heads(self) -> None:
            counts = self.head_counts
            if min(counts) < 0 or not 0 < sum(counts) <= self.num_heads:
                raise ValueError(f"rem_heads must be 1 to {self.num_heads} heads in all, not {list(counts)}")
            if counts[1] != counts[2] or counts[4] != counts[5]:
                raise ValueError(
                    f"rem_heads must have as many sine as cosine heads, they make pairs, not {list(counts)}"
                )
            own, twins = counts[3] + counts[4], counts[5]
            given = self.dilations
            if given is None:
                return
            if len(given) not in (own, own + twins) or given[own:] not in ((), given[own - twins : own]):
                raise ValueError(
                    f"dilations must be one for each of {own} dilated heads, sine heads aside, not {list(given)}"
                )
            if min(given, default=1) < 1:
                raise ValueError(f"dilations must be at least 1, not {list(given)}")

        @property
        def head_counts(self) -> tuple[int, int, int, int, int, int]:
            """`rem_heads`, or what stands for null."""
            if self.rem_heads is not None:
                return self.rem_heads
            pairs = max(1, self.num_heads // 4)
            return (0, 0, 0, 0, pairs, pairs) if self.num_heads > 1 else (1, 0, 0, 0, 0, 0)

        @property
        def head_dilations(self) -> tuple[int, ...]:
            """`dilations`, or what stands for null: one a dilated regular head, then one a dilated pair."""
            if self.dilations is not None:
                return self.dilations
            _, _, _, regular, pairs, _ = self.head_counts
            return tuple(2 ** (place + 1) for count in (regular, pairs) for place in range(count))

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(RSALayer(config) for _ in range(config.num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kept = key_mask(mask)
        h = self.dropout(x + sinusoidal_positions(x))
        for layer in self.layers:
            h = layer(h, mask, kept)
        return h
