"""Directional attention: one softmax over all positions, two value matrices, one a side (Xu, Hu & Tang, StarSaber).

Shapes: B batch, T positions, D hidden size. `mask` (B, T) is bool, True at real tokens.
"""

import torch
from torch import Tensor


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax over i of query_n · key_i / sqrt(D): (B, T, D) x 2 -> (B, T, T); padded keys weigh exactly 0.

    A row with no real token spreads its weights over the padding: finite, and of no use.
    """
    scale = query.shape[-1] ** -0.5
    if mask is None:
        scores = torch.bmm(query, key.mT) * scale
    else:
        # Half the lowest number: a score added to it does not overflow, and its exponential is 0 beside a real key.
        bias = torch.zeros_like(mask, dtype=key.dtype).masked_fill(~mask, torch.finfo(key.dtype).min / 2)
        scores = torch.baddbmm(bias[:, None, :], query, key.mT, alpha=scale)
    return scores.softmax(dim=-1)


def directional_attention(
    query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """A_n = sum_{i<n} G_ni past_i + sum_{i>=n} G_ni future_i with G = softmax(query · key / sqrt(D)).

    (B, T, D) x 4 -> (B, T, D). The position itself belongs to the future. StarSaber's eq. 5 has query h, key W h,
    past U h, future Q h.
    """
    weights = attention_weights(query, key, mask).to(past.dtype)  # (B, T, T)
    return torch.baddbmm(torch.bmm(weights.tril(-1), past), weights.triu(), future)


def directional_attention_loop(
    query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """The definition of `directional_attention`, one pair of positions at a time. Every row needs a real token."""
    batch, length, size = query.shape
    result = torch.zeros_like(future)
    for b in range(batch):
        real = [i for i in range(length) if mask is None or mask[b, i]]
        for n in range(length):
            exponentials = {i: torch.exp(query[b, n] @ key[b, i] / size**0.5) for i in real}
            total = sum(exponentials.values(), torch.zeros_like(query[b, n, 0]))
            terms = [exponentials[i] / total * (past[b, i] if i < n else future[b, i]) for i in real]
            result[b, n] = torch.stack(terms).sum(dim=0)
    return result
