"""RSA: self-attention with recurrence (Huang et al., Encoding Recurrence into Transformers, 2023).

    RSA(X) = { [1 - σ(mu)] softmax(Q K^T / sqrt(K)) + σ(mu) P } V              one mu per layer, one P per head

P is a recurrence encoding matrix (`recurcli.ops.recurrence`). P V takes O(T) time; the softmax takes O(T²) time and O(T)
memory. Shapes: B batch, T positions, D hidden size, H heads, R heads with a P, K head size.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.block import BlockEncoder, PostNormLayer
from recurcli.encoders.config import RSAConfig
from recurcli.encoders.encoder import LayerStats
from recurcli.layers.attention import SelfAttention, key_mask, softmax_weights
from recurcli.ops.recurrence import Kind, recurrence_product, recurrence_product_dense


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


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(K)) V: (B, H, T, K) x 3 -> (B, H, T, K).

    Causal attention needs no attn_mask, because padding is on the right, after every real token. On a CPU in bf16 or fp16,
    rows of up to 256 tokens use an explicit (T, T) matrix, because the backward pass of torch's fused attention is slow.
    """
    short = not torch.compiler.is_compiling() and query.shape[-2] <= 256
    if short and value.device.type == "cpu" and value.element_size() == 2:
        return softmax_weights(query, key, None if causal else mask, causal=causal).to(value.dtype) @ value
    attn_mask = None if causal else key_mask(mask)
    return F.scaled_dot_product_attention(query, key, value, attn_mask, is_causal=causal)


class RecurrentAttention(SelfAttention):
    """The equation above, with biases: (B, T, D) -> (B, T, D).

    `eta`, `nu`, `theta` and `mu` are the paper's: 1 + (k1 + k4) + 2 (k2 + k5) parameters in addition to those of attention.
    Ours: the heads with a P come first, sorted by dilation; the other heads have no gate; there is no attention dropout,
    which would need the (T, T) weights in memory.
    """

    def __init__(self, config: RSAConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.causal = config.causal
        counts = config.head_counts
        self.heads = heads_of(counts, config.head_dilations)
        regular, pairs = counts[0] + counts[3], counts[1] + counts[4]
        signs = torch.tensor([1.0, -1.0]).repeat(regular)[:regular]
        self.eta = nn.Parameter(signs * torch.linspace(1, 2, regular)) if regular else None
        self.nu = nn.Parameter(torch.linspace(1, 2, pairs)) if pairs else None
        self.theta = nn.Parameter(torch.full((pairs,), torch.pi / 4)) if pairs else None
        self.mu = nn.Parameter(torch.tensor(float(config.gate_init)))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        attended = softmax_attention(query, key, value, mask, causal=self.causal)
        gated, plain = torch.split(attended, [len(self.heads), self.num_heads - len(self.heads)], dim=1)
        recurrent = self.recurrence(value[:, : len(self.heads)])  # (B, R, T, K)
        gate = torch.sigmoid(self.mu).to(gated.dtype)
        return torch.cat([torch.lerp(gated, recurrent.to(gated.dtype), gate), plain], dim=1)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the gate σ(mu), the rates λ or γ and angles θ of the heads with a P, and the softmax weights before gating."""
        query, key, _ = self.project(x)
        rates, angles = self.rates_and_angles()
        return {
            "gate": torch.sigmoid(self.mu).item(),
            "rates": rates.tolist(),
            "angles": angles.tolist(),
            "attention": softmax_weights(query, key, mask, causal=self.causal),
        }

    def recurrence(self, value: Tensor) -> Tensor:
        """P V of the heads that have a P: (B, R, T, K) -> (B, R, T, K)."""
        # In a compiled or exported graph T is dynamic, so the number of blocks is unknown.
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
        """Return rates (R,) and angles (R,), in the order of `heads`.

        Regular heads have λ = tanh(eta) and the angle 0; cosine and sine heads have γ = σ(nu) and θ.
        """
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


class RSA(BlockEncoder):
    """The Transformer (post-norm) with RSA as its attention; 12 D² + 13 D parameters per layer, plus those of P and mu."""

    Config = RSAConfig
    scalar_names = ("eta", "nu", "theta")

    def __init__(self, config: RSAConfig) -> None:
        super().__init__(config, lambda: PostNormLayer(config, RecurrentAttention(config)))
