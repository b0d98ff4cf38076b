"""Pure functions on tensors, a slow loop beside each fast form: the loop is the definition."""

from recurcli.ops.attention import attention_weights, directional_attention, directional_attention_loop
from recurcli.ops.linear_attention import linear_attention, linear_attention_loop, linear_attention_step
from recurcli.ops.orthogonal import orthogonal, orthogonal_loop, orthonormal
from recurcli.ops.recurrence import (
    recurrence_matrix,
    recurrence_matrix_loop,
    recurrence_product,
    recurrence_product_dense,
    recurrence_product_loop,
)
from recurcli.ops.stable import clip_singular_values, project_lstm, scale_rows
from recurcli.ops.windowed import full_recurrence, windowed_recurrence, windowed_recurrence_loop

__all__ = [
    "attention_weights",
    "clip_singular_values",
    "directional_attention",
    "directional_attention_loop",
    "full_recurrence",
    "linear_attention",
    "linear_attention_loop",
    "linear_attention_step",
    "orthogonal",
    "orthogonal_loop",
    "orthonormal",
    "project_lstm",
    "recurrence_matrix",
    "recurrence_matrix_loop",
    "recurrence_product",
    "recurrence_product_dense",
    "recurrence_product_loop",
    "scale_rows",
    "windowed_recurrence",
    "windowed_recurrence_loop",
]
