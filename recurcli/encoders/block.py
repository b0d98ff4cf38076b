"""The post-norm block that several encoders share. Each encoder's module adds its attention.

    x'  = dropout(x + sinusoidal positions)
    a   = LayerNorm(h + dropout(attention(h)))
    h'  = LayerNorm(a + dropout(feed_forward(a)))            post-norm; dropout as in Vaswani et al., 2017, section 5.4

Shapes: B batch, T positions, D hidden size, H heads, K head size, L layers.
"""

from collections.abc import Callable

from torch import Tensor, nn

from recurcli.encoders.config import BlockConfig
from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.layers.attention import SelfAttention
from recurcli.layers.dropout import Dropout
from recurcli.layers.feed_forward import FeedForward
from recurcli.layers.positions import sinusoidal_positions


class PostNormLayer(nn.Module):
    """The last two equations above, for any attention: (B, T, D) -> (B, T, D); `mask` (B, T) is True at real tokens."""

    def __init__(self, config: BlockConfig, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(
            config.hidden_size, config.inner_size, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        h = self.attention_norm(h + self.dropout(self.attention(h, mask)))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))

    def stats(self, h: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the statistics of the attention."""
        return self.attention.stats(h, mask)


class BlockEncoder(Encoder):
    """Sinusoidal positions, then L layers.

    TokenEmbedding scales the embeddings, because `adds_positions` is True (Vaswani et al., section 3.4).
    """

    adds_positions = True

    def __init__(self, config: BlockConfig, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layer() for _ in range(config.num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.dropout(x + sinusoidal_positions(x))
        for layer in self.layers:
            h = layer(h, mask)
        return h
