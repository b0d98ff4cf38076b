"""Linformer (Wang et al., Linformer: Self-Attention with Linear Complexity, 2020, section 4): attention to k projected rows.

head_h = softmax(Q (E_h K)^T / sqrt(K)) E_h V,   E (H, k, T_max) learned                                         eq. 7

As in the long-range table, keys and values share E, and heads and layers do not. Padded keys and values are 0 before the
projection, and a row of T tokens uses the first T columns of E. Shapes: B batch, T positions, H heads, K head size, k
projected length.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import LinformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention, normal_
from recurcli.ops.attention import attention_weights, mask_or_full


class LinformerAttention(SelfAttention):
    """Attention to k projected keys and values, in O(T k): (B, T, D) -> (B, T, D) for T of at most `max_length`."""

    projection: Tensor
    """E, transposed: (T_max, H, k)."""

    def __init__(self, config: LinformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        projection = torch.empty(config.max_length, config.num_heads, config.projected_length)
        self.projection = nn.Parameter(normal_(projection, std=0.02))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(query, self.projected(key, mask), self.projected(value, mask))

    def projected(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return E X with zeros at padding: (B, H, T, K) -> (B, H, k, K)."""
        if mask is not None:
            x = x.masked_fill(~mask[:, None, :, None], 0.0)
        return torch.einsum("thk,bhtd->bhkd", self.projection[: x.shape[2]], x)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the entropy in nats of the attention to the k projected rows, log k at most; the mean over real queries."""
        query, key, _ = self.project(x)
        weights = attention_weights(query, self.projected(key, mask))  # (B, H, T, k)
        entropies = torch.special.entr(weights).sum(dim=-1).mean(dim=1)  # (B, T)
        real = torch.ones_like(entropies, dtype=torch.bool) if mask is None else mask_or_full(mask)
        return {"projected_entropy": entropies[real].mean().item()}


class Linformer(BlockEncoder):
    """L layers; 12 D² + H k T_max parameters per layer and biases. E starts as N(0, 0.02²)."""

    Config = LinformerConfig
    Attention = LinformerAttention
