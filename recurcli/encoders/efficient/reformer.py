"""The Reformer (Kitaev, Kaiser & Levskaya, Reformer: The Efficient Transformer, 2020): shared-QK LSH attention in O(T log T).

    k_j = q_j / |q_j|                                                 section 2, shared-QK Transformer
    bucket of a token = argmax([x R; -x R]), x = q                    section 2, locality-sensitive hashing
    P_i = { j : ⌊s_i / m⌋ - 1 <= ⌊s_j / m⌋ <= ⌊s_i / m⌋ }             eq. 5, s_i the place of token i sorted by bucket
    y_i = softmax over j in P_i of (q_i · k_j / sqrt(K)) applied to v_j, for itself less 1e5

Several rounds are joined as in eq. 6, but a key that two rounds find counts twice (appendix A divides by the count). Reversible
layers (section 3), which save memory in deep networks, are left out. Ours: pre-norm layers with sinusoidal positions, keys
divided by sqrt(K), that count, and rotations R that are drawn once and saved with the weights, where the released code draws
them anew in each step.
Shapes: B batch, T positions, D hidden size, H heads, K head size, m chunk size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.encoders.config import ReformerConfig
from recurcli.encoders.encoder import BlockEncoder
from recurcli.layers import SelfAttention, normal_
from recurcli.ops.attention import text_lengths
from recurcli.ops.lsh_attention import angular_buckets, bucket_counts, lsh_attention, shared_attention
from recurcli.ops.precision import without_autocast


class LSHAttention(SelfAttention):
    """Attention among tokens of one LSH bucket, by the equations above: (B, T, D) -> (B, T, D). Projections have biases.

    The number of buckets of a row is 2^⌊log2(2 n / m)⌋ for its n real tokens. Texts of at most m tokens have one chunk, so
    they need no hash. A query that lies between two buckets can change its bucket with the rounding of its projection.
    """

    rotations: Tensor
    """R of each head and round, for the largest number of buckets: (H, rounds, K, max_buckets / 2)."""

    def __init__(self, config: ReformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head, projections=2)
        self.chunk_size = config.chunk_size
        self.max_buckets = config.max_buckets
        shape = config.num_heads, config.num_hashes, config.size_of_head, config.max_buckets // 2
        self.register_buffer("rotations", normal_(torch.empty(shape), std=1.0))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys of length 1 and values (B, H, T, K) of x (B, T, D)."""
        query, key, value = super().project(x)
        return query, F.normalize(key, dim=-1), value

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if not torch.compiler.is_exporting() and query.shape[2] <= self.chunk_size:
            return shared_attention(query, key, value, mask)
        return lsh_attention(query, key, value, self.buckets(query, mask), mask, self.chunk_size)

    def buckets(self, query: Tensor, mask: Tensor | None) -> Tensor:
        """Return the buckets (B, H, rounds, T) of `query` (B, H, T, K), computed in full precision."""
        length = query.shape[2]
        counts = bucket_counts(text_lengths(mask, query), self.chunk_size, self.max_buckets)
        columns = self.max_buckets // 2 if torch.compiler.is_exporting() else max(1, length // self.chunk_size)
        with without_autocast(query):
            return angular_buckets(query.to(self.rotations.dtype), self.rotations[..., :columns], counts)


class Reformer(BlockEncoder):
    """L layers with D² + D parameters less than the Transformer's each, at the default sizes, because Q = K."""

    Config = ReformerConfig
    Attention = LSHAttention
