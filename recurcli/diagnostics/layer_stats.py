"""The stats that a layer offers during a forward pass: gates, rates, weights and attention entropy."""

from typing import Any

import torch
from torch import Tensor, nn

from recurcli.diagnostics.entropy import attention_entropy
from recurcli.encoders.encoder import LayerStats

Stat = float | list[float]


@torch.no_grad()
def layer_stats(layer: nn.Module, arguments: tuple[Any, ...], mask: Tensor) -> dict[str, Stat]:
    """The `stats` of `layer` for its forward `arguments` (`recurcli.encoders.encoder`); {} for a layer without.

    Attention weights become `attention_entropy`, in nats. Call it during the forward pass: layers may compute with
    weights that they do not keep.
    """
    offered = getattr(layer, "stats", None)
    stats: LayerStats = {} if offered is None else dict(offered(*arguments))
    weights = stats.pop("attention", None)
    return stats if weights is None else {**stats, "attention_entropy": attention_entropy(weights, mask)}
