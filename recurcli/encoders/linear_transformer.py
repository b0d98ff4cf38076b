"""The linear Transformer (Katharopoulos et al., Transformers are RNNs, 2020): post-norm, attention in O(T)."""

from dataclasses import dataclass

from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.attention import head_size
from recurcli.layers.feed_forward import Activation, FeedForward
from recurcli.layers.positions import sinusoidal_positions
from recurcli.ops.linear_attention import linear_attention
from recurcli.validation import STRICT


class LinearAttention(nn.Module):
    """Multi-head linear self-attention with biases, the projections of the Transformer's: (B, T, D) -> (B, T, D)."""

    def __init__(self, hidden_size: int, num_heads: int, head_size: int, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.causal = causal
        self.query_key_value = nn.Linear(hidden_size, 3 * num_heads * head_size)
        self.output = nn.Linear(num_heads * head_size, hidden_size)
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        projected = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, K)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, K) each
        mixed = linear_attention(query, key, value, mask, causal=self.causal)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class LinearTransformerLayer(nn.Module):
    """a = LayerNorm(h + attention(h)); h' = LayerNorm(a + feed_forward(a)): (B, T, D) -> (B, T, D)."""

    def __init__(self, config: "LinearTransformer.Config") -> None:
        super().__init__()
        size = config.head_size or head_size(config.hidden_size, config.num_heads)
        inner = config.feed_forward_size or 4 * config.hidden_size
        self.attention = LinearAttention(config.hidden_size, config.num_heads, size, config.causal)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config.hidden_size, inner, config.activation, dropout=0.0)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        h = self.attention_norm(h + self.dropout(self.attention(h, mask)))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))


class LinearTransformer(Encoder):
    """L layers over x + sinusoidal positions; 12 D² + 13 D parameters a layer at the default sizes, the Transformer's.

    Dropout is where Vaswani et al., 2017, section 5.4 have it: on embeddings and sublayers' outputs.
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
        """Nonlinearity of the feed-forward network: gelu or relu."""
        causal: bool = False
        """Whether a position sees itself and the past only, or the whole text."""
        dropout: float = 0.1
        """Probability to drop a unit of the embeddings or of a sublayer's output."""

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
        self.layers = nn.ModuleList(LinearTransformerLayer(config) for _ in range(config.num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.dropout(x + sinusoidal_positions(x))
        for layer in self.layers:
            h = layer(h, mask)
        return h
