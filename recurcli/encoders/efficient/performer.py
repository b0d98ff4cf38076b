"""The Performer (Choromanski et al., Rethinking Attention with Performers, 2021): softmax attention in O(T) by FAVOR+.

y_i = φ(q_i)^T sum_j φ(k_j) v_j^T / (φ(q_i)^T sum_j φ(k_j)),   φ positive orthogonal random features      section 2

The features of a layer are drawn once, and the checkpoint has them (ours; the paper draws them again during training).
The equations of φ stand in `recurcli.ops.random_features`.
"""

from torch import Tensor

from recurcli.encoders.config import PerformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention
from recurcli.ops.random_features import draw_features, random_feature_attention, random_features


class PerformerAttention(SelfAttention):
    """FAVOR+, in O(T M): (B, T, D) -> (B, T, D). All heads of a layer have the same features."""

    features: Tensor
    """w of φ: (M, K)."""

    def __init__(self, config: PerformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.register_buffer("features", draw_features(config.num_features, config.size_of_head))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return random_feature_attention(query, key, value, self.features, mask)

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, T): φ(q_i) · φ(k_j), normalised to rows that sum to 1."""
        query, key, _ = self.project(x)
        query, key = random_features(query, key, self.features, mask)
        weights = query @ key.mT
        return {"attention": weights / weights.sum(dim=-1, keepdim=True)}


class Performer(BlockEncoder):
    """L layers; as many parameters as the Transformer, and M K fixed numbers per layer."""

    Config = PerformerConfig
    Attention = PerformerAttention
