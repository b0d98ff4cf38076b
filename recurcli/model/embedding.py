"""Token ids to vectors.

Shapes: B batch, T positions, D hidden, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.layers.positions import sinusoidal_positions


class TokenEmbedding(nn.Module):
    """One row of `weight` (V, D) for each token, dropout after it.

    Rows start as N(0, 1/D) [ours], so that a row has a norm near 1 and a masked-token head that uses them as output
    weights starts with small logits. With `concatenate_positions` a token has D/2 columns, and Vaswani's sine and
    cosine of the position are the other half (TransJect, section 3).
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        pad_id: int = 0,
        dropout: float = 0.0,
        concatenate_positions: bool = False,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.concatenate_positions = concatenate_positions
        width = hidden_size // 2 if concatenate_positions else hidden_size
        self.weight = nn.Parameter(torch.randn(vocab_size, width) / math.sqrt(width))
        self.pad_id = pad_id
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T) -> (B, T, D)."""
        x = F.embedding(ids, self.weight)
        if self.concatenate_positions:
            positions = sinusoidal_positions(x.new_empty(1, ids.shape[1], self.hidden_size - x.shape[-1]))
            x = torch.cat([x, positions.expand(len(ids), -1, -1)], dim=-1)  # (B, T, D)
        return self.dropout(x)

    def use_vectors(self, vectors: Tensor, known: Tensor) -> None:
        """Take over pre-trained `vectors` (V, D) where `known` (V,) is True, brought to the mean norm of our rows."""
        with torch.no_grad():
            scale = self.weight.norm(dim=1).mean() / vectors[known].norm(dim=1).mean().clamp_min(1e-12)
            self.weight[known] = vectors[known].to(self.weight) * scale
