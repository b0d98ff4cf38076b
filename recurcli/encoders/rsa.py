"""RSA: self-attention with recurrence (Huang et al., Encoding Recurrence into Transformers, 2023).

    RSA(X) = { [1 - σ(mu)] softmax(Q K^T / sqrt(K)) + σ(mu) P } V              one mu per layer, one P per head

P is a recurrence encoding matrix (`recurcli.ops.recurrence`), made for all layers at once for short texts. For others P V
takes O(T) time; the softmax takes O(T²) time and O(T) memory. Shapes: B batch, T positions, D hidden size, L layers, H heads,
R heads with a P, K head size.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.device import to_device
from recurcli.encoders.config import RSAConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention, compute_dtype, softmax_attention
from recurcli.ops.attention import attention_weights
from recurcli.ops.recurrence import Kind, recurrence_matrix, recurrence_product

SHORT = 128
"""Positions up to which P V is computed with P itself. Ours: it then takes no longer than by blocks, in fewer operations."""


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
        return F.pad(matrices_of([self], length)[0], (0, 0, 0, 0, 0, self.num_heads - len(self.heads)))

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

    def rates_and_angles(self) -> tuple[Tensor, Tensor]:
        """Return rates (R,) and angles (R,), in the order of `heads`."""
        rates, angles = rates_and_angles([self])
        return rates[0], angles[0]


def rates_and_angles(layers: Sequence[Recurrence]) -> tuple[Tensor, Tensor]:
    """Return rates and angles (L, R) of layers of one config, in the order of `heads`.

    Regular heads have λ = tanh(eta) and the angle 0; cosine and sine heads have γ = σ(nu) and θ.
    """
    eta, nu, theta = ([getattr(layer, name) for layer in layers] for name in ("eta", "nu", "theta"))
    regular = layers[0].mu.new_zeros(len(layers), 0) if eta[0] is None else torch.stack(eta).tanh()
    rates, angles = regular, torch.zeros_like(regular)
    if nu[0] is not None:
        rates, angles = torch.cat([rates, torch.stack(nu).sigmoid()], 1), torch.cat([angles, torch.stack(theta)], 1)
    places = to_device(torch.tensor(layers[0].places), rates.device)
    return rates.index_select(1, places), angles.index_select(1, places)


def matrices_of(layers: Sequence[Recurrence], length: int) -> Tensor:
    """Return P of the heads that have one, of layers of one config: (L, R, T, T)."""
    rates, angles = rates_and_angles(layers)
    kinds, dilations, _ = zip(*layers[0].heads, strict=True)
    causal = layers[0].causal
    return recurrence_matrix(kinds, length, rate=rates, angle=angles, dilation=dilations, causal=causal)


class RecurrentAttention(Recurrence, SelfAttention):
    """Softmax attention gated with recurrence matrices, by the equation above: (B, T, D) -> (B, T, D). Projections have biases.

    There is no attention dropout, which would need the (T, T) weights in memory.
    """

    def __init__(self, config: RSAConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.add_recurrence(config)

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, matrices: Tensor | None = None
    ) -> Tensor:
        """As in `SelfAttention`. `matrices` (R, T, T) are P; None: P V is computed without them."""
        if mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        attended = softmax_attention(query, key, value, mask, causal=self.causal)
        gated, plain = torch.split(attended, [len(self.heads), self.num_heads - len(self.heads)], dim=1)
        recurrent = self.recurrence(value[:, : len(self.heads)], matrices)  # (B, R, T, K)
        gate = torch.sigmoid(self.mu).to(gated.dtype)
        return torch.cat([torch.lerp(gated, recurrent.to(gated.dtype), gate), plain], dim=1)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the recurrence's parameters (`recurrence_stats`), and `attention`, the softmax weights before the gate."""
        query, key, _ = self.project(x)
        return {**self.recurrence_stats(), "attention": attention_weights(query, key, mask, causal=self.causal)}

    def recurrence(self, value: Tensor, matrices: Tensor | None) -> Tensor:
        """Return P V of the heads that have a P, for `matrices` as in `mix`: (B, R, T, K) -> (B, R, T, K)."""
        if torch.compiler.is_compiling():  # T is dynamic in a graph, so the number of blocks is unknown
            matrices = matrices_of([self], value.shape[2])[0].to(value.dtype)
        if matrices is not None:
            return torch.einsum("hts,bhsk->bhtk", matrices, value)
        rates, angles = self.rates_and_angles()
        parts, start = [], 0
        for dilation, group in groupby(self.heads, key=lambda head: head.dilation):
            kinds = [head.kind for head in group]
            these = slice(start, start := start + len(kinds))
            keys = {"rate": rates[these], "angle": angles[these], "dilation": dilation, "causal": self.causal}
            parts.append(recurrence_product(kinds, value[:, these], **keys))
        return torch.cat(parts, dim=1)


class RSA(BlockEncoder):
    """The Transformer (post-norm) with RSA as its attention; 12 D² + 13 D parameters per layer, plus those of P and mu."""

    Config = RSAConfig
    Attention = RecurrentAttention
    scalar_names = ("eta", "nu", "theta")

    def given_to_layers(self, h: Tensor) -> Iterable[tuple[Tensor, ...]]:
        """Return P of each layer for short texts."""
        if torch.compiler.is_compiling() or h.shape[1] > SHORT:
            return super().given_to_layers(h)
        layers = [cast(RecurrentAttention, layer.attention) for layer in self.layers]
        return zip(matrices_of(layers, h.shape[1]).to(compute_dtype(h)))  # tuples of one
