"""RSA: self-attention with recurrence (Huang et al., Encoding Recurrence into Transformers, 2023).

    RSA(X) = { [1 - σ(mu)] softmax(Q K^T / sqrt(K)) + σ(mu) P } V              one mu per layer, one P per head

P is a recurrence encoding matrix (`recurcli.ops.recurrence`). P V takes O(T) time; the softmax takes O(T²) time and O(T)
memory. Shapes: B batch, T positions, D hidden size, H heads, R heads with a P, K head size.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.device import to_device
from recurcli.encoders.config import RSAConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention, softmax_attention, trains_short_texts, weighted
from recurcli.ops.attention import attention_weights
from recurcli.ops.recurrence import Kind, recurrence_matrix, recurrence_product, recurrence_product_dense


class Head(NamedTuple):
    """One head's P: its kind, its dilation, and its index in eta (regular heads) or in nu and theta (the others)."""

    kind: Kind
    dilation: int
    place: int


def heads_of(counts: Sequence[int], dilations: Sequence[int]) -> list[Head]:
    """Return the heads that have a P, sorted by dilation. The two heads of a cosine-sine pair share one `place`."""
    regular, pairs, _, dilated, dilated_pairs, _ = counts
    heads = [Head("regular", 1, place) for place in range(regular)]
    heads += [Head("regular", dilations[place], regular + place) for place in range(dilated)]
    for place in range(pairs + dilated_pairs):
        dilation = 1 if place < pairs else dilations[dilated + place - pairs]
        heads += [Head("cosine", dilation, place), Head("sine", dilation, place)]
    return sorted(heads, key=lambda head: head.dilation)


class Recurrence(nn.Module):
    """The gate and the matrices P of an attention's heads; a base beside `SelfAttention`, which has the heads.

    `eta`, `nu`, `theta` and `mu` are the paper's: 1 + (k1 + k4) + 2 (k2 + k5) parameters in addition to those of attention.
    Ours: the heads with a P come first, sorted by dilation; the other heads have no gate (figure 1d of the paper has a P in
    each head: `rem_heads: [2, 1, 1, 2, 1, 1]`); the cosine and the sine head of a pair share nu and theta, which is our reading
    of Proposition 1; P is never cut off at a largest lag.
    """

    num_heads: int
    causal: bool

    def add_recurrence(self, config: RSAConfig) -> None:
        """Register the parameters, once the attention has its own."""
        self.causal = config.causal
        counts = config.head_counts
        self.heads = heads_of(counts, config.head_dilations)
        regular, pairs = counts[0] + counts[3], counts[1] + counts[4]
        signs = torch.tensor([1.0, -1.0]).repeat(regular)[:regular]
        self.eta = nn.Parameter(signs * torch.linspace(1, 2, regular)) if regular else None
        self.nu = nn.Parameter(torch.linspace(1, 2, pairs)) if pairs else None
        self.theta = nn.Parameter(torch.full((pairs,), torch.pi / 4)) if pairs else None
        self.mu = nn.Parameter(torch.tensor(float(config.gate_init)))
        self.places = [head.place if head.kind == "regular" else regular + head.place for head in self.heads]

    def matrices(self, length: int) -> Tensor:
        """Return P of every head (H, T, T), zeros for the heads without one."""
        parts = [recurrence_matrix(length=length, **keys) for _, keys in self.by_dilation()]
        return F.pad(torch.cat(parts), (0, 0, 0, 0, 0, self.num_heads - len(self.heads)))

    def gated(self, softmax: Tensor, matrices: Tensor) -> Tensor:
        """Return [1 - σ(mu)] softmax + σ(mu) P. The first dimension of `matrices` is that of the heads."""
        gates = F.pad(torch.sigmoid(self.mu).expand(len(self.heads)), (0, self.num_heads - len(self.heads)))
        gates = gates.view(-1, *[1] * (matrices.ndim - 1))
        return torch.lerp(softmax, matrices.to(softmax.dtype), gates.to(softmax.dtype))

    def recurrence_stats(self) -> LayerStats:
        """Return the gate σ(mu), and the decay λ or γ and the angle θ of each head with a recurrence matrix P."""
        rates, angles = self.rates_and_angles()
        return {"gate": torch.sigmoid(self.mu).item(), "rates": rates.tolist(), "angles": angles.tolist()}

    def scalars(self) -> dict[str, float]:
        """Return the gate σ(mu), and the mean magnitude of the decay of the heads with a P."""
        return {"gate": torch.sigmoid(self.mu).item(), "rate": self.rates_and_angles()[0].abs().mean().item()}

    def by_dilation(self) -> Iterator[tuple[slice, dict[str, Any]]]:
        """Yield the heads of each dilation, and the arguments of their P in `recurcli.ops.recurrence`."""
        rates, angles = self.rates_and_angles()
        start = 0
        for dilation, group in groupby(self.heads, key=lambda head: head.dilation):
            kinds = [head.kind for head in group]
            these = slice(start, start := start + len(kinds))
            scalars = {"rate": rates[these], "angle": angles[these]}
            yield these, {"kind": kinds, "dilation": dilation, "causal": self.causal, **scalars}

    def rates_and_angles(self) -> tuple[Tensor, Tensor]:
        """Return rates (R,) and angles (R,), in the order of `heads`.

        Regular heads have λ = tanh(eta) and the angle 0; cosine and sine heads have γ = σ(nu) and θ.
        """
        regular = self.mu.new_zeros(0) if self.eta is None else torch.tanh(self.eta)
        rates = regular if self.nu is None else torch.cat([regular, torch.sigmoid(self.nu)])
        angles = torch.zeros_like(regular)
        angles = angles if self.theta is None else torch.cat([angles, self.theta])
        places = to_device(torch.tensor(self.places), rates.device)
        return rates[places], angles[places]


class RecurrentAttention(Recurrence, SelfAttention):
    """Softmax attention gated with recurrence matrices, by the equation above: (B, T, D) -> (B, T, D). Projections have biases.

    There is no attention dropout, which would need the (T, T) weights in memory.
    """

    def __init__(self, config: RSAConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.add_recurrence(config)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        if trains_short_texts(query):
            return weighted(self.weights(query, key, mask), value)
        attended = softmax_attention(query, key, value, mask, causal=self.causal)
        gated, plain = torch.split(attended, [len(self.heads), self.num_heads - len(self.heads)], dim=1)
        recurrent = self.recurrence(value[:, : len(self.heads)])  # (B, R, T, K)
        gate = torch.sigmoid(self.mu).to(gated.dtype)
        return torch.cat([torch.lerp(gated, recurrent.to(gated.dtype), gate), plain], dim=1)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return [1 - σ(mu)] softmax(Q K^T / sqrt(K)) + σ(mu) P in O(T²) memory: (B, H, T, K) x 2 -> (B, H, T, T)."""
        softmax = attention_weights(query, key, mask, causal=self.causal)
        return self.gated(softmax, self.matrices(query.shape[2]))

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the recurrence's parameters (`recurrence_stats`), and `attention`, the softmax weights before the gate."""
        query, key, _ = self.project(x)
        return {**self.recurrence_stats(), "attention": attention_weights(query, key, mask, causal=self.causal)}

    def recurrence(self, value: Tensor) -> Tensor:
        """Return P V of the heads that have a P: (B, R, T, K) -> (B, R, T, K)."""
        # In a compiled or exported graph T is dynamic, so the number of blocks is unknown.
        product = recurrence_product_dense if torch.compiler.is_compiling() else recurrence_product
        return torch.cat([product(value=value[:, these], **keys) for these, keys in self.by_dilation()], dim=1)


class RSA(BlockEncoder):
    """The Transformer (post-norm) with RSA as its attention; 12 D² + 13 D parameters per layer, plus those of P and mu."""

    Config = RSAConfig
    Attention = RecurrentAttention
    scalar_names = ("eta", "nu", "theta")
