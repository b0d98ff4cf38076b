"""The Transformer's encoder, post-norm with sinusoidal positions (Vaswani et al., Attention Is All You Need, 2017)."""

from dataclasses import dataclass

from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.attention import MultiHeadAttention, head_size, key_mask
from recurcli.layers.feed_forward import Activation, FeedForward
from recurcli.layers.positions import sinusoidal_positions
from recurcli.validation import STRICT


class TransformerLayer(nn.Module):
    """a = LayerNorm(h + attention(h)); h' = LayerNorm(a + feed_forward(a)): (B, T, D) -> (B, T, D)."""

    def __init__(self, config: "Transformer.Config") -> None:
        super().__init__()
        size = config.head_size or head_size(config.hidden_size, config.num_heads)
        inner = config.feed_forward_size or 4 * config.hidden_size
        self.attention = MultiHeadAttention(config.hidden_size, config.num_heads, size, config.dropout)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config.hidden_size, inner, config.activation, config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, kept: Tensor | None) -> Tensor:
        h = self.attention_norm(h + self.dropout(self.attention(h, kept)))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))


class Transformer(Encoder):
    """L post-norm layers over x + sinusoidal positions; 12 D² + 13 D parameters a layer at the default sizes.

    The embeddings are not scaled here: `adds_positions` has the embedding do it (Vaswani et al., section 3.4).
    """

    adds_positions = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and hidden states."""
        num_layers: int
        """L, the number of layers."""
        num_heads: int = 8
        """H, the attention heads of a layer."""
        head_size: int | None = None
        """K, the size of a head; null: hidden_size / num_heads, which must then be a whole number."""
        feed_forward_size: int | None = None
        """Width of the feed-forward network; null: four times hidden_size."""
        activation: Activation = "gelu"
        """Nonlinearity of the feed-forward network: gelu or relu (the 2017 paper's)."""
        dropout: float = 0.1
        """Probability to drop an attention weight, an inner unit of the feed-forward network, a sublayer's output."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers, num_heads=self.num_heads)
            check_sizes(head_size=1 if self.head_size is None else self.head_size)
            check_sizes(feed_forward_size=1 if self.feed_forward_size is None else self.feed_forward_size)
            check_dropout(self.dropout)
            if self.head_size is None:
                head_size(self.hidden_size, self.num_heads)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kept = key_mask(mask)
        h = self.dropout(x + sinusoidal_positions(x))
        for layer in self.layers:
            h = layer(h, kept)
        return h
