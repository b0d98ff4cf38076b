"""Pooling and the classification head.

Shapes: B batch, T positions, D hidden, C classes.
"""

import torch
from torch import Tensor, nn

from recurcli.model.config import PairPooling, Pooling


def pool(states: Tensor, mask: Tensor, how: Pooling) -> Tensor:
    """Pool states (B, T, D) to (B, D). mask (B, T) is True at real tokens; a row without real tokens gives zeros."""
    real = mask.unsqueeze(-1)  # (B, T, 1)
    if how == "mean":
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)
    if how == "max":
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~real, lowest).amax(dim=1) * mask.any(dim=1, keepdim=True)
    first = how == "first"
    position = mask.int().argmax(dim=1) if first else mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    chosen = states[torch.arange(states.shape[0], device=states.device), position]
    return chosen * mask.any(dim=1, keepdim=True)


class ClassificationHead(nn.Module):
    """Pooling, then one linear map. Mean pooling is ours; the StarSaber paper's is not available.

    With the pair pooling `sides` the map reads [u; v; |u - v|; u * v]; u and v are the pooled states of the two texts
    (Conneau et al., EMNLP 2017, section 3). A row of one text has v = 0.
    """

    def __init__(
        self, hidden_size: int, classes: int, pooling: Pooling = "mean", pair_pooling: PairPooling = "joint"
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.pair_pooling = pair_pooling
        self.output = nn.Linear(hidden_size * (4 if pair_pooling == "sides" else 1), classes)

    def forward(self, states: Tensor, mask: Tensor, separators: Tensor) -> Tensor:
        """Return the logits (B, C): states (B, T, D), mask (B, T), and (B, T) True at the separators of pairs."""
        if self.pair_pooling == "joint":
            return self.output(pool(states, mask, self.pooling))
        after = separators.cumsum(dim=1) > 0
        u = pool(states, mask & ~after, self.pooling)
        v = pool(states, mask & after & ~separators, self.pooling)
        return self.output(torch.cat([u, v, (u - v).abs(), u * v], dim=1))
