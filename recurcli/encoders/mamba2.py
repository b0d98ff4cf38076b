"""Mamba-2 (Dao and Gu, Transformers are SSMs, 2024, sections 6 and 7.1): a state space model with one decay for each head.

    S_t = a_t S_(t-1) + Δ_t b_t u_t^T,   o_t = S_t^T c_t + d u_t,   y = O RMSNorm(o_t * SiLU(Z x))
    u, b, c = SiLU(short convolution of W x),   Δ = softplus(G x + g),   a = exp(-Δ exp(A))

b and c are shared by the heads of a direction. With `signed` a is 2 exp(-Δ exp(A)) - 1, in (-1, 1) (Grazzi et al., Unlocking
State-Tracking in Linear RNNs Through Negative Eigenvalues, 2025, section 5).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import Mamba2Config
from recurcli.encoders.encoder import BlockEncoder, Mixer, initial_decays
from recurcli.layers import ShortConvolution, by_head
from recurcli.ops.matrix_memory import matrix_memory, memory_after


class Mamba2Mixer(Mixer):
    """The state space models of H heads; 3 D² + 4 N D parameters, and 2 N D if causal. Ours: u is not larger than x."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__()
        size, self.causal, self.heads = config.hidden_size, config.causal, config.num_heads
        self.signed, self.sides = config.signed, 1 if config.causal else 2
        self.projection = nn.Linear(size, size, bias=False)
        self.keys = nn.Linear(size, self.sides * 2 * config.state_size, bias=False)
        """b and c of the heads that read forwards, then of those that read backwards."""
        self.step_size, (self.log_rate, bias) = nn.Linear(size, self.heads), initial_decays(self.heads)
        self.step_size.bias = bias
        width = config.short_convolution
        self.of_inputs, self.of_keys = (
            ShortConvolution(each.out_features, width) for each in (self.projection, self.keys)
        )
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.gate, self.to_output = (nn.Linear(size, size, bias=False) for _ in range(2))
        self.norm = nn.Parameter(torch.ones(size))

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.projection(x), self.keys(x), self.step_size(x)

    def parts(self, read: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        """Split the convolved inputs by head: return c and Δ b (…, H, N), u (…, H, K), and a (…, H)."""
        key, query = by_head(keys, self.sides).repeat_interleave(self.heads // self.sides, -2).chunk(2, dim=-1)
        step = F.softplus(step)
        decay = torch.exp(-step * self.log_rate.exp())
        decay = 2 * decay - 1 if self.signed else decay
        return query, key * step[..., None], by_head(read, self.heads), decay

    def recur(self, *parts: Tensor) -> Tensor:
        read, keys, step = parts
        query, key, value, decay = self.parts(self.of_inputs(read)[0], self.of_keys(keys)[0], step)
        found = matrix_memory(*(part.transpose(1, 2) for part in (query, key, value, decay)))
        return (found.transpose(1, 2) + self.skip[:, None] * value).flatten(-2)

    def recur_on(self, parts: list[Tensor], state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, keys, memory = state or (None, None, None)
        (read, inputs), (found, keys) = self.of_inputs(parts[0][:, None], inputs), self.of_keys(parts[1][:, None], keys)
        query, key, value, decay = self.parts(read[:, 0], found[:, 0], parts[2])
        memory = memory_after(memory, key, value, decay)
        states = (query[..., None, :] @ memory).squeeze(-2) + self.skip[:, None] * value
        return states.flatten(-2), (inputs, keys, memory)

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        gated = states * F.silu(self.gate(x)).to(states.dtype)
        found: Tensor = self.to_output(
            F.rms_norm(gated, gated.shape[-1:], self.norm.to(gated.dtype), eps=1e-5).to(x.dtype)
        )
        return found


class Mamba2(BlockEncoder):
    """L layers of the Transformer's block with Mamba-2 in place of attention (ours); 11 D² + 4 N D parameters per layer."""

    Config = Mamba2Config
    Attention = Mamba2Mixer
    adds_positions = False
    export_obstacle = "it runs a loop over the chunks, and a graph has one length"
