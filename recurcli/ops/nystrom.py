"""Nyströmformer's attention (Xiong et al., Nyströmformer, 2021, Algorithm 1): softmax attention in O(T) by M landmarks.

    softmax(Q K̃^T / sqrt(K)) pinv(softmax(Q̃ K̃^T / sqrt(K))) softmax(Q̃ K^T / sqrt(K)) V

Q̃ and K̃ are the means of M segments of the queries and keys of real tokens. Shapes: B batch, T positions, H heads, K head size,
M landmarks. `mask` (B, T) is bool, True at real tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.ops.attention import attention_weights, mask_or_full
from recurcli.ops.precision import at_least_float32, without_autocast


def nystrom_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, num_landmarks: int, iterations: int
) -> Tensor:
    """Nyströmformer's attention: (B, H, T, K) x 3 -> (B, H, T, K), at least in float32."""
    with without_autocast(query):
        query, key, wide = (at_least_float32(x) for x in (query, key, value))
        starts, sizes = segments(mask, query, num_landmarks)
        query_means, key_means = _segment_means(query, starts, sizes), _segment_means(key, starts, sizes)
        used = sizes > 0  # (B, M)
        left = attention_weights(query, key_means, used)  # (B, H, T, M)
        middle = attention_weights(query_means, key_means, used) * used[:, None, :, None]  # (B, H, M, M)
        kept = None if mask is None else mask_or_full(mask)[:, None, None]
        right = F.scaled_dot_product_attention(query_means, key, wide, attn_mask=kept)  # (B, H, M, K)
        return (left @ (pseudo_inverse(middle, iterations) @ right)).to(value.dtype)


def _segment_means(x: Tensor, starts: Tensor, sizes: Tensor) -> Tensor:
    """Return the mean of each segment, and zeros for an empty one: (B, H, T, K) -> (B, H, M, K)."""
    offsets = torch.arange(x.shape[2], device=x.device) - starts[..., None]  # (B, M, T)
    inside = (offsets >= 0) & (offsets < sizes[..., None])
    weights = inside.to(x.dtype) / sizes[..., None].clamp(min=1)
    means = weights @ x.transpose(1, 2).flatten(2)  # (B, M, H K)
    return means.view(*means.shape[:2], x.shape[1], -1).transpose(1, 2)


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


def nystrom_attention_loop(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, num_landmarks: int, iterations: int
) -> Tensor:
    """The definition of `nystrom_attention`, one row and head at a time.

    Padded queries give 0; every row needs a real token.
    """
    result = torch.zeros_like(value)
    for b, h in [(b, h) for b in range(query.shape[0]) for h in range(query.shape[1])]:
        n = query.shape[2] if mask is None else int(mask[b].sum())
        q, k, v = query[b, h, :n], key[b, h, :n], value[b, h, :n]
        count = min(num_landmarks, n)
        members = [[t for t in range(n) if t * count // n == segment] for segment in range(count)]
        q_means, k_means = (torch.stack([x[these].mean(dim=0) for these in members]) for x in (q, k))
        left, middle, right = (
            (a @ c.mT / q.shape[-1] ** 0.5).softmax(dim=-1) for a, c in ((q, k_means), (q_means, k_means), (q_means, k))
        )
        z = middle.mT / (middle.abs().sum(dim=0).max() * middle.abs().sum(dim=1).max())
        for _ in range(iterations):
            az = middle @ z
            z = (13 * z - 15 * z @ az + 7 * z @ az @ az - z @ az @ az @ az) / 4
        result[b, h, :n] = left @ z @ right @ v
    return result
