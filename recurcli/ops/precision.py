"""Keeps computations in float32 that 16 bits would damage."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which the operations on the device of `like` keep their dtype."""
    device = like.device.type  # of the meta device, on which shapes are counted, autocast knows nothing
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def at_least_float32(raw: Tensor) -> Tensor:
    """Return `raw` in float32, or in its own type if that is wider."""
    return raw.to(torch.promote_types(raw.dtype, torch.float32))
