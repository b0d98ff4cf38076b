"""Layers that encoders share: initial weights, positions, dropout, feed-forward network, cached maps of parameters, attention.

Shapes: B batch, T positions, D hidden size, H heads, K head size. `mask` (B, T) is bool, True at real tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.ops.attention import attention_weights, blockwise_attention, mask_or_full
from recurcli.ops.orthogonal import orthogonal
from recurcli.validation import Activation, OrthogonalMap


def normal_(tensor: Tensor, std: float) -> Tensor:
    """As `nn.init.normal_`, but not on the meta device: torch imports its compiler for that, which takes a second."""
    return tensor if tensor.is_meta else nn.init.normal_(tensor, std=std)


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """The sinusoidal encodings of `positions` (N,), which may be negative: (N, D), where D is `size`.

    Position t has sin(t / 10000^(2k/D)) at 2k and its cosine at 2k + 1.
    """
    places = torch.arange(0, size, 2, device=positions.device, dtype=positions.dtype)
    angle = positions[:, None] * 10_000.0 ** (-places / size)  # (N, ceil(D / 2))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[:, :size]


def sinusoidal_positions(like: Tensor, first: int = 0) -> Tensor:
    """The table (T, D) to add to embeddings `like` (B, T, D) from position `first` on, in their type and on their device.

    The angles are taken in float32 at least.
    """
    length, size = like.shape[-2:]
    dtype = torch.promote_types(like.dtype, torch.float32)
    return sinusoids(torch.arange(first, first + length, device=like.device, dtype=dtype), size).to(like.dtype)


STEPS = 1 << 16
"""A probability is rounded to a multiple of 1 / STEPS."""


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each element of `x` to 0 with probability `p`, and scale the others by 1 / (1 - p). Without `training` return `x`.

    On a CPU four elements share one random number of 64 bits. On other devices and in a compiled graph, this is torch's
    dropout.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    kept, count = round((1 - p) * STEPS), x.numel()
    if kept == STEPS:
        return x
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(1 << 63), None)
    mask = draws.view(torch.int16)[:count].lt_(kept - STEPS // 2).view(x.shape)  # in place: 1 or 0 as int16
    scale = torch.tensor(STEPS / kept if kept else 0.0, dtype=x.dtype)
    if x.dtype.itemsize == 2:  # the bits of the scale, or none
        return x * mask.mul_(scale.view(torch.int16)).view(x.dtype)
    return x * mask.to(x.dtype).mul_(scale)


class Dropout(nn.Module):
    """`dropout` as a module: (…) -> (…)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)


class FeedForward(nn.Module):
    """W_2 dropout(activation(W_1 x + b_1)) + b_2: (…, D) -> (…, D)."""

    def __init__(self, hidden_size: int, inner_size: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, inner_size)
        self.activation: Callable[[Tensor], Tensor] = F.gelu if activation == "gelu" else F.relu
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(inner_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


def by_head(x: Tensor, heads: int) -> Tensor:
    """Return x (…, H K) as (…, H, K)."""
    return x.view(*x.shape[:-1], heads, -1)


class ShortConvolution(nn.Module):
    """SiLU of a causal convolution of each channel over its last `width` positions: (B, T, C) -> (B, T, C).

    It stands before the recurrences of Mamba, DeltaNet and xLSTM. Its weights begin as those of `nn.Conv1d`, without a bias.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, channels).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the values of x (B, T, C), and what a later call gets as `before`: the last width - 1 positions, None: 0."""
        length, width = x.shape[1], len(self.weight)
        read = F.pad(x, (0, 0, width - 1, 0)) if before is None else torch.cat([before, x], dim=1)
        weight = self.weight.to(x.dtype)
        found = weight[0] * read[:, :length]
        for place in range(1, width):
            found = torch.addcmul(found, weight[place], read[:, place : place + length])
        return F.silu(found), read[:, length:]


_held: ContextVar[dict[int, list[Tensor]] | None] = ContextVar("_held", default=None)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The autocast type on the device of `x` where autocast is on, else the type of `x`."""
    kind = x.device.type
    enabled = kind != "meta" and torch.is_autocast_enabled(kind)  # autocast does not know the meta device
    return torch.get_autocast_dtype(kind) if enabled else x.dtype


@contextmanager
def computed_once() -> Iterator[None]:
    """Compute every `CachedMap` at most once inside the block, in training too: for one forward pass and its losses."""
    token = _held.set({})
    try:
        yield
    finally:
        _held.reset(token)


class CachedMap(nn.Module):
    """A pure function of parameters. Evaluation caches its value until a parameter changes.

    In training mode, or with gradients enabled, the function runs at every call, or once per block of `computed_once`.
    The cached value is then dropped: the step of a fused optimiser cannot be detected, but it always follows such a
    call. A change of mode drops the value too, and so does a parameter that was written to, replaced or moved. A
    write through `parameter.data` in evaluation is not detected. `torch.export` uses the cached value, so run an
    evaluation first. A graph of `torch.compile` runs the function at every call.
    """

    def __init__(self, function: Callable[[Sequence[Tensor]], list[Tensor]]) -> None:
        super().__init__()
        self.function = function
        self._kept: list[Tensor] = []
        self._state: object = None

    def train(self, mode: bool = True) -> "CachedMap":
        """Set the training mode, as `nn.Module.train` does. A change of mode drops the kept tensors."""
        if mode != self.training:
            self._kept = []
        return super().train(mode)

    def held(self) -> list[Tensor] | None:
        """The value that the block of `computed_once` holds; None outside of one, and before the first call in it."""
        return (_held.get() or {}).get(id(self))

    def forward(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """function(parameters), perhaps from an earlier call."""
        if torch.compiler.is_exporting():  # an exported model is constant, and its parameters cannot be looked at
            return self._kept or self.function(parameters)
        if torch.compiler.is_compiling():  # a graph cannot look at them either
            return self.function(parameters)
        if self.training or torch.is_grad_enabled() or any(p.is_inference() for p in parameters):
            self._kept = []
            held = _held.get()
            if held is None:
                return self.function(parameters)
            if id(self) not in held:
                held[id(self)] = self.function(parameters)
            return held[id(self)]
        state = [(p.data_ptr(), p._version, p.shape, p.device, p.dtype, compute_dtype(p)) for p in parameters]
        if not self._kept or state != self._state:
            with torch.inference_mode(False), torch.no_grad():  # an inference tensor can never take part in a backward
                self._kept, self._state = self.function(parameters), state
        return self._kept


def orthogonal_matrices(kind: OrthogonalMap) -> CachedMap:
    """From raw tensors of one D to their orthogonal matrices, in one batched call, kept in evaluation."""
    return CachedMap(partial(orthogonal_together, kind=kind))


def orthogonal_together(raw: Sequence[Tensor], kind: OrthogonalMap) -> list[Tensor]:
    """Return the orthogonal matrices of all `raw` tensors, from one batched call. The shapes do not change.

    A tensor is (…, D, D), or (N D, D) with N matrices one below the other; all have the same D. The map is computed in
    float32. The result has the dtype of matrix products (`compute_dtype`).
    """
    stacks = [tensor.reshape(-1, tensor.shape[-1], tensor.shape[-1]) for tensor in raw]
    stacked = torch.cat(stacks)
    made = orthogonal(stacked, kind, gradient_dtype=compute_dtype(stacked))
    parts = torch.split(made.to(compute_dtype(made)), [len(stack) for stack in stacks])
    return [matrices.reshape(tensor.shape) for matrices, tensor in zip(parts, raw, strict=True)]


def key_mask(mask: Tensor | None) -> Tensor | None:
    """Return `mask` (B, T) as SDPA's `attn_mask` (B, 1, 1, T). A row with no real token attends to all, to stay finite."""
    if mask is None:
        return None
    return mask_or_full(mask)[:, None, None, :]


def trains_short_texts(query: Tensor) -> bool:
    """Return whether gradients take less time with explicit weights than with SDPA.

    The limits were measured with 4 heads of 64 on a CPU with AVX512-BF16.
    """
    return _trains_on_cpu(query) and query.shape[2] <= (512 if query.dtype == torch.bfloat16 else 128)


def _trains_on_cpu(query: Tensor) -> bool:
    """Return whether gradients of `query` are computed on a CPU, and not by a compiled graph."""
    return query.requires_grad and query.device.type == "cpu" and not torch.compiler.is_compiling()


def weighted(weights: Tensor, value: Tensor) -> Tensor:
    """Return attention weights (B, H, T, C) times values (B, H, C, K) for each head: (B, H, T, K)."""
    return torch.bmm(weights.flatten(0, 1), value.flatten(0, 1)).view(*weights.shape[:-1], -1)


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_probability: float = 0.0,
    *,
    causal: bool = False,
) -> Tensor:
    """Return softmax(Q K^T / sqrt(K)) V, with dropout on the weights: (B, H, T, K) x 3 -> (B, H, T, K).

    Training on a CPU computes explicit weights (B, H, T, T) for short texts, and in bf16 those of a block of queries for long
    texts, because the backward pass of SDPA takes longer there. All other cases take SDPA. Memory is O(T), but O(T²) for short
    texts and with dropout. Causal attention needs no mask, because padding is on the right, after every real token.
    """
    mask = None if causal else mask
    if trains_short_texts(query):
        weights = attention_weights(query, key, mask, causal=causal)
        return weighted(dropout(weights, dropout_probability, dropout_probability > 0), value)
    if _trains_on_cpu(query) and query.dtype == torch.bfloat16 and not causal and not dropout_probability:
        heads = None if mask is None else mask.repeat_interleave(query.shape[1], dim=0)
        queries, keys, values = (x.flatten(0, 1) for x in (query, key, value))
        return blockwise_attention(queries, keys, values, values, heads).view(value.shape)
    return F.scaled_dot_product_attention(query, key, value, key_mask(mask), dropout_probability, is_causal=causal)


class SelfAttention(nn.Module):
    """Projections to queries, keys and values and from the mixed values, with biases; a subclass says how it mixes.

    (B, T, D) -> (B, T, D); H x K may differ from D. With two `projections` the keys are the queries; with one all three are
    the same.
    """

    def __init__(self, hidden_size: int, num_heads: int, head_size: int, *, projections: int = 3) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projections = projections
        self.query_key_value = nn.Linear(hidden_size, projections * num_heads * head_size)
        self.output = nn.Linear(num_heads * head_size, hidden_size)
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, *more: Tensor) -> Tensor:
        mixed = self.mix(*self.project(x), mask, *more)
        return self.output(mixed.transpose(1, 2).flatten(-2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (B, H, T, K) of x (B, T, D)."""
        parts = self.query_key_value(x).unflatten(-1, (self.projections, self.num_heads, -1)).unbind(2)
        query, key, value = parts[0], parts[max(0, self.projections - 2)], parts[-1]
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """(B, H, T, K) x 3 -> (B, H, T, K)."""
        raise NotImplementedError

    def stats(self, x: Tensor, mask: Tensor | None) -> dict[str, Any]:
        """Return the statistics that a diagnosis shows, as the `stats` of a layer (`recurcli.encoders.encoder`).

        Unless a subclass knows them otherwise, `attention` are the weights (B, H, T, T) with which `mix` sums the values of
        x (B, T, D): its result for unit vectors as values. It takes a text at a time, since that needs T columns of values.
        """
        rows = []
        for number in range(len(x)):
            text, real = x[number : number + 1], None if mask is None else mask[number : number + 1]
            query, key, _ = self.project(text)
            units = torch.eye(x.shape[1], dtype=query.dtype, device=x.device).expand(1, query.shape[1], -1, -1)
            rows.append(self.mix(query, key, units, real))
        return {"attention": torch.cat(rows)}
