"""Sinusoidal positions (Vaswani et al., Attention Is All You Need, 2017, section 3.5)."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """The sinusoidal encodings of `positions` (N,), which may be negative: (N, D), where D is `size`.

    Position t has sin(t / 10000^(2k/D)) at 2k and its cosine at 2k + 1.
    """
    places = torch.arange(0, size, 2, device=positions.device, dtype=positions.dtype)
    angle = positions[:, None] * 10_000.0 ** (-places / size)  # (N, ceil(D / 2))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[:, :size]


def sinusoidal_positions(like: Tensor) -> Tensor:
    """The table (T, D) to add to embeddings `like` (B, T, D), in their type and on their device.

    The angles are taken in float32 at least.
    """
    length, size = like.shape[-2:]
    dtype = torch.promote_types(like.dtype, torch.float32)
    return sinusoids(torch.arange(length, device=like.device, dtype=dtype), size).to(like.dtype)
