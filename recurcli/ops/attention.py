"""Attention: its weights, its product with values in O(T) memory, and StarSaber's directional attention.

Blockwise, the weights of C queries are a tensor (B, C, T), so the memory is linear in T. The backward pass computes them again
from queries and keys (Dao et al., FlashAttention, 2022, section 3.1). Directional attention has one softmax over all positions,
and other values for the past than for the future (Xu, Hu & Tang, StarSaber, 2021, eq. 5).

Shapes: B batch, T positions, D query or hidden size, E value size, C queries of a block. `mask` (B, T) is bool, True at real
tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from recurcli.ops.precision import without_autocast

MIN_QUERIES, MAX_QUERIES, MAX_WEIGHTS = 64, 256, 2**23
"""Queries of a block: MAX_QUERIES, or as few as MAX_WEIGHTS allows, but not below MIN_QUERIES. Measured on a CPU with 2 MB
of L2 cache."""


LONG = 1024
"""Positions from which attention is computed by blocks of queries. Measured at D 256 on a CPU with AVX512-BF16."""
KERNEL_SIZES = (16, 32, 64, 128, 256)
"""The values of D for which `directional_kernel` has kernels."""


def mask_or_full(mask: Tensor) -> Tensor:
    """Return `mask` (B, T). A row without real tokens becomes True everywhere, so that its attention stays finite."""
    return mask | ~mask.any(dim=-1, keepdim=True)


def text_lengths(mask: Tensor | None, like: Tensor) -> Tensor:
    """Return the number of real tokens of each text (B,), for x `like` (B, …, T, K); T without a mask."""
    if mask is None:
        return torch.full((len(like),), like.shape[-2], device=like.device)
    return mask.sum(dim=-1)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, causal: bool = False, diagonal: int = 1
) -> Tensor:
    """G = softmax over i of query_n · key_i / sqrt(D): (B, …, N, D), (B, …, T, D) -> (B, …, N, T); padded keys weigh exactly 0.

    Causal: i < n + `diagonal` only, so i <= n. A row with no real token, or without any i, spreads its weights over the
    excluded positions: finite, and of no use. Scores have the dtype of the keys; bf16 rounds a score near 100 by up to 0.25.
    """
    queries, keys = query.reshape(-1, *query.shape[-2:]), key.reshape(-1, *key.shape[-2:])
    excluded = None
    if mask is not None:
        excluded = ~mask[:, None].repeat_interleave(keys.shape[0] // mask.shape[0], dim=0)  # (…, 1, T)
    if causal:
        future = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=key.device).triu(diagonal)
        excluded = future if excluded is None else excluded | future
    bias = key.new_zeros(())
    if excluded is not None:
        lowest = torch.finfo(key.dtype).min / 2  # half of it, so that a score added to it does not overflow
        bias = torch.zeros_like(excluded, dtype=key.dtype).masked_fill(excluded, lowest)
    scores = torch.baddbmm(bias, queries, keys.mT, alpha=query.shape[-1] ** -0.5)
    return scores.softmax(dim=-1).view(*query.shape[:-1], -1)


def blockwise_attention(query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute `directional_attention` without a (T, T) tensor: (B, T, D) x 2 and (B, T, E) x 2 -> (B, T, E).

    All four have one dtype. Plain attention has one tensor of values as both `past` and `future`. There are first derivatives
    only.
    """
    with without_autocast(query):
        return _Blockwise.apply(query, key, past, future, mask)  # type: ignore[no-untyped-call]


class _Blockwise(torch.autograd.Function):
    """Computes a block of queries at a time, and adds the gradients of the blocks in float32 or a wider dtype."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None) -> Tensor:
        ctx.save_for_backward(query, key, past, future, mask)
        out = torch.empty_like(future)
        for block in _blocks(query):
            weights = attention_weights(query[:, block], key, mask)
            out[:, block] = torch.bmm(weights, _values(past, future, block))
            if past is not future:
                lower = weights[:, :, block].tril(-1)  # these positions are before the query, in its own block
                out[:, block].baddbmm_(lower, past[:, block] - future[:, block])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, past, future, mask = ctx.saved_tensors
        same, scale = past is future, query.shape[-1] ** -0.5
        wide = torch.promote_types(key.dtype, torch.float32)
        of_query = torch.empty_like(query)
        of_key, of_past, of_future = (torch.zeros_like(x, dtype=wide) for x in (key, past, future))
        for block in _blocks(query):
            queries, gradients = query[:, block], gradient[:, block]
            weights = attention_weights(queries, key, mask)
            of_values = torch.bmm(weights.mT, gradients)  # (B, T, E)
            of_weights = torch.bmm(gradients, _values(past, future, block).mT)
            if same:
                of_future += of_values
            else:
                lower = weights[:, :, block].tril(-1)
                of_past[:, : block.start] += of_values[:, : block.start]
                of_future[:, block.start :] += of_values[:, block.start :]
                moved = torch.bmm(lower.mT, gradients)
                of_past[:, block] += moved
                of_future[:, block] -= moved
                difference = past[:, block] - future[:, block]
                of_weights[:, :, block] += torch.bmm(gradients, difference.mT).tril(-1)
            # Private: torch has no public name for this fused backward pass. A change of its arguments breaks this line.
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_query[:, block] = torch.bmm(of_scores, key).mul_(scale)
            of_key += torch.bmm(of_scores.mT, queries)
        of_key = of_key.mul_(scale).to(key.dtype)
        return of_query, of_key, None if same else of_past.to(past.dtype), of_future.to(future.dtype), None


def _blocks(query: Tensor) -> list[slice]:
    """Return the positions of each block of queries."""
    batch, length, _ = query.shape
    size = min(MAX_QUERIES, max(MIN_QUERIES, MAX_WEIGHTS // max(1, batch * length)))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _values(past: Tensor, future: Tensor, block: slice) -> Tensor:
    """Return the values (B, T, E) that a block sees: those of the past before it, else those of the future."""
    if past is future:
        return future
    return torch.cat([past[:, : block.start], future[:, block.start :]], dim=1)


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
    """Return whether attention by blocks of queries is as fast as with all (T, T) weights at once."""
    return not torch.compiler.is_compiling() and query.shape[1] >= LONG  # one graph serves all T


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
