"""The Temporal Latent Bottleneck (Didolkar et al., NeurIPS 2022, section 2), as an encoder.

A text is cut into chunks of C tokens. The fast stream reads a chunk at a time. The slow stream, S vectors I_n, is what it knows
of all chunks before, and is updated once after each chunk:

    fast    a = h + SA(h),   b = a + CA(a, I_n),   h' = b + FF(b)       each of L layers
    slow    J = norm(I_n + CA(I_n + I_0, h^L)),   I_{n+1} = norm(J + FF(J))

SA is self-attention inside the chunk, CA(q, s) attention of q to s, and FF a feed-forward network. With `rsa` SA is RSA's
(Huang et al., 2023; `recurcli.encoders.rsa`); its place here is ours.

Ours: attention to the slow stream in every layer, the fast stream's LayerNorms by `norm` as in the Transformer, sinusoidal
positions that begin anew in each chunk, a learned I_0, and both directions inside a chunk unless `causal`. The LayerNorms of
the slow stream stand after its sums. Before them, the stream grows with the number of chunks, until the streams of any two
texts are the same. I_0 is added to its queries. Without it, the S vectors become the same.

Gradients go through I to all chunks of a text. `carry` keeps the last chunk, and the next window begins with its update of I,
so that the weights of the slow stream are trained in windows of one chunk too. Shapes: B batch, T positions, D hidden size, H
heads, K head size.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import LatentBottleneckConfig
from recurcli.encoders.encoder import BlockLayer, CarriedState, Encoder, LayerStats
from recurcli.encoders.rsa import RecurrentAttention
from recurcli.encoders.transformer import MultiheadAttention
from recurcli.layers import Dropout, FeedForward, key_mask, normal_, sinusoidal_positions


class CrossAttention(nn.Module):
    """Softmax attention of x (B, T, D) to a source (B, S, D), with biases: (B, T, D)."""

    def __init__(self, config: LatentBottleneckConfig) -> None:
        super().__init__()
        inner = config.num_heads * config.size_of_head
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        self.query = nn.Linear(config.hidden_size, inner)
        self.key_value = nn.Linear(config.hidden_size, 2 * inner)
        self.output = nn.Linear(inner, config.hidden_size)
        for linear in (self.query, self.key_value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, S) is True at the positions of the source to attend to; None: all."""
        query = self.query(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        key, value = self.key_value(source).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=key_mask(mask), dropout_p=p)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class FastLayer(BlockLayer):
    """One layer of the fast stream."""

    def __init__(self, config: LatentBottleneckConfig) -> None:
        super().__init__(config, RecurrentAttention(config) if config.rsa else MultiheadAttention(config))
        self.state_attention = CrossAttention(config)
        self.state_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, h: Tensor, mask: Tensor | None, states: Tensor) -> Tensor:  # type: ignore[override]
        """Return h' of a chunk h (B, C, D), which reads the `states` (B, S, D)."""
        h = self.added(h, self.attention_norm, lambda x: self.attention(x, mask))
        h = self.added(h, self.state_norm, lambda x: self.state_attention(x, states))
        return self.added(h, self.feed_forward_norm, self.feed_forward)

    def stats(self, h: Tensor, mask: Tensor | None, states: Tensor | None = None) -> LayerStats:  # type: ignore[override]
        """Return the statistics of the attention within the chunk."""
        return super().stats(h, mask)

    def added(self, h: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return h plus the sublayer's output, with the LayerNorm before the sublayer or after the sum."""
        return h + self.dropout(sublayer(norm(h))) if self.pre_norm else norm(h + self.dropout(sublayer(h)))


class Bottleneck(nn.Module):
    """The slow stream."""

    def __init__(self, config: LatentBottleneckConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.initial = nn.Parameter(normal_(torch.empty(config.num_states, size), std=1.0))
        self.attention, self.dropout = CrossAttention(config), Dropout(config.dropout)
        self.norm, self.feed_forward_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, config.inner_size, config.activation, config.feed_forward_dropout)

    def forward(self, states: Tensor, chunk: Tensor, mask: Tensor | None) -> Tensor:
        """Return I_{n+1} (B, S, D) of I_n and the last states of a chunk (B, C, D)."""
        states = self.norm(states + self.dropout(self.attention(states + self.initial, chunk, mask)))
        return self.feed_forward_norm(states + self.dropout(self.feed_forward(states)))


class TemporalLatentBottleneck(Encoder):
    """L layers of 16 D² parameters, and 12 D² of the slow stream, at the default sizes."""

    Config = LatentBottleneckConfig
    checkpoint_obstacle = ""
    adds_positions = True
    scalar_names = ("eta", "nu", "theta")
    scratch_learning_rate = 3e-4
    """Ours: the Transformer's."""
    export_obstacle = "it runs a loop over the chunks, and a graph has one length"
    carry_obstacle = ""

    def __init__(self, config: LatentBottleneckConfig) -> None:
        super().__init__()
        self.chunk_size = config.chunk_size
        self.min_effective_length = config.chunk_size + 1
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(FastLayer(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.hidden_size) if config.norm == "pre" else nn.Identity()
        self.bottleneck = Bottleneck(config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.run(x, mask, self.bottleneck.initial.expand(len(x), -1, -1))[0]

    def carry(self, x: Tensor, state: CarriedState | None = None) -> tuple[Tensor, CarriedState]:
        if state is None:
            states = self.bottleneck.initial.expand(len(x), -1, -1)
        else:
            states = self.bottleneck(state["states"], state["chunk"], None)
        h, states = self.run(x, None, states)
        last = (x.shape[1] - 1) // self.chunk_size * self.chunk_size
        return h, {"states": states.detach(), "chunk": h[:, last:].detach()}

    def run(self, x: Tensor, mask: Tensor | None, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last states of all chunks (B, T, D), and the slow stream before the last chunk (B, S, D).

        `states` is the slow stream before the first chunk.
        """
        positions = sinusoidal_positions(x[:, : self.chunk_size])
        chunks: list[Tensor] = []
        whole: Tensor | None = None
        # `torch.split`, because slices would have a backward pass in O(T²)
        for number, h in enumerate(torch.split(x, self.chunk_size, dim=1)):
            here = slice(number * self.chunk_size, (number + 1) * self.chunk_size)
            real = None if mask is None else mask[:, here]
            h = self.dropout(h + positions[: h.shape[1]])
            for layer in self.layers:
                h = self.apply_layer(layer, h, real, states)
            h = self.final_norm(h)
            if here.stop < x.shape[1]:
                states = self.bottleneck(states, h, real)
            if torch.is_grad_enabled():
                chunks.append(h)
            else:
                whole = h.new_empty(x.shape) if whole is None else whole
                whole[:, here] = h
        return torch.cat(chunks, dim=1) if whole is None else whole, states
