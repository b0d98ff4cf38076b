"""Pure functions on tensors, a slow loop beside each fast form: the loop is the definition."""

from recurcli.ops.attention import attention_weights, directional_attention, directional_attention_loop

__all__ = ["attention_weights", "directional_attention", "directional_attention_loop"]
