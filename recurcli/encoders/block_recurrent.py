"""The Block-Recurrent Transformer (Hutchins et al., Block-Recurrent Transformers, NeurIPS 2022), as an encoder.

A text is cut into blocks of W tokens. A token attends to itself and to the W tokens before it (section 3). In one layer, block
n also reads S state vectors c_n, and then makes c_{n+1} from them (section 3.1):

    tokens   h' = h + W_o [ softmax(Q K^T) V ; softmax(Q_c K_s^T) V_s ]          vertical; then the feed-forward network
    state    a  = [ softmax(Q_s K_s^T) V_s ; softmax(Q_e K^T) V ]                horizontal; K, V of the block and W before it
             c_{n+1} = gate(c_n, a)                                              in place of a residual sum
    fixed    gate(c, a) = g ∘ c + (1 - g) ∘ (W_z a + b_z),      g = σ(b_g)                                      section 3.3
    lstm     gate(c, a) = σ(W_f a + b_f + 1) ∘ c + σ(W_i a + b_i - 1) ∘ tanh(W_z a + b_z)                       section 3.3

Q, Q_c, K and V are linear maps of the normalised tokens; Q_s, Q_e, K_s and V_s of LayerNorm(c) + state IDs (section 3.2).
Tokens and state share the keys and values of each (section 3.1). With `state_feed_forward` (the paper's dual; skip is without
it) c_{n+1} is gated once more, with a = activation(W_1 LayerNorm(c_{n+1}) + b_1). c_0, drawn with a standard deviation of 0.1,
and the IDs, drawn with 1, are learned, as in the released code.

Ours: scores are divided by sqrt(K) and biases are kept, where the released code normalises queries and keys and has no biases;
b_g begins at 1, and W_z, W_i and W_f as other weights here. All else is Transformer-XL's (`recurcli.encoders.transformer_xl`):
lags in place of T5's biases of positions, no gradient to the tokens before a block, RSA's matrices if `rsa` in the attention to
tokens, and both directions inside a block unless `causal`. The paper's configuration single is not here.

Gradients go through the states of all blocks. `carry` keeps c_n of the last block and what makes c_{n+1}, and the next window
begins with that step, so that the weights of the state are trained in windows of one block too.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import BlockRecurrentConfig
from recurcli.encoders.encoder import LayerStats
from recurcli.encoders.transformer_xl import (
    SegmentAttention,
    SegmentCache,
    Segments,
    TransformerXL,
    WindowMemory,
    rows_of,
)
from recurcli.layers import normal_
from recurcli.ops.attention import mask_or_full
from recurcli.ops.chunks import split


class StateGate(nn.Module):
    """The gates of the equations above: c (B, S, D) and a (B, S, A) -> (B, S, D)."""

    def __init__(self, size: int, hidden_size: int, *, fixed: bool) -> None:
        super().__init__()
        self.candidate = nn.Linear(size, hidden_size if fixed else 3 * hidden_size)  # W_z, and W_i and W_f below it
        nn.init.xavier_uniform_(self.candidate.weight)
        nn.init.zeros_(self.candidate.bias)
        self.keep = nn.Parameter(torch.ones(hidden_size)) if fixed else None  # b_g

    def forward(self, state: Tensor, attended: Tensor) -> Tensor:
        candidate = self.candidate(attended).to(state.dtype)
        if self.keep is not None:
            return torch.lerp(state, candidate, torch.sigmoid(-self.keep))  # 1 - σ(b_g) of the candidate
        candidate, enter, forget = candidate.chunk(3, dim=-1)
        return torch.sigmoid(forget + 1) * state + torch.sigmoid(enter - 1) * candidate.tanh()


class RecurrentState(nn.Module):
    """The horizontal direction: c_n and the keys and values of a block -> c_{n+1}."""

    def __init__(self, config: BlockRecurrentConfig) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.num_heads * config.size_of_head
        fixed = config.gate == "fixed"
        self.num_heads = config.num_heads
        self.initial = nn.Parameter(normal_(torch.empty(config.num_states, size), std=0.1))
        self.ids = nn.Parameter(normal_(torch.empty(config.num_states, size), std=1.0))
        self.norm = nn.LayerNorm(size)
        self.project = nn.Linear(size, 4 * inner)  # Q_s, Q_e, K_s, V_s
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.gate = StateGate(2 * inner, size, fixed=fixed)
        self.inner: nn.Sequential | None = None
        if config.state_feed_forward:
            activation = nn.GELU() if config.activation == "gelu" else nn.ReLU()
            self.inner = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, config.inner_size), activation)
            self.inner_gate = StateGate(config.inner_size, size, fixed=fixed)

    def projected(self, state: Tensor) -> tuple[Tensor, ...]:
        """Return c (B, S, D), and its Q_s, Q_e, K_s and V_s (H, B, S, K)."""
        parts = self.project(self.norm(state) + self.ids).unflatten(-1, (4, self.num_heads, -1))
        return state, *parts.permute(2, 3, 0, 1, 4).unbind()

    def step(self, projected: tuple[Tensor, ...], block: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return c_{n+1} from c_n, both `projected`. `block` has keys and values (H, B, C, K), and what is real (B, C)."""
        key, value, real = block
        state, own_query, query, own_key, own_value = projected
        own = F.scaled_dot_product_attention(own_query, own_key, own_value)
        attended = F.scaled_dot_product_attention(query, key, value, mask_or_full(real)[:, None])
        both = torch.cat([own, attended]).permute(1, 2, 0, 3).flatten(-2)  # (B, S, 2 H K)
        updated = self.gate(state, both)
        if self.inner is not None:
            updated = self.inner_gate(updated, self.inner(updated))
        return self.projected(updated)


class WindowAttention(SegmentAttention):
    """Transformer-XL's attention, which here reaches back W tokens from each token: (B, T, D) -> (B, T, D)."""

    def __init__(self, config: BlockRecurrentConfig) -> None:
        super().__init__(config)
        self.reach = config.window


class RecurrentAttention(WindowAttention):
    """The attention of the layer with the state, to tokens and to the state: (B, T, D) -> (B, T, D)."""

    def __init__(self, config: BlockRecurrentConfig) -> None:
        super().__init__(config)
        inner = config.num_heads * config.size_of_head
        self.state_query = nn.Linear(config.hidden_size, inner)  # Q_c
        self.output = nn.Linear(2 * inner, config.hidden_size)
        nn.init.xavier_uniform_(self.state_query.weight)
        for bias in (self.state_query.bias, self.output.bias):
            nn.init.zeros_(bias)
        self.state = RecurrentState(config)
        self.window = config.window

    def with_states(
        self, mixed: Tensor, segments: Segments, x: Tensor, cache: SegmentCache | WindowMemory | None
    ) -> Tensor:
        query = self.state_query(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, K)
        rows = rows_of(split(query, mixed.shape[2]))  # (H, R, W, K)
        key, value = self.states(segments, x, cache)
        return torch.cat([mixed, F.scaled_dot_product_attention(rows, key, value)])  # (2 H, R, W, K)

    def states(self, segments: Segments, x: Tensor, cache: SegmentCache | WindowMemory | None) -> tuple[Tensor, ...]:
        """Return K_s and V_s (H, R, S, K) of the state before each block.

        A SegmentCache then holds the state before the next token, and a WindowMemory that before the last block.
        """
        key, value, real = segments.key, segments.value, segments.real
        if real is None:
            real = torch.ones(key.shape[1:3], dtype=torch.bool, device=x.device)
        if isinstance(cache, SegmentCache) and cache.states is not None:
            state = cache.states
        elif isinstance(cache, WindowMemory) and cache.recurrent is not None:
            state = self.after(*cache.recurrent)
        else:
            state = self.state.projected(self.state.initial.expand(len(x), -1, -1))
        if isinstance(cache, SegmentCache):
            cache.states = self.state.step(state, (key, value, real)) if cache.inputs is None else state
            return state[3:]
        pieces = (
            part.view(*part.shape[:-3], len(x), -1, *part.shape[-2:]).movedim(-3, 0)
            for part in (key, value, real[..., None])
        )
        blocks = [(key, value, real[..., 0]) for key, value, real in zip(*pieces, strict=True)]  # (H, B, C, K), (B, C)
        states = [state]
        for block in blocks[:-1]:
            states.append(self.state.step(states[-1], block))
        if cache is not None:
            last = (x.shape[1] - 1) % self.window + 1
            read = torch.cat([cache.states, x.detach()], dim=1)
            cache.recurrent = states[-1][0].detach(), read[:, -last - self.window :]
        keys, values = (torch.stack(parts, dim=2).flatten(1, 2) for parts in list(zip(*states, strict=True))[3:])
        return keys, values

    def after(self, state: Tensor, read: Tensor) -> tuple[Tensor, ...]:
        """Return the next state c_{n+1} (B, S, D), `projected`.

        `state` is c_n (B, S, D). `read` has the inputs of this attention in block n and in the W tokens before it (B, C, D).
        """
        key, value = (part.transpose(0, 1) for part in self.project_memory(read))
        real = torch.ones(read.shape[:2], dtype=torch.bool, device=read.device)
        return self.state.step(self.state.projected(state), (key, value, real))

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `kept`, the mean of σ(b_g), if the gates are fixed, and the statistics of the attention to tokens."""
        keep = self.state.gate.keep
        return {**({} if keep is None else {"kept": keep.sigmoid().mean().item()}), **super().stats(x, mask)}


class BlockRecurrentTransformer(TransformerXL):
    """L layers, of which one has a recurrent state: 8 D² parameters more than the others, without its feed-forward network.

    `step` also keeps c_n and its projections, 5 S D numbers a text; the token that ends a block makes c_{n+1} too.
    """

    Config = BlockRecurrentConfig
    Attention = WindowAttention
    export_obstacle = "it runs a loop over the blocks, and a graph has one length"

    def __init__(self, config: BlockRecurrentConfig) -> None:
        super().__init__(config)
        self.layers[config.place_of_recurrence].attention = RecurrentAttention(config)
