"""Multi-head self-attention (Vaswani et al., 2017, section 3.2.2): softmax(Q K^T / sqrt(K)) V a head, in O(T^2 D).

Shapes: B batch, T positions, D hidden size, H heads, K head size. `mask` (B, T) is bool, True at real tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.layers.dropout import dropout
from recurcli.ops.softmax import attention_weights, blockwise_attention, mask_or_full


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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mixed = self.mix(*self.project(x), mask)
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
        """What diagnosis shows, as a layer's `stats` (`recurcli.encoders.encoder`)."""
        return {}


class MultiheadAttention(SelfAttention):
    """Softmax attention with dropout on the attention weights."""

    def __init__(
        self, hidden_size: int, num_heads: int, head_size: int, dropout: float, *, causal: bool = False
    ) -> None:
        super().__init__(hidden_size, num_heads, head_size)
        self.dropout = dropout
        self.causal = causal

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        p = self.dropout if self.training else 0.0
        return softmax_attention(query, key, value, mask, p, causal=self.causal)

    def stats(self, x: Tensor, mask: Tensor | None) -> dict[str, Any]:
        query, key, _ = self.project(x)
        return {"attention": attention_weights(query, key, mask, causal=self.causal)}
