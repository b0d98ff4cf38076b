"""The ReZero Transformer (Bachlechner et al., ReZero is All You Need, 2021): no LayerNorm.

    a = h + alpha attention(h),   h' = a + alpha feed_forward(a),   h^0 = x + sinusoidal positions

alpha is initialised with 0. Both sublayers of a layer share one alpha (the paper, section 4).
"""

import torch
from torch import Tensor, nn

from recurcli.encoders.config import ReZeroConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.encoders.transformer import MultiheadAttention
from recurcli.layers import Dropout, FeedForward


class ReZeroLayer(nn.Module):
    """The equations above: (B, T, D) -> (B, T, D). Dropout applies to the outputs of the sublayers."""

    def __init__(self, config: ReZeroConfig) -> None:
        super().__init__()
        self.attention = MultiheadAttention(config)
        self.feed_forward = FeedForward(
            config.hidden_size, config.inner_size, config.activation, config.feed_forward_dropout
        )
        self.alpha = nn.Parameter(torch.tensor(config.alpha_init))
        self.dropout = Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        h = h + self.alpha * self.dropout(self.attention(h, mask))
        return h + self.alpha * self.dropout(self.feed_forward(h))

    def scalars(self) -> dict[str, float]:
        """Return alpha."""
        return {"alpha": self.alpha.item()}

    def stats(self, h: Tensor, mask: Tensor | None) -> LayerStats:
        """Return alpha, and the statistics of the attention."""
        return {"alpha": self.alpha.item(), **self.attention.stats(h, mask)}


class ReZero(BlockEncoder):
    """L ReZero layers; 12 D² + 9 D + 1 parameters per layer at the default sizes."""

    Config = ReZeroConfig

    def build_layer(self, config: ReZeroConfig) -> ReZeroLayer:
        return ReZeroLayer(config)
