"""The block that several encoders share. Each encoder's module adds its attention.

    h^0 = dropout(x + sinusoidal positions)                               dropout as in Vaswani et al., 2017, section 5.4
    post-norm (Vaswani et al., 2017)        a  = LayerNorm(h + dropout(attention(h)))
                                            h' = LayerNorm(a + dropout(feed_forward(a)))
    pre-norm (Xiong et al., 2020)           a  = h + dropout(attention(LayerNorm(h)))
                                            h' = a + dropout(feed_forward(LayerNorm(a)))
                                            and one LayerNorm after the last layer

Shapes: B batch, T positions, D hidden size, H heads, K head size, L layers.
"""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import BlockConfig, NormConfig
from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.layers import Dropout, FeedForward, SelfAttention, sinusoidal_positions


class BlockLayer(nn.Module):
    """One layer of the equations above, for any attention: (B, T, D) -> (B, T, D); `mask` (B, T) is True at real tokens.

    `more` is what else the attention takes.
    """

    def __init__(self, config: NormConfig, attention: SelfAttention) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = attention
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(
            config.hidden_size, config.inner_size, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None, *more: object) -> Tensor:
        if self.pre_norm:
            h = h + self.dropout(self.attention(self.attention_norm(h), mask, *more))
            return h + self.dropout(self.feed_forward(self.feed_forward_norm(h)))
        h = self.attention_norm(h + self.dropout(self.attention(h, mask, *more)))
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))

    def stats(self, h: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the statistics of the attention."""
        return self.attention.stats(self.attention_norm(h) if self.pre_norm else h, mask)


class BlockEncoder(Encoder):
    """Sinusoidal positions, then L layers. The TransformerXL, whose attention has positions, has a `forward` of its own.

    TokenEmbedding scales the embeddings, because `adds_positions` is True (Vaswani et al., section 3.4). If the Config has a
    key `max_length`, `forward` raises ValueError for a longer text. Positions after `max_length` that are padding in all texts
    are left out, and their states are 0: a batch may be padded to a length that no text has.
    """

    adds_positions = True
    Attention: ClassVar[type[Any]]
    """The subclass of SelfAttention in each layer; its `__init__` takes the Config."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(self.build_layer(config) for _ in range(config.num_layers))
        pre_norm = isinstance(config, NormConfig) and config.norm == "pre"
        self.final_norm = nn.LayerNorm(config.hidden_size) if pre_norm else nn.Identity()
        self.max_length: int | None = getattr(config, "max_length", None)
        self.full_below = getattr(self.layers[0].attention, "full_below", None)

    def build_layer(self, config: Any) -> nn.Module:
        """Return one layer with initial weights. `config` is the encoder's."""
        return BlockLayer(config, self.Attention(config))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        if self.max_length is not None and length > self.max_length:
            if mask is None or mask[:, self.max_length :].any():
                raise ValueError(f"the input has {length} positions, and the encoder's max_length is {self.max_length}")
            x, mask = x[:, : self.max_length], mask[:, : self.max_length]
        h = self.dropout(x + sinusoidal_positions(x))
        for layer in self.layers:
            h = layer(h, mask)
        h = self.final_norm(h)
        return h if h.shape[1] == length else F.pad(h, (0, 0, 0, length - h.shape[1]))
