"""The type in which matrix products run, for modules that keep something else in a wider one."""

import torch
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The autocast type on the device of `x` where autocast is on, else the type of `x`."""
    kind = x.device.type
    enabled = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not so on the meta device
    return torch.get_autocast_dtype(kind) if enabled else x.dtype
