"""Dropout (Srivastava et al., 2014) whose masks take a seventh of the time of torch's on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 1 << 16
"""A probability is rounded to a multiple of 1 / STEPS."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each element of `x` to 0 with probability `p`, and scale the others by 1 / (1 - p). Without `training` return `x`.

    On a CPU four elements share one random number of 64 bits. On other devices and in a compiled graph, this is torch's
    dropout.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    kept = round((1 - p) * STEPS)
    return x if kept == STEPS else x * _mask(x, kept)


def _mask(x: Tensor, kept: int) -> Tensor:
    """Return a tensor like `x` whose elements are STEPS / kept with probability kept / STEPS, and 0 else."""
    count = x.numel()
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(1 << 63), None)
    mask = draws.view(torch.int16)[:count].lt_(kept - STEPS // 2).view(x.shape)  # in place: 1 or 0 as int16
    scale = torch.tensor(STEPS / kept if kept else 0.0, dtype=x.dtype)
    if x.dtype.itemsize == 2:  # the bits of the scale, or none
        return mask.mul_(scale.view(torch.int16)).view(x.dtype)
    return mask.to(x.dtype).mul_(scale)


class Dropout(nn.Module):
    """`dropout` as a module: (…) -> (…)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
