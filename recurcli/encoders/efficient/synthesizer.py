"""The Synthesizer (Tay et al., Synthesizer: Rethinking Self-Attention for Transformer Models, 2021): weights without queries.

    dense        softmax(W2 ReLU(W1 x_i + b1) + b2) V, the first T of T_max scores                              section 3.1
    random       softmax(R) V,          R (H, T_max, T_max) learned                                             section 3.2
    factorised   softmax(R1 R2^T) V,    R1, R2 (H, T_max, r) learned                                            section 3.3

The softmax is over real tokens. W1 maps to the size of a head (ours). All kinds take O(T²) time and memory. Shapes: B batch, T
positions, H heads, K head size, r rank.
"""

import torch
from torch import Tensor, nn

from recurcli.encoders.config import SynthesizerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention, key_mask, normal_


class SynthesizedAttention(SelfAttention):
    """Attention with weights not from queries and keys: (B, T, D) -> (B, T, D) for T of at most `max_length`.

    The entries of R start as N(0, 1), and so do those of R1 R2^T in variance (ours): at the start heads differ.
    """

    def __init__(self, config: SynthesizerConfig) -> None:
        heads, size, length = config.num_heads, config.size_of_head, config.max_length
        super().__init__(config.hidden_size, heads, size, projections=2 if config.kind == "dense" else 1)
        self.kind = config.kind
        if config.kind == "dense":
            self.score_weight = nn.Parameter(normal_(torch.empty(length, heads, size), std=size**-0.5))
            self.score_bias = nn.Parameter(torch.zeros(length, heads))
        elif config.kind == "random":
            self.random = nn.Parameter(normal_(torch.empty(heads, length, length), std=1.0))
        else:
            std = config.rank**-0.25
            self.left = nn.Parameter(normal_(torch.empty(length, heads, config.rank), std=std))
            self.right = nn.Parameter(normal_(torch.empty(length, heads, config.rank), std=std))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        weights = self.weights(query, mask).to(value.dtype)
        return weights @ value

    def weights(self, inner: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention weights (B or 1, H, T, T). `inner` (B, H, T, K) is W1 x + b1 of the dense kind."""
        length = inner.shape[2]
        if self.kind == "dense":
            scores = torch.einsum("bhnd,thd->bhnt", inner.relu(), self.score_weight[:length])
            scores = scores + self.score_bias[:length].mT[:, None]
        elif self.kind == "random":
            scores = _corner(self.random, length)[None]
        else:
            scores = torch.einsum("nhr,thr->hnt", self.left[:length], self.right[:length])[None]
        kept = key_mask(mask)
        if kept is not None:
            scores = scores.masked_fill(~kept, -torch.inf)
        return scores.softmax(dim=-1)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, T), the weights."""
        inner, _, _ = self.project(x)
        return {"attention": self.weights(inner, mask).expand(len(x), -1, -1, -1)}


def _corner(x: Tensor, length: int) -> Tensor:
    """Return x[:, :length, :length] of x (H, T_max, T_max)."""
    if not torch.compiler.is_exporting():
        return x[:, :length, :length]
    # The layout of a slice differs if length is T_max, so that no graph would serve all lengths.
    first = torch.arange(length, device=x.device)
    return x.index_select(1, first).index_select(2, first)


class Synthesizer(BlockEncoder):
    """L layers; 11 D² + D T_max (dense), 10 D² + H T_max² (random) or 10 D² + 2 H T_max r (factorised) parameters per layer."""

    Config = SynthesizerConfig
    Attention = SynthesizedAttention
