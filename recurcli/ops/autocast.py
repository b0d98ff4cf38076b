"""Operations that mixed precision leaves alone."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which the operations on the device of `like` keep their dtype."""
    device = like.device.type  # of the meta device, on which shapes are counted, autocast knows nothing
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
