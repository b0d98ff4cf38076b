"""The linear Transformer (Katharopoulos et al., Transformers are RNNs, 2020): post-norm, attention in O(T).

a  = LayerNorm(h + attention(h)),   h' = LayerNorm(a + feed_forward(a)),   h^0 = x + sinusoidal positions
attention: y_i = φ(q_i)^T sum_j φ(k_j) v_j^T / (φ(q_i)^T sum_j φ(k_j)),   eqs. 4 to 7

φ is elu + 1 (eq. 7), relu or exp (`feature_map`).
"""

from torch import Tensor

from recurcli.encoders.config import LinearTransformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention
from recurcli.ops.linear_attention import State, linear_attention, linear_attention_step, linear_attention_weights


class LinearAttention(SelfAttention):
    """Multi-head linear self-attention."""

    def __init__(self, config: LinearTransformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.causal, self.kind = config.causal, config.feature_map

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return linear_attention(query, key, value, mask, causal=self.causal, kind=self.kind)

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return the output (B, D) of the next position x (B, D), and S and Z after it (eqs. 16 to 20)."""
        query, key, value = (part.squeeze(2) for part in self.project(x[:, None]))
        found, after = linear_attention_step(query, key, value, state, kind=self.kind)
        return self.output(found.flatten(1)), after

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, T): φ(q_i) · φ(k_j), normalised to rows that sum to 1."""
        query, key, _ = self.project(x)
        return {"attention": linear_attention_weights(query, key, mask, causal=self.causal, kind=self.kind)}


class LinearTransformer(BlockEncoder):
    """L post-norm layers; 12 D² + 13 D parameters per layer at the default sizes, as in the Transformer."""

    Config = LinearTransformerConfig
    Attention = LinearAttention
