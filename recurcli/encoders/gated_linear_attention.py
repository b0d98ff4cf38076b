"""Gated linear attention (Yang et al., Gated Linear Attention Transformers with Hardware-Efficient Training, ICML 2024).

    S_t = diag(a_t) S_(t-1) + k_t v_t^T,   o_t = LayerNorm(q_t S_t),   y = (swish(R x) * o) O
    a_t = σ(W2 W1 x_t + b)^(1/τ)                                           section 4.4, eqs. 3 and 8

Queries and keys have half the size of the values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import GatedLinearAttentionConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.ops.recurrences import LEAST_LOG_GATE, gated_linear_attention


class GatedLinearAttentionMixer(Mixer):
    """The attention of H heads with its gates; 4 D² + 1.5 r D parameters.

    Ours: the LayerNorm of a head has no parameters, and R x no bias, as in the authors' later code (the paper adds b_r).
    """

    def __init__(self, config: GatedLinearAttentionConfig) -> None:
        super().__init__()
        size, self.causal = config.hidden_size, config.causal
        self.key_size = size // 2 // config.num_heads
        self.temperature = config.gate_temperature
        self.rank = config.gate_rank
        self.projection = nn.Linear(size, 2 * size + self.rank, bias=False)
        """Queries, keys and values of the first half of the heads, then of the second one (of all if causal), and W1 x."""
        self.gate = nn.Linear(self.rank, size // 2)
        self.swish, self.to_output = (nn.Linear(size, size, bias=False) for _ in range(2))

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        projected, low = torch.split(self.projection(x), [2 * x.shape[-1], self.rank], dim=-1)
        return projected, F.logsigmoid(self.gate(low)) / self.temperature

    def by_head(self, projected: Tensor, log_gate: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys, values and log gates of `inputs` (…, 2 D) and (…, D / 2): (…, halves, heads, K or V)."""
        sides = 1 if self.causal else 2
        columns = log_gate.shape[-1] // sides
        projected, log_gate = (part.view(*part.shape[:-1], sides, -1) for part in (projected, log_gate))
        parts, heads = torch.split(projected, [columns, columns, 2 * columns], dim=-1), columns // self.key_size
        return tuple(part.view(*part.shape[:-1], heads, -1) for part in (*parts, log_gate))

    def recur(self, *parts: Tensor) -> Tensor:
        return self.normalized(gated_linear_attention(*(part.movedim(1, -2) for part in self.by_head(*parts)))).movedim(
            -2, 1
        )

    def normalized(self, found: Tensor) -> Tensor:
        """Return the LayerNorm of `found` (…, V), with the ε that makes up for queries without their factor 1 / √K."""
        return F.layer_norm(found, found.shape[-1:], eps=1e-5 * self.key_size)

    def recur_on(self, parts: list[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
        query, key, value, log_gate = self.by_head(*parts)
        after = key[..., None] * value[..., None, :]
        if state is not None:
            after = log_gate.clamp(min=LEAST_LOG_GATE).exp()[..., None] * state + after
        return self.normalized((query[..., None, :] @ after).squeeze(-2)).flatten(1), after

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        found: Tensor = self.to_output(F.silu(self.swish(x)) * states.to(x.dtype))
        return found


class GatedLinearAttention(BlockEncoder):
    """L layers of the Transformer's block with gated linear attention (ours); 12 D² parameters per layer."""

    Config = GatedLinearAttentionConfig
    Attention = GatedLinearAttentionMixer
    adds_positions = False
    export_obstacle = "it runs a loop over the chunks, and a graph has one length"
