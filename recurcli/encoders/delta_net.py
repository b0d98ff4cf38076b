"""DeltaNet: a memory that replaces what it holds for a key (Yang et al., Parallelizing Linear Transformers with the Delta Rule
over Sequence Length, 2024).

    S_t = a_t (I - β_t k_t k_t^T) S_(t-1) + β_t k_t v_t^T,   o_t = RMSNorm(S_t^T q_t),   y = O o_t
    q, k, v = SiLU(short convolution of W x),  q and k scaled to norm 1,   β = σ(B x)

`gate: scalar` has a_t = exp(-exp(A) softplus(G x_t + b)) (Yang et al., Gated Delta Networks, 2025), else a is 1. With
`negative_eigenvalues` β is 2 σ(B x) (Grazzi et al., Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues,
2025). `products: n` takes n such steps at each position, and decays in the first (Siems et al., DeltaProduct, 2025).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import DeltaNetConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer, initial_decays
from recurcli.layers import ShortConvolution, by_head
from recurcli.ops.matrix_memory import matrix_memory, memory_after


class DeltaNetMixer(Mixer):
    """The memories of H heads; (2 + 2 n) D² parameters and a few a head. Ours: there is no output gate."""

    def __init__(self, config: DeltaNetConfig) -> None:
        super().__init__()
        size, self.causal, self.heads = config.hidden_size, config.causal, config.num_heads
        self.products, self.largest_beta = config.products, 2.0 if config.negative_eigenvalues else 1.0
        self.projection = nn.Linear(size, (1 + 2 * self.products) * size, bias=False)
        """A query, n keys and n values of the first head, then of the second one, and so on."""
        self.beta = nn.Linear(size, self.products * self.heads, bias=False)
        self.convolution = ShortConvolution(self.projection.out_features, config.short_convolution)
        self.gate = None
        if config.gate == "scalar":
            self.gate, (self.log_rate, bias) = nn.Linear(size, self.heads), initial_decays(self.heads)
            self.gate.bias = bias
        self.norm = nn.Parameter(torch.ones(size // self.heads))
        self.to_output = nn.Linear(size, size, bias=False)

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.projection(x), self.beta(x)
        return found if self.gate is None else (*found, self.gate(x))

    def steps(self, projected: Tensor, beta: Tensor, gate: Tensor | None = None) -> tuple[Tensor, ...]:
        """Split the inputs of `recur` by head, after the convolution of `projected`.

        Return q (B, T, H, K), k and v (B, T, n, H, K), a (B, T, H), and β (B, T, n, H).
        """
        vectors = by_head(by_head(projected, self.heads), 1 + 2 * self.products).transpose(-3, -2)
        query, key, value = torch.split(vectors, [1, self.products, self.products], dim=-3)
        beta = self.largest_beta * by_head(torch.sigmoid(beta), self.heads).mT
        decay = torch.ones_like(beta[..., 0, :])
        if gate is not None:
            decay = torch.exp(-self.log_rate.exp() * F.softplus(gate))
        return F.normalize(query.squeeze(-3), dim=-1), F.normalize(key, dim=-1), value, decay, beta

    def recur(self, *parts: Tensor) -> Tensor:
        query, key, value, decay, beta = self.steps(self.convolution(parts[0])[0], *parts[1:])
        more = self.products - 1  # a position is n steps, of which the last is read
        query = F.pad(query[:, :, None], (0, 0, 0, 0, more, 0))
        decay = F.pad(decay[:, :, None], (0, 0, 0, more), value=1.0)
        taken = (part.flatten(1, 2).transpose(1, 2) for part in (query, key, value, decay, beta))
        found = matrix_memory(*taken)[:, :, more :: self.products]
        return self.normed(found.transpose(1, 2))

    def recur_on(
        self, parts: list[Tensor], state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        before, memory = (None, None) if state is None else state
        read, before = self.convolution(parts[0][:, None], before)
        query, key, value, decay, beta = self.steps(read[:, 0], *parts[1:])
        for step in range(self.products):
            own = key[:, step], value[:, step], torch.ones_like(decay) if step else decay, beta[:, step]
            memory = memory_after(memory, *own)
        assert memory is not None
        return self.normed((query[..., None, :] @ memory).squeeze(-2)), (before, memory)

    def normed(self, read: Tensor) -> Tensor:
        """Apply RMSNorm to what the queries read, for each head: (…, H, K) -> (…, D)."""
        return F.rms_norm(read, read.shape[-1:], self.norm.to(read.dtype), eps=1e-5).flatten(-2)


class DeltaNet(BlockEncoder):
    """L layers of the Transformer's block with DeltaNet in place of attention (ours); (10 + 2 n) D² parameters per layer."""

    Config = DeltaNetConfig
    Attention = DeltaNetMixer
    adds_positions = False
    export_obstacle = "it runs a loop over the chunks, and a graph has one length"
