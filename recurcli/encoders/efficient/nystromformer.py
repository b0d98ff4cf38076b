"""Nyströmformer (Xiong et al., Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention, 2021).

softmax(Q K̃^T / sqrt(K)) pinv(softmax(Q̃ K̃^T / sqrt(K))) softmax(Q̃ K^T / sqrt(K)) V + convolution(V)      Algorithm 1

The landmarks Q̃ and K̃ are the means of segments (`recurcli.ops.nystrom`). Ours: segments of each row's real tokens, whose sizes
differ by one at most, where the paper takes T to be a multiple of M; the depth-wise convolution is off by default.
"""

from torch import Tensor, nn

from recurcli.encoders.config import NystromformerConfig
from recurcli.encoders.encoder import BlockEncoder, LayerStats
from recurcli.layers import SelfAttention
from recurcli.ops.attention import attention_weights
from recurcli.ops.nystrom import nystrom_attention


class NystromAttention(SelfAttention):
    """Softmax attention approximated with M landmarks, in O(T M): (B, T, D) -> (B, T, D)."""

    def __init__(self, config: NystromformerConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.num_landmarks, self.iterations = config.num_landmarks, config.iterations
        heads, width = config.num_heads, config.convolution_size
        self.convolution = (
            None
            if width is None
            else nn.Conv2d(heads, heads, (width, 1), padding=(width // 2, 0), groups=heads, bias=False)
        )

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        landmarks, iterations = self.num_landmarks, self.iterations
        mixed = nystrom_attention(query, key, value, mask, num_landmarks=landmarks, iterations=iterations)
        if self.convolution is None:
            return mixed
        if mask is not None:
            value = value.masked_fill(~mask[:, None, :, None], 0.0)
        convolved: Tensor = self.convolution(value)
        return mixed + convolved

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention` (B, H, T, T), the softmax weights that are approximated; the approximation may be negative."""
        query, key, _ = self.project(x)
        return {"attention": attention_weights(query, key, mask)}


class Nystromformer(BlockEncoder):
    """L layers; as many parameters as the Transformer, and H times the size of the convolution."""

    Config = NystromformerConfig
    Attention = NystromAttention
