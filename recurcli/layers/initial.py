"""Initial weights."""

from torch import Tensor, nn


def normal_(tensor: Tensor, std: float) -> Tensor:
    """As `nn.init.normal_`, but not on the meta device: torch imports its compiler for that, which takes a second."""
    return tensor if tensor.is_meta else nn.init.normal_(tensor, std=std)
