"""The encoder layers of the Informer (Zhou et al., Informer: Beyond Efficient Transformer, 2021): ProbSparse attention.

    y_i = softmax(q_i K^T / sqrt(K)) V       for the u = c ⌈ln n⌉ queries of largest M_i         eqs. 3 and 4
    y_i = mean of V                          for the others

M_i is how far the largest score of query i is above its mean score, over a sample of u keys; n is the number of real tokens
of the row. The released code draws a sample for each query in each step, and counts padding; distilling between layers is
for time series and is left out. Ours: pre-norm layers with sinusoidal positions, the mean over the sampled keys, and one
sample of distinct real keys for each head and layer, always the same.
Shapes: B batch, T positions, D hidden size, H heads, K head size.
"""

from itertools import count

import torch
from torch import Tensor

from recurcli.encoders.config import InformerConfig
from recurcli.encoders.encoder import BlockEncoder
from recurcli.layers import SelfAttention, softmax_attention
from recurcli.ops.prob_sparse import prob_sparse_attention, query_count
from recurcli.ops.seeded import draw_seeds


class ProbSparseAttention(SelfAttention):
    """ProbSparse attention, in which the sharpest queries attend: (B, T, D) -> (B, T, D). Projections have biases.

    A query whose M_i ties with another's, but for rounding, can be chosen or not with the rounding of its projection.
    """

    seeds: Tensor
    """The seed of each head's sample of keys: (H,), int64."""

    def __init__(self, config: InformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.factor = config.sampling_factor
        self.min_effective_length = next(length for length in count(1) if query_count(length, self.factor) < length)
        self.register_buffer("seeds", draw_seeds(config.num_heads))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if not torch.compiler.is_exporting() and query.shape[2] < self.min_effective_length:  # every query attends
            return softmax_attention(query, key, value, mask)
        return prob_sparse_attention(query, key, value, mask, self.seeds, self.factor)


class Informer(BlockEncoder):
    """L layers with as many parameters as the Transformer's."""

    Config = InformerConfig
    Attention = ProbSparseAttention
