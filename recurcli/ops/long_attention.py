"""Directional attention in O(T) memory: two causal flash attentions, merged by their log-sum-exp.

Causal attention of queries 1..T-1 over keys 0..T-2 covers the positions before n. Causal attention on the reversed
sequence covers n and the positions after it. If a and b are the log-sum-exps of the two halves, the full softmax is the
sum of both outputs with the weights exp(a - c) and exp(b - c), c = logaddexp(a, b). In the backward pass each half gets
the merged output and c. Its formula (Dao et al., FlashAttention, 2022, section 3.1) then gives the full gradient.

Shapes: B batch, T positions, D hidden size, E value size. `mask` (B, T) is bool, True at real tokens, padding on the right.
"""

from typing import Any

import torch
from torch import Tensor

_flash = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_flash_backward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def long_attention_available(query: Tensor) -> bool:
    """Whether this torch has what is needed: its CPU operator that returns the log-sum-exp is private, and may go."""
    return query.device.type == "cpu" and _flash is not None and _flash_backward is not None


def directional_attention_long(
    query: Tensor, key: Tensor, past: Tensor, future: Tensor, mask: Tensor | None = None
) -> Tensor:
    """As `directional_attention`, without a (T, T) tensor: (B, T, D) x 4 -> (B, T, D). On a CPU only."""
    lengths = None if mask is None else mask.sum(dim=1)
    return _MergedHalves.apply(query, key, past, future, lengths)  # type: ignore[no-untyped-call]


class _MergedHalves(torch.autograd.Function):
    """The merged forward pass, and the backward pass that feeds both halves the merged result."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, past: Tensor, future: Tensor, lengths: Tensor | None) -> Tensor:
        turn = _reversal(query, lengths)
        queries, keys = _turned(query, turn), _turned(key, turn)
        out_future, lse_future = _attend(queries, keys, _turned(future, turn))
        out, lse = _turned(out_future, turn), lse_future.gather(1, turn)
        if query.shape[1] > 1:
            out_past, lse_past = _attend(query[:, 1:], key[:, :-1], past[:, :-1])
            merged = torch.logaddexp(lse[:, 1:], lse_past)  # (B, T - 1)
            weights = [torch.exp(part - merged).unsqueeze(-1) for part in (lse[:, 1:], lse_past)]
            rest = weights[0] * out[:, 1:] + weights[1] * out_past
            out = torch.cat([out[:, :1], rest.to(out.dtype)], dim=1)
            lse = torch.cat([lse[:, :1], merged], dim=1)
        ctx.save_for_backward(query, key, past, future, out, lse, turn)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, past, future, out, lse, turn = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        turned = [_turned(value, turn) for value in (gradient, query, key, future, out)]
        d_query, d_key, d_future = (_turned(value, turn) for value in _attend_backward(turned, lse.gather(1, turn)))
        d_past = torch.zeros_like(past)
        if query.shape[1] > 1:
            parts = [gradient[:, 1:], query[:, 1:], key[:, :-1], past[:, :-1], out[:, 1:]]
            more_query, more_key, d_past[:, :-1] = _attend_backward(parts, lse[:, 1:])
            d_query[:, 1:] += more_query
            d_key[:, :-1] += more_key
        return d_query, d_key, d_past, d_future, None


def _reversal(query: Tensor, lengths: Tensor | None) -> Tensor:
    """Positions (B, T) that turn each row's real tokens round and leave its padding where it is."""
    batch, length = query.shape[:2]
    places = torch.arange(length, device=query.device).expand(batch, -1)
    if lengths is None:
        return places.flip(1)
    return torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x (B, T, E) in the order of `turn`, which is its own inverse."""
    return x.gather(1, turn.unsqueeze(-1).expand_as(x))


def _attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention (B, T, E) and its log-sum-exp (B, T), one head."""
    assert _flash is not None
    out, lse = _flash(*(part.unsqueeze(1) for part in (query, key, value)), 0.0, True)
    return out.squeeze(1), lse.reshape(query.shape[:2])


def _attend_backward(parts: list[Tensor], lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value of `_attend`, from the gradient of the output, query, key, value and output.

    The output, its gradient and the log-sum-exp (B, T) are those of the whole softmax.
    """
    assert _flash_backward is not None
    query, key, value = _flash_backward(*(part.unsqueeze(1) for part in parts), lse.unsqueeze(1), 0.0, True)
    return query.squeeze(1), key.squeeze(1), value.squeeze(1)
