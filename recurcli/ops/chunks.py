"""Splits sequences into pieces of equal length, and joins them again.

Shapes: T positions, N pieces of m positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def split(x: Tensor, size: int) -> Tensor:
    """Return x (…, T, K), padded with zeros, as N = ⌈T / m⌉ pieces (…, N, m, K) of `size` positions.

    A graph for every length takes the pieces by index and has two more, because torch.export does not divide T, and fixes
    an N or N - 1 that is 1.
    """
    length = x.shape[-2]
    if torch.compiler.is_exporting():
        first = size * torch.arange(length // size + 3, device=x.device)
        padded = F.pad(x, (0, 0, 0, 3 * size)).clone(memory_format=torch.contiguous_format)
        return padded[..., first[:, None] + torch.arange(size, device=x.device), :]
    missing = -length % size
    padded = F.pad(x, (0, 0, 0, missing)) if missing else x  # F.pad copies even where it adds nothing
    return padded.reshape(*x.shape[:-2], -(-length // size), size, x.shape[-1])


def split_rows(x: Tensor, size: int) -> Tensor:
    """Return the pieces of x (…, T): (…, N, m)."""
    return split(x.unsqueeze(-1), size).squeeze(-1)


def before_pieces(x: Tensor, size: int, memory: int, before: int = 0) -> Tensor:
    """Return the `memory` positions before each piece of `split(x, size)`, padded with zeros: (…, N, memory, K).

    The first `before` positions of x, at most `memory`, stand before the first piece.
    """
    length = x.shape[-2] - before
    if torch.compiler.is_exporting():
        first = size * torch.arange(length // size + 3, device=x.device)
        padded = F.pad(x, (0, 0, memory, 3 * size)).clone(memory_format=torch.contiguous_format)
        return padded[..., first[:, None] + torch.arange(memory, device=x.device), :]
    padded = F.pad(x, (0, 0, memory - before, -length % size))
    return padded.unfold(-2, memory, size)[..., : -(-length // size), :, :].mT


def joined(pieces: Tensor, length: int) -> Tensor:
    """Return the sequence (…, T, K) of `pieces` (…, N, m, K), without the padding."""
    x = pieces.flatten(-3, -2)
    if torch.compiler.is_exporting():
        return x[..., torch.arange(length, device=x.device), :]
    return x[..., :length, :]
