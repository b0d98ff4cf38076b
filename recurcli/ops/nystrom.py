"""Nyströmformer's attention (Xiong et al., Nyströmformer, 2021, Algorithm 1): softmax attention in O(T) by M landmarks.

    softmax(Q K̃^T / sqrt(K)) pinv(softmax(Q̃ K̃^T / sqrt(K))) softmax(Q̃ K^T / sqrt(K)) V

Q̃ and K̃ are the means of M segments of the queries and keys of real tokens. Shapes: B batch, T positions, H heads, K head size,
M landmarks. `mask` (B, T) is bool, True at real tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.device import at_least_float32, without_autocast
from recurcli.ops.attention import attention_weights, mask_or_full
from recurcli.ops.landmarks import pseudo_inverse, segments


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
