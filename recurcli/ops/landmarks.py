"""Landmarks of a row and the iterated pseudo-inverse, with which Nyström's method approximates attention in O(T).

Shapes: B batch, T positions, K head size, M landmarks. `mask` (B, T) is bool, True at real tokens.
"""

import torch
from torch import Tensor

from recurcli.ops.attention import mask_or_full


def segments(mask: Tensor | None, like: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return start and size of equal segments of each row's n tokens, two (B, M), for x `like` (B, …, T, K).

    There are min(count, n) segments. M is count, or min(count, T) in eager mode; the others have size 0. Sizes differ by one
    at most.
    """
    length = like.shape[-2]
    slots = count if torch.compiler.is_compiling() else min(count, length)  # a graph for every length has one M
    if mask is None:
        lengths = torch.full((like.shape[0], 1), length, device=like.device)
    else:
        lengths = mask_or_full(mask).sum(dim=-1, keepdim=True)
    used = lengths.clamp(max=count)
    starts = (torch.arange(slots + 1, device=like.device) * lengths + used - 1) // used  # (B, M + 1), rounded up
    starts = torch.minimum(starts, lengths)
    return starts[:, :-1], starts.diff(dim=-1)


def pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Approximate the Moore-Penrose inverse of A (…, M, M) by Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4.

    Z starts as A^T / (|A|_1 |A|_inf) with the norms of each matrix (Xiong et al., Algorithm 1; Razavi et al., 2014).
    """
    size = matrix.abs()
    norms = size.sum(dim=-2).amax(dim=-1) * size.sum(dim=-1).amax(dim=-1)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / norms[..., None, None]
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product))) / 4
    return inverse
