"""What a layer says of itself: its gates, rates and weights, and how it spreads its attention.

Shapes: B batch, T positions, D hidden size, H heads. `mask` (B, T) is bool, True at real tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.diagnostics.entropy import attention_entropy
from recurcli.encoders.gated_starsaber import GatedStarSaberLayer
from recurcli.encoders.rezero import ReZeroLayer
from recurcli.encoders.rsa import RecurrentAttention, RSALayer
from recurcli.encoders.starsaber import StarSaberLayer
from recurcli.encoders.transformer import TransformerLayer
from recurcli.layers.attention import MultiHeadAttention, key_mask
from recurcli.layers.injective import TransJectLayer, expert_outputs
from recurcli.ops.attention import attention_weights

Reading = float | list[float]


def readings(layer: nn.Module, arguments: tuple[Any, ...], mask: Tensor) -> dict[str, Reading]:
    """The readings of one layer at a forward pass with `arguments`; {} for a layer that has none.

    alpha (StarSaber, ReZero); gate σ(mu), λ or γ and θ of each head (RSA); residual weight and mean weight of each
    expert (TransJect); attention entropy in nats (StarSaber, gated StarSaber, Transformer, ReZero, RSA).
    """
    found: dict[str, Reading] = {}
    if isinstance(layer, StarSaberLayer | ReZeroLayer) and isinstance(layer.alpha, Tensor):
        found["alpha"] = layer.alpha.item()
    if isinstance(layer, TransJectLayer):
        found["residual_weight"] = layer.residual_weight.item()
        found["expert_weights"] = _expert_weights(layer, *arguments[:4]).tolist()
    if isinstance(layer, RSALayer):
        rates, angles = layer.attention.rates_and_angles()
        found["gate"] = torch.sigmoid(layer.attention.mu).item()
        found["rates"], found["angles"] = rates.tolist(), angles.tolist()
    weights = _attention(layer, arguments[0], mask)
    if weights is not None:
        found["attention_entropy"] = attention_entropy(weights, mask)
    return found


def _expert_weights(layer: TransJectLayer, h: Tensor, s: Tensor, matrices: Tensor, real: Tensor | None) -> Tensor:
    """The mean over samples of each expert's weight, (E,)."""
    y = expert_outputs(h, s, matrices[: layer.num_experts], matrices[layer.num_experts : 2 * layer.num_experts])
    return layer.expert_weights(h, y, real).mean(dim=1)


def _attention(layer: nn.Module, h: Tensor, mask: Tensor) -> Tensor | None:
    """The softmax of a layer that has one, for the states `h` (B, T, D) that came in: (B, T, T) or (B, H, T, T)."""
    if isinstance(layer, StarSaberLayer | GatedStarSaberLayer):
        return attention_weights(h, F.linear(h, layer.relation), mask)
    if isinstance(layer, TransformerLayer | ReZeroLayer | RSALayer):
        return _softmax(layer.attention, h, mask)
    return None


def _softmax(attention: MultiHeadAttention | RecurrentAttention, h: Tensor, mask: Tensor) -> Tensor:
    projected = attention.query_key_value(h).unflatten(-1, (3, attention.num_heads, -1))  # (B, T, 3, H, K)
    query, key, _ = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, K) each
    scores = query @ key.mT * query.shape[-1] ** -0.5
    kept = key_mask(mask)
    assert kept is not None
    return scores.masked_fill(~kept, torch.finfo(scores.dtype).min).softmax(dim=-1)
