"""Directional attention: one softmax over all positions, other values for the past than for the future.

Source: Xu, Hu & Tang, StarSaber, 2021, eq. 5. Shapes: B batch, T positions, D hidden size. `mask` (B, T) is bool,
True at real tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.ops.softmax import attention_weights, blockwise_attention


def directional_attention(
    query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """A_n = sum_{i<n} G_ni past_i + sum_{i>=n} G_ni future_i with G = softmax(query · key / sqrt(D)).

    (B, T, D) x 4 -> (B, T, D), all of one type. The position itself belongs to the future. StarSaber has query h,
    key W h, past U h and future Q h. Time O(T² D), memory O(T²), and O(T) for long texts.
    """
    return directional_attention_(None, query, key, past, future, mask)


def directional_attention_(
    total: Tensor | None, query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Add A of `directional_attention` to `total` (B, T, D) in place, without a separate pass; None: return A."""
    if is_long(query):
        attended = blockwise_attention(query, key, past, future, mask)
        return attended if total is None else total.add_(attended)
    weights = attention_weights(query, key, mask).to(past.dtype)  # (B, T, T)
    if past is not future:
        total = _add_product_(total, weights.tril(-1), past)
        weights = weights.triu()
    return _add_product_(total, weights, future)


def past_attention_(total: Tensor | None, query: Tensor, key: Tensor, past: Tensor) -> Tensor:
    """Add sum_{i<n} G_ni past_i to `total` (B, T, D) in place, with the softmax G over i < n alone; None: return it.

    (B, T, D) x 3 -> (B, T, D). The first position adds 0. Padding is on the right, after all that a real token reads, so
    there is no mask. Time O(T² D), memory O(T²); O(T) for long texts.
    """
    if is_long(query):
        queries, keys, values = query[:, None, 1:], key[:, None, :-1], past[:, None, :-1]  # n attends to i <= n - 1
        rest = F.scaled_dot_product_attention(queries, keys, values, is_causal=True).squeeze(1)
        attended = F.pad(rest, (0, 0, 1, 0))
        return attended if total is None else total.add_(attended)
    return _add_product_(total, past_weights(query, key).to(past.dtype), past)


def past_weights(query: Tensor, key: Tensor) -> Tensor:
    """G of `past_attention_`: (B, T, D) x 2 -> (B, T, T), strictly lower triangular; the first row is 0."""
    return attention_weights(query, key, causal=True, diagonal=0).tril(-1)


def is_long(query: Tensor) -> bool:
    """Return whether attention by blocks of queries is as fast as with all (T, T) weights at once.

    The limits were measured at D 256 on a CPU with AVX512-BF16.
    """
    return not torch.compiler.is_compiling() and query.shape[1] >= 1024  # one graph serves all T


def _add_product_(total: Tensor | None, weights: Tensor, values: Tensor) -> Tensor:
    """`total` + weights @ values, in place where there is a total."""
    return torch.bmm(weights, values) if total is None else total.baddbmm_(weights, values)


def past_attention_loop(query: Tensor, key: Tensor, past: Tensor) -> Tensor:
    """The definition of `past_attention_`, one pair of positions at a time."""
    batch, length, size = query.shape
    result = torch.zeros_like(past)
    for b in range(batch):
        for n in range(1, length):
            exponential = [torch.exp(query[b, n] @ key[b, i] / size**0.5) for i in range(n)]
            result[b, n] = sum(weight / sum(exponential) * past[b, i] for i, weight in enumerate(exponential))
    return result


def directional_attention_loop(
    query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """The definition of `directional_attention`, one pair of positions at a time. Every row needs a real token."""
    batch, length, size = query.shape
    rows = []
    for b in range(batch):
        real = [i for i in range(length) if mask is None or mask[b, i]]
        for n in range(length):
            exponential = {i: torch.exp(query[b, n] @ key[b, i] / size**0.5) for i in real}
            total = torch.stack(list(exponential.values())).sum()
            terms = [exponential[i] / total * (past[b, i] if i < n else future[b, i]) for i in real]
            rows.append(torch.stack(terms).sum(dim=0))
    return torch.stack(rows).view(batch, length, -1)
