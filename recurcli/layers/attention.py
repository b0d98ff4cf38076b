"""Multi-head attention (Vaswani et al., 2017, section 3.2.2): softmax(Q K^T / sqrt(K)) V a head, in O(T^2 D).

Shapes: B batch, T positions, D hidden size, H heads, K head size.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def key_mask(mask: Tensor | None) -> Tensor | None:
    """`mask` (B, T) as SDPA's mask of kept keys (B, 1, 1, T); a row with no real token keeps all, to stay finite."""
    if mask is None:
        return None
    return (mask | ~mask.any(dim=-1, keepdim=True))[:, None, None, :]


def head_size(hidden_size: int, num_heads: int) -> int:
    """hidden_size / num_heads. Raises ValueError where that is no whole number."""
    if hidden_size % num_heads:
        raise ValueError(
            f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}; "
            f"give head_size too, such as {-(-hidden_size // num_heads)}"
        )
    return hidden_size // num_heads


class MultiHeadAttention(nn.Module):
    """Self-attention with biases; H x K may differ from D. Dropout acts on the attention weights."""

    def __init__(self, hidden_size: int, num_heads: int, head_size: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * num_heads * head_size)
        self.output = nn.Linear(num_heads * head_size, hidden_size)
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, kept: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D); `kept` is what `key_mask` gives."""
        projected = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, K)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, K) each
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=kept, dropout_p=dropout)
        return self.output(mixed.transpose(1, 2).flatten(-2))
