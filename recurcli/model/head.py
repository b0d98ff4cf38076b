"""Pooling and the classification head.

Shapes: B batch, T positions, D hidden, C classes.
"""

import torch
from torch import Tensor, nn

from recurcli.model.config import Pooling


def pool(states: Tensor, mask: Tensor, how: Pooling) -> Tensor:
    """Pool states (B, T, D) to (B, D). mask (B, T) is True at real tokens; a row without real tokens gives zeros."""
    real = mask.unsqueeze(-1)  # (B, T, 1)
    if how == "mean":
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)
    if how == "max":
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~real, lowest).amax(dim=1) * mask.any(dim=1, keepdim=True)
    position = torch.zeros(len(mask), dtype=torch.long, device=mask.device) if how == "first" else mask.sum(dim=1) - 1
    chosen = states[torch.arange(len(states), device=states.device), position.clamp_min(0)]
    return chosen * mask.any(dim=1, keepdim=True)


class ClassificationHead(nn.Module):
    """Pooling, then one linear map: (B, T, D) -> (B, C). Mean pooling is ours; the StarSaber paper's is not available."""

    def __init__(self, hidden_size: int, classes: int, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.pooling = pooling
        self.output = nn.Linear(hidden_size, classes)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        return self.output(pool(states, mask, self.pooling))
