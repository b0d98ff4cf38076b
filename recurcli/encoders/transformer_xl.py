"""Transformer-XL (Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, 2019), as an encoder.

A text is cut into segments of S tokens. A segment attends to itself and to the M tokens before it:

    c   = [SG(h of the M tokens before the segment); h of the segment]      section 3.2; SG: no gradient
    a_i = sum_j softmax_j(A_ij) v_j,      k, v from c and q from h           section 3.3
    A_ij = (q_i^T k_j + q_i^T W_R R_{i-j} + u^T k_j + v^T W_R R_{i-j}) / sqrt(K),      R sinusoidal, lags i - j over all of c

With `rsa` the softmax is gated with P over all of c (Huang et al., 2023; `recurcli.encoders.rsa`); its place here is ours. Ours
too: both directions inside a segment unless `causal`, u and v for each layer, biases of q, k and v, and `norm: pre`, where
the states of c are normalised ones.

`carry` keeps what the attention of each layer read at the last M tokens of a window. The next window attends to it, without a
gradient (section 3.2).

With gradients, and in `carry`, a layer computes all segments at once. Otherwise all layers compute a segment after the other,
and what they hold beside input and output does not grow with the number of segments. Shapes: B batch, T positions, D hidden
size, H heads, K head size, N segments of S tokens, M tokens of memory, C = M + S.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import BlockRecurrentConfig, TransformerXLConfig
from recurcli.encoders.encoder import NOT_CAUSAL, BlockEncoder, CarriedState, LayerStats
from recurcli.encoders.rsa import Recurrence
from recurcli.layers import SelfAttention, dropout, normal_, sinusoids, weighted
from recurcli.ops.chunks import before_pieces, joined, split, split_rows
from recurcli.ops.relative import relative_attention_weights


class Tables(NamedTuple):
    """The tensors of a layer that depend on lags, and not on the text."""

    lags: Tensor
    """W_R R of the lags C - 1 … -S: (H, C + S, K)."""
    matrices: Tensor | None
    """The last S rows of P of every head (H, S, C). None without RSA."""


class Segments(NamedTuple):
    """The segments of B texts: R = B N rows, or R = B where N is 1."""

    query: Tensor
    """(H, R, S, K)"""
    key: Tensor
    """(H, R, C, K), as `value`"""
    value: Tensor
    real: Tensor | None
    """True at keys to attend to: (R, C). None: all."""


@dataclass
class SegmentCache:
    """The state of one layer in a text of which a segment, or a part of one, is read at a time."""

    tables: Tables
    """Those of whole segments."""
    read: tuple[Tensor, Tensor] | None = None
    """Keys and values of the memory and of the segment so far: (B, H, up to M + S - 1, K) each. None at the start."""
    inputs: Tensor | None = None
    """What the attention read in the segment so far: (B, up to S - 1, D). None between segments."""
    states: tuple[Tensor, ...] | None = None
    """The Block-Recurrent Transformer's state before this segment, with its projections. None at the start."""


@dataclass
class WindowMemory:
    """What the attention of one layer read at the last M tokens before a window, without gradients."""

    states: Tensor
    """(B, m, D), m up to M. `forward` replaces it by that of the window's end."""
    recurrent: tuple[Tensor, Tensor] | None = None
    """The Block-Recurrent Transformer's state before the last block (B, S, D), and what the attention read in that block and
    before it (B, C, D), of which the next state is made. None before the first window."""


class SegmentAttention(Recurrence, SelfAttention):
    """Relative attention of each segment to itself and its memory, by the equations above: (B, T, D) -> (B, T, D)."""

    def __init__(self, config: TransformerXLConfig | BlockRecurrentConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.segment, self.memory, self.causal = config.segment, config.memory, config.causal
        self.reach: int | None = None  # the largest lag; None: all of the memory
        self.dropout = config.attention_dropout
        inner = config.num_heads * config.size_of_head
        self.position = nn.Linear(config.hidden_size, inner, bias=False)  # W_R
        nn.init.xavier_uniform_(self.position.weight)
        self.u = nn.Parameter(normal_(torch.empty(inner), std=0.02))  # as in the released code
        self.v = nn.Parameter(normal_(torch.empty(inner), std=0.02))
        self.rsa = config.rsa
        if config.rsa:
            self.add_recurrence(config)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None = None, cache: SegmentCache | WindowMemory | None = None
    ) -> Tensor:
        """Attend in a whole text x. With a SegmentCache, x is next in its segment; with a WindowMemory, its next window."""
        if isinstance(cache, SegmentCache):
            segments, tables = self.next_tokens(x, mask, cache)
        else:
            before = x[:, :0] if cache is None else cache.states
            segments, tables = self.segments(x, mask, before), self.tables(x, *self.sizes(x.shape[1], before.shape[1]))
        weights = self.weights(segments, tables)
        if tables.matrices is not None:
            weights = self.gated(weights, tables.matrices.unsqueeze(1))
        weights = dropout(weights, self.dropout, self.training)
        mixed = self.with_states(weighted(weights, segments.value), segments, x, cache)  # (H, R, S, K)
        if isinstance(cache, WindowMemory):
            read = torch.cat([cache.states, x.detach()], dim=1)
            cache.states = read[:, max(0, read.shape[1] - self.memory) :]
        return self.output(texts_of(mixed, x).transpose(1, 2).flatten(-2))

    def step(self, x: Tensor, state: SegmentCache | None = None) -> tuple[Tensor, SegmentCache]:
        """Return the output (B, D) of the next position x (B, D), and the state after it."""
        cache = SegmentCache(self.tables(x, self.segment, self.memory)) if state is None else replace(state)
        return self(x[:, None], None, cache).squeeze(1), cache

    def with_states(
        self, mixed: Tensor, segments: Segments, x: Tensor, cache: SegmentCache | WindowMemory | None
    ) -> Tensor:
        """Return `mixed` and, after its heads, what else the output reads; the Block-Recurrent Transformer adds to it."""
        return mixed

    def weights(self, segments: Segments, tables: Tables) -> Tensor:
        """Return softmax(A), the attention weights: (H, R, S, C)."""
        query, key, _, real = segments
        u, v = (bias.to(query.dtype).view(self.num_heads, -1) for bias in (self.u, self.v))
        return relative_attention_weights(query, key, tables.lags, u, v, real, causal=self.causal, reach=self.reach)

    def sizes(self, length: int, before: int = 0) -> tuple[int, int]:
        """Return S and M for a window of `length` tokens after `before` others.

        Both are no larger than needed, except in a graph for many lengths.
        """
        if torch.compiler.is_exporting():
            return self.segment, self.memory
        if length <= self.segment:
            return length, min(self.memory, before)
        if torch.compiler.is_compiling():
            return self.segment, self.memory
        return self.segment, min(self.memory, before + (length - 1) // self.segment * self.segment)

    def tables(self, x: Tensor, size: int, memory: int) -> Tables:
        """Return the tables for segments of `size` tokens after `memory` others, of the type and width of x (…, D)."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        lags = torch.arange(memory + size - 1, -size - 1, -1, device=x.device, dtype=dtype)
        by_lag = self.position(sinusoids(lags, x.shape[-1]).to(x.dtype))
        matrices = self.matrices(memory + size)[:, memory:] if self.rsa else None
        return Tables(by_lag.view(len(lags), self.num_heads, -1).transpose(0, 1), matrices)

    def segments(self, x: Tensor, mask: Tensor | None, before: Tensor | None = None) -> Segments:
        """Return all segments of a window x (B, T, D), each with the memory before it; `before` (B, m, D) is read before x."""
        batch, length, _ = x.shape
        earlier = 0 if before is None else before.shape[1]
        size, memory = self.sizes(length, earlier)
        query, key, value = self.project_real(x, mask)
        if mask is None and size == length and not memory:
            return Segments(query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), None)
        if mask is None:
            mask = torch.ones(batch, length, dtype=torch.bool, device=x.device)
        queries, keys, values = (split(part, size) for part in (query, key, value))  # (B, H, N, S, K)
        real = split_rows(mask, size)  # (B, N, S)
        if memory:
            past = self.project_memory(x) if x.requires_grad else (key, value)
            if before is not None and earlier:
                old = self.project_memory(before)
                past = torch.cat([old[0], past[0]], dim=2), torch.cat([old[1], past[1]], dim=2)
            old_keys, old_values = (before_pieces(part, size, memory, earlier) for part in past)
            keys, values = torch.cat([old_keys, keys], dim=-2), torch.cat([old_values, values], dim=-2)
            start = size * torch.arange(real.shape[1], device=x.device)[:, None]
            in_text = start + torch.arange(memory, device=x.device) >= memory - earlier  # (N, M)
            real = torch.cat([in_text.expand(batch, -1, -1), real], dim=-1)
        return Segments(rows_of(queries), rows_of(keys), rows_of(values), real.flatten(0, 1))

    def next_tokens(self, x: Tensor, mask: Tensor | None, cache: SegmentCache) -> tuple[Segments, Tables]:
        """Return the next tokens x of a segment (B, T, D) with all that they attend to, and the tables for their sizes.

        After the last tokens of a segment `cache` holds the memory of the next one.
        """
        query, key, value = self.project_real(x, mask)
        size, before = x.shape[1], 0
        if cache.read is not None:
            key, value = (torch.cat(parts, dim=2) for parts in zip(cache.read, (key, value), strict=True))
            before = key.shape[2] - size
            mask = None if mask is None else F.pad(mask, (before, 0), value=True)
        cache.read = key, value
        cache.inputs = x if cache.inputs is None else torch.cat([cache.inputs, x], dim=1)
        if cache.inputs.shape[1] == self.segment:
            cache.read, cache.inputs = self.next_memory(key, value, cache.inputs), None
        lags, matrices = cache.tables
        total = lags.shape[1]  # M + 2 S, of which the lags before + size - 1 … -size are taken
        lags = lags[:, total - self.segment - before - size : total - self.segment + size]
        matrices = (
            None if matrices is None else matrices[:, -size:, -before - size :]
        )  # an entry depends on its lag alone
        segment = Segments(query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), mask)
        return segment, Tables(lags, matrices)

    def next_memory(self, key: Tensor, value: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, up to M, K) of the last tokens of the memory and a whole segment (B, H, C, K).

        `inputs` (B, S, D) are what they were computed from in the segment. They get no gradient through the memory.
        """
        if inputs.requires_grad:
            new_key, new_value = self.project_memory(inputs)
            key = torch.cat([key[:, :, : -self.segment], new_key], dim=2)
            value = torch.cat([value[:, :, : -self.segment], new_value], dim=2)
        first = max(0, key.shape[2] - self.memory)
        return key[:, :, first:], value[:, :, first:]

    def project_real(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of `project`, with values of 0 at padding if `rsa`, because P has no mask."""
        query, key, value = self.project(x)
        if self.rsa and mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        return query, key, value

    def project_memory(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, T, K) of x (B, T, D), without a gradient to x."""
        inner = len(self.u)
        weight, bias = self.query_key_value.weight[inner:], self.query_key_value.bias[inner:]
        key, value = F.linear(x.detach(), weight, bias).view(*x.shape[:2], 2, self.num_heads, -1).unbind(2)
        return key.transpose(1, 2), value.transpose(1, 2)

    def scalars(self) -> dict[str, float]:
        """Return the scalars of the recurrence with `rsa`, else none."""
        return super().scalars() if self.rsa else {}

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, C), the weights before RSA's gate, and with `rsa` the parameters of the recurrence."""
        weights = texts_of(self.weights(self.segments(x, mask), self.tables(x, *self.sizes(x.shape[1]))), x)
        return {**(self.recurrence_stats() if self.rsa else {}), "attention": weights}


def rows_of(pieces: Tensor) -> Tensor:
    """Return pieces (B, H, N, S, E) as rows (H, R, S, E)."""
    return pieces.transpose(0, 1).flatten(1, 2)


def texts_of(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows (H, R, S, E) of texts `like` (B, T, D) as (B, H, T, E)."""
    batch, length, _ = like.shape  # not len(), which fixes B in a graph
    return joined(rows.view(rows.shape[0], batch, -1, *rows.shape[2:]).transpose(0, 1), length)


class TransformerXL(BlockEncoder):
    """L layers (post-norm in the paper); 13 D² + 15 D parameters per layer at the default sizes, plus those of P and mu.

    What `step` keeps of a text grows within a segment, up to (2 M + 3 S) D numbers a layer: keys and values of the memory and
    of the segment, and the inputs of the segment. `Tables` are kept once for all texts.
    """

    Config: ClassVar[type[Any]] = TransformerXLConfig
    Attention: ClassVar[type[Any]] = SegmentAttention
    scalar_names = ("eta", "nu", "theta")
    scratch_learning_rate = 3e-4
    """Ours: the Transformer's."""
    carry_obstacle = ""

    def __init__(self, config: TransformerXLConfig | BlockRecurrentConfig) -> None:
        super().__init__(config)
        self.segment = config.segment
        self.step_obstacle = "" if config.causal else NOT_CAUSAL
        self.min_effective_length = config.segment + 1 if config.memory else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or x.shape[1] <= self.segment:
            return super().forward(x, mask)
        return self.by_segment(x, mask)

    def with_positions(self, x: Tensor, first: int = 0) -> Tensor:
        """Return x: attention to lags takes the place of positions."""
        return x

    def carry(self, x: Tensor, state: CarriedState | None = None) -> tuple[Tensor, CarriedState]:
        h, after = self.dropout(x), {}
        for number, layer in enumerate(self.layers):
            name = f"layers.{number}"
            before = h[:, :0].detach() if state is None else state[name]
            memory = WindowMemory(before)
            if state is not None and f"{name}.state" in state:
                memory.recurrent = state[f"{name}.state"], state[f"{name}.block"]
            h = layer(h, None, memory)
            after[name] = memory.states
            if memory.recurrent is not None:
                after[f"{name}.state"], after[f"{name}.block"] = memory.recurrent
        return self.final_norm(h), after

    def by_segment(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the states of `forward`, computed one segment after the other."""
        attentions = [cast(SegmentAttention, layer.attention) for layer in self.layers]
        caches = [SegmentCache(each.tables(x, *each.sizes(x.shape[1]))) for each in attentions]
        states: Tensor | None = None
        for start in range(0, x.shape[1], self.segment):
            here = slice(start, start + self.segment)
            h = self.dropout(x[:, here])
            for layer, cache in zip(self.layers, caches, strict=True):
                h = layer(h, None if mask is None else mask[:, here], cache)
            if states is None:
                states = h.new_empty(x.shape)
            states[:, here] = self.final_norm(h)
        assert states is not None
        return states
