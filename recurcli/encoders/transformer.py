"""The Transformer's encoder, post-norm with sinusoidal positions (Vaswani et al., Attention Is All You Need, 2017).

a  = LayerNorm(h + attention(h)),   h' = LayerNorm(a + feed_forward(a)),   h^0 = x + sinusoidal positions
attention(h) = concat_heads( softmax(Q K^T / sqrt(K)) V ) W_O
"""

import torch
from torch import Tensor

from recurcli.encoders.config import OptionalRSAConfig, ReZeroConfig, TransformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention, sinusoidal_positions, softmax_attention
from recurcli.ops.attention import attention_weights


class MultiheadAttention(SelfAttention):
    """Softmax attention with dropout on the attention weights."""

    def __init__(self, config: TransformerConfig | ReZeroConfig | OptionalRSAConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.dropout = config.attention_dropout
        self.causal = config.causal
        self.rotary = isinstance(config, TransformerConfig) and config.position == "rotary"

    def project(self, x: Tensor, first_position: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().project(x)
        if self.rotary:
            query, key = rotated(query, key, first_position=first_position)
        return query, key, value

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        p = self.dropout if self.training else 0.0
        return softmax_attention(query, key, value, mask, p, causal=self.causal)

    def step(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the output (B, D) of the next position x (B, D), and the keys and values so far (B, H, T, K)."""
        query, key, value = self.project(x[:, None], 0 if state is None else state[0].shape[2])
        if state is not None:
            key, value = torch.cat([state[0], key], dim=2), torch.cat([state[1], value], dim=2)
        found = softmax_attention(query, key, value, None, self.dropout if self.training else 0.0)
        return self.output(found.flatten(1)), (key, value)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        query, key, _ = self.project(x)
        return {"attention": attention_weights(query, key, mask, causal=self.causal)}


def rotated(*vectors: Tensor, first_position: int = 0) -> list[Tensor]:
    """Return each of `vectors` (B, H, T, K) with each pair of coordinates k and k + K / 2 turned by its angle.

    The angle is the position times 10,000^(-2 k / K). Su et al., RoFormer, 2021, eq. 34, there of the coordinates 2 k and
    2 k + 1; a permutation of the weights joins both.
    """
    angles = sinusoidal_positions(vectors[0], first_position)
    sine, cosine = angles[:, 0::2], angles[:, 1::2]  # (T, K / 2)
    halves = (x.chunk(2, dim=-1) for x in vectors)
    return [torch.cat([one * cosine - other * sine, one * sine + other * cosine], dim=-1) for one, other in halves]


class Transformer(BlockEncoder):
    """L post-norm layers; 12 D² + 13 D parameters per layer at the default sizes."""

    Config = TransformerConfig
    Attention = MultiheadAttention
    step_state_grows = True
    scratch_learning_rate = 3e-4
    """Ours: at 1e-3 it does not train on pairs."""
