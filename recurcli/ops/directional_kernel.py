# ruff: noqa: N803 - Triton has constants in capital letters
"""StarSaber's directional attention as Triton kernels for CUDA, forward and backward, in O(T) memory.

    A_n = sum_{i<n} G_ni past_i + sum_{i>=n} G_ni future_i,   G = softmax(query · key / sqrt(D))     (StarSaber, eq. 5)

One online softmax (Dao et al., FlashAttention, 2022, section 3.1) over both sets of values; a block of keys reads both sets at
the diagonal alone. The backward pass computes the weights again from the log of each softmax's sum. The kernels were compared
with `directional_attention` on an H100 and an H200, and in Triton's interpreter on a CPU (`TRITON_INTERPRET=1`).

Shapes: B batch, T positions, D size of queries, keys and values; a program works on BM queries and BN keys. `lengths` (B,) are
the numbers of real tokens. Sums are float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from recurcli.ops.attention import directional_attention


@triton.jit
def _rows(base, rows, D: tl.constexpr, T):
    """Return `rows` (R,) of a (T, D) matrix, zero after its end."""
    columns = tl.arange(0, D)
    return tl.load(base + rows[:, None] * D + columns[None, :], mask=(rows < T)[:, None], other=0.0)


@triton.jit
def _values(past, future, n, i, first, last, D: tl.constexpr, T, x):
    """Return x (BM, D) · value (BN, D): that of the past where key i is before query n, else that of the future.

    `first` and `last` are the first and the last query.
    """
    found = tl.zeros((x.shape[0], i.shape[0]), tl.float32)
    start, end = tl.min(i), tl.max(i)
    if start < last:  # some keys are in the past of some query
        values = _rows(past, i, D, T)
        found += tl.where(i[None, :] < n[:, None], tl.dot(x, tl.trans(values), input_precision="ieee"), 0.0)
    if end >= first:
        values = _rows(future, i, D, T)
        found += tl.where(i[None, :] >= n[:, None], tl.dot(x, tl.trans(values), input_precision="ieee"), 0.0)
    return found


@triton.jit
def _forward(
    q, k, past, future, out, log_sums, lengths, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write A and the logs of the sums of a block of queries."""
    b = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BM
    n = first + tl.arange(0, BM)
    base, real = b * T * D, tl.load(lengths + b)
    queries = _rows(q + base, n, D, T)
    highest = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    found = tl.zeros((BM, D), tl.float32)
    for start in range(0, T, BN):
        i = start + tl.arange(0, BN)
        scores = tl.dot(queries, tl.trans(_rows(k + base, i, D, T)), input_precision="ieee") * scale
        scores = tl.where((i < real)[None, :], scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.where((i < real)[None, :], tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(weights, 1)
        found = found * shrink[:, None]
        if start < first + BM:
            values = _rows(past + base, i, D, T)
            part = tl.where(i[None, :] < n[:, None], weights, 0.0).to(values.dtype)
            found += tl.dot(part, values, input_precision="ieee")
        if start + BN > first:
            values = _rows(future + base, i, D, T)
            part = tl.where(i[None, :] >= n[:, None], weights, 0.0).to(values.dtype)
            found += tl.dot(part, values, input_precision="ieee")
        highest = higher
    columns = tl.arange(0, D)
    inside = (n < T)[:, None]
    result = (found / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + base + n[:, None] * D + columns[None, :], result, mask=inside)
    tl.store(log_sums + b * T + n, highest + tl.log(total), mask=n < T)


@triton.jit
def _of_keys(
    q, k, past, future, grad, log_sums, deltas, lengths, of_key, of_past, of_future, T, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of keys and values, over all blocks of queries."""
    b = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BN
    i = start + tl.arange(0, BN)
    base, real = b * T * D, tl.load(lengths + b)
    keys = _rows(k + base, i, D, T)
    to_key, to_past, to_future = (
        tl.zeros((BN, D), tl.float32),
        tl.zeros((BN, D), tl.float32),
        tl.zeros((BN, D), tl.float32),
    )
    for first in range(0, T, BM):
        n = first + tl.arange(0, BM)
        queries, gradients = _rows(q + base, n, D, T), _rows(grad + base, n, D, T)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        logs = tl.load(log_sums + b * T + n, mask=n < T, other=0.0)
        known = (i < real)[None, :] & (n < T)[:, None]
        weights = tl.where(known, tl.exp(scores - logs[:, None]), 0.0)
        if start < first + BM:
            part = tl.where(i[None, :] < n[:, None], weights, 0.0).to(gradients.dtype)
            to_past += tl.dot(tl.trans(part), gradients, input_precision="ieee")
        if start + BN > first:
            part = tl.where(i[None, :] >= n[:, None], weights, 0.0).to(gradients.dtype)
            to_future += tl.dot(tl.trans(part), gradients, input_precision="ieee")
        of_weights = _values(past + base, future + base, n, i, first, first + BM - 1, D, T, gradients)
        delta = tl.load(deltas + b * T + n, mask=n < T, other=0.0)
        of_scores = (weights * (of_weights - delta[:, None])).to(queries.dtype)
        to_key += tl.dot(tl.trans(of_scores), queries, input_precision="ieee")
    columns = tl.arange(0, D)
    place, inside = base + i[:, None] * D + columns[None, :], (i < T)[:, None]
    tl.store(of_key + place, (to_key * scale).to(of_key.dtype.element_ty), mask=inside)
    tl.store(of_past + place, to_past.to(of_past.dtype.element_ty), mask=inside)
    tl.store(of_future + place, to_future.to(of_future.dtype.element_ty), mask=inside)


@triton.jit
def _of_queries(
    q, k, past, future, grad, log_sums, deltas, lengths, of_query, T, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a block of queries, over all blocks of keys."""
    b = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * BM
    n = first + tl.arange(0, BM)
    base, real = b * T * D, tl.load(lengths + b)
    queries, gradients = _rows(q + base, n, D, T), _rows(grad + base, n, D, T)
    logs = tl.load(log_sums + b * T + n, mask=n < T, other=0.0)
    delta = tl.load(deltas + b * T + n, mask=n < T, other=0.0)
    to_query = tl.zeros((BM, D), tl.float32)
    for start in range(0, T, BN):
        i = start + tl.arange(0, BN)
        keys = _rows(k + base, i, D, T)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        weights = tl.where((i < real)[None, :], tl.exp(scores - logs[:, None]), 0.0)
        of_weights = _values(past + base, future + base, n, i, first, first + BM - 1, D, T, gradients)
        of_scores = (weights * (of_weights - delta[:, None])).to(keys.dtype)
        to_query += tl.dot(of_scores, keys, input_precision="ieee")
    columns = tl.arange(0, D)
    result = (to_query * scale).to(of_query.dtype.element_ty)
    tl.store(of_query + base + n[:, None] * D + columns[None, :], result, mask=(n < T)[:, None])


class _Directional(torch.autograd.Function):
    """Launches the kernels: a program for each block of queries, or of keys, of each text."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, past: Tensor, future: Tensor, lengths: Tensor) -> Tensor:
        query, key, past, future = (part.contiguous() for part in (query, key, past, future))
        out, log_sums = torch.empty_like(past), query.new_empty(query.shape[:2], dtype=torch.float32)
        _forward[_grid(query)](
            query, key, past, future, out, log_sums, lengths, query.shape[1], query.shape[2] ** -0.5, **_blocks(query)
        )
        ctx.save_for_backward(query, key, past, future, lengths, out, log_sums)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, past, future, lengths, out, log_sums = ctx.saved_tensors
        gradient = gradient.contiguous()
        deltas = (gradient.float() * out.float()).sum(dim=-1)  # (B, T)
        of_query, of_key, of_past, of_future = (torch.empty_like(part) for part in (query, key, past, future))
        read = query, key, past, future, gradient, log_sums, deltas, lengths
        sizes = query.shape[1], query.shape[2] ** -0.5
        _of_keys[_grid(query)](*read, of_key, of_past, of_future, *sizes, **_blocks(query))
        _of_queries[_grid(query)](*read, of_query, *sizes, **_blocks(query))
        return of_query, of_key, of_past, of_future, None


def _blocks(query: Tensor) -> dict[str, int]:
    """Return D, and the queries and keys of a program: as many as the shared memory of capability 8.0 holds (ours)."""
    size = query.shape[2]
    rows = 64 if size * query.element_size() <= 256 else 32 if size * query.element_size() <= 512 else 16
    return {"D": size, "BM": rows, "BN": rows}


def _grid(query: Tensor) -> tuple[int, int]:
    return triton.cdiv(query.shape[1], _blocks(query)["BM"]), query.shape[0]


def kernel_attention(query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return `directional_attention` by the kernels: (B, T, D) x 4 -> (B, T, D), all in float32 or all in bfloat16.

    D is one of KERNEL_SIZES. In `mask` (B, T) padding is on the right; the states of a text without a real token are of no use.
    """
    length = query.shape[1]
    lengths = torch.full((len(query),), length, dtype=torch.int32, device=query.device)
    if mask is not None:
        counts = mask.sum(dim=1, dtype=torch.int32)
        lengths = torch.where(counts > 0, counts, lengths)
    found: Tensor = _Directional.apply(query, key, past, future, lengths)
    return found


def kernel_attention_(
    total: Tensor | None, query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Add A to `total` (B, T, D) in place, as `directional_attention_` does; None: return A."""
    attended = kernel_attention(query, key, past, future, mask)
    return attended if total is None else total.add_(attended)


def difference(device: torch.device) -> float:
    """Return the largest difference of the kernels from `directional_attention` on a small input, gradients too, in float32."""
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, 70, 32, generator=generator).to(device) for _ in range(5)]
    mask = torch.arange(70, device=device) < torch.tensor([[70], [33]], device=device)
    results = []
    for attend in (kernel_attention, directional_attention):
        query, key, past, future = inputs = [part.clone().requires_grad_() for part in parts[:4]]
        out = attend(query, key, past, future, mask)
        results.append([out.detach(), *torch.autograd.grad(out, inputs, parts[4])])
    return max(float((one - other).abs().max()) for one, other in zip(*results, strict=True))
