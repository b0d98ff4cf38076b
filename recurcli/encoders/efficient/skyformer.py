"""Skyformer (Chen et al., Skyformer: Remodel Self-Attention with Gaussian Kernel and Nyström Method, 2021).

C V with C_ij = exp(-|q_i - k_j|² / (2 sqrt(K))), approximated by Nyström's method on [Q; K] with M / 2 landmarks of each

The landmarks are real tokens at positions that depend on the layer's draws and the number of tokens alone; the checkpoint has
the draws (ours; the released code draws at every forward pass). The equations stand in `recurcli.ops.gaussian_attention`.
"""

import torch
from torch import Tensor

from recurcli.encoders.config import SkyformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention
from recurcli.ops.gaussian_attention import DRAWS, attention_kernel, skyformer_attention


class SkyformerAttention(SelfAttention):
    """Kernel attention approximated with M landmarks, in O(T M): (B, T, D) -> (B, T, D)."""

    draws: Tensor
    """The landmark of each segment, for queries and for keys: integers below DRAWS, (2, M / 2)."""

    def __init__(self, config: SkyformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.gamma, self.iterations = config.gamma, config.iterations
        draws = torch.empty(2, config.num_landmarks // 2, dtype=torch.int64)
        self.register_buffer("draws", draws if draws.is_meta else draws.random_(0, DRAWS))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        draws, gamma, iterations = self.draws, self.gamma, self.iterations
        return skyformer_attention(query, key, value, draws, mask, gamma=gamma, iterations=iterations)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, T): the kernel C that is approximated, normalised to rows that sum to 1."""
        query, key, _ = self.project(x)
        kernel = attention_kernel(query, key, mask)
        return {"attention": kernel / kernel.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(kernel.dtype).tiny)}


class Skyformer(BlockEncoder):
    """L layers; as many parameters as the Transformer, and M fixed integers per layer."""

    Config = SkyformerConfig
    Attention = SkyformerAttention
