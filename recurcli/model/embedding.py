"""The token embedding.

Shapes: B batch, T positions, D hidden, V vocabulary, W columns of the token embedding.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.layers.cached import CachedMap
from recurcli.layers.dropout import Dropout
from recurcli.layers.initial import normal_
from recurcli.layers.positions import sinusoidal_positions
from recurcli.model.config import NgramEmbeddingConfig
from recurcli.model.ngrams import NgramEmbedding
from recurcli.ops.orthogonal import orthonormal


def _orthonormal_table(parameters: Sequence[Tensor]) -> list[Tensor]:
    (weight,) = parameters
    return [orthonormal(weight) * math.sqrt(max(weight.shape) / 2)]


def in_both_texts(ids: Tensor, second: Tensor, vocab_size: int) -> Tensor:
    """Return a bool mask (B, T): True at each token of `ids` (B, T) that also occurs in the other text of its pair.

    `second` (B, T) is True in the second text.
    """
    # The last column takes the tokens of the other side; it is never read.
    seen = torch.zeros(ids.shape[0], vocab_size + 1, dtype=torch.bool, device=ids.device)
    sides = (torch.where(side, ids, vocab_size) for side in (second, ~second))
    in_second, in_first = (seen.scatter(1, side, True).gather(1, ids) for side in sides)
    return (second & in_first) | (~second & in_second)


class TokenEmbedding(nn.Module):
    """Looks up one row of `table()` (V, W) per token and applies dropout.

    - W is D. With `concatenate_positions` W is D/2, and sinusoidal positions are the other half (TransJect, section 3).
    - `weight` (V, W) is initialised as N(0, 1/W) [ours]. A row then has a norm near 1, and a head that predicts tokens with the
      rows as output weights has small initial logits.
    - With `scaled` or `concatenate_positions`, rows are scaled by sqrt(W/2), the norm of a position vector. Otherwise the
      positions would dominate. (Vaswani et al., section 3.4, scale by sqrt(W) for the same reason.) Encoders without positions
      learn faster from it too [ours].
    - `segments` and `matches` add a learned vector (D,), at first zero, to the tokens after the first `separator_id`, and to
      those of a pair that stand in both texts (not to `unknown_id`, which stands for different words).
    - `ngrams` adds the embeddings of the n-grams that end at each token.
    - With `orthonormal`, the table has orthonormal columns, computed from `weight` and scaled by sqrt(V/2) (TransJect), so
      that a row also has the norm sqrt(W/2). If V < W, the rows are orthonormal instead, scaled to that norm [ours].
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        dropout: float = 0.0,
        concatenate_positions: bool = False,
        scaled: bool = False,
        orthonormal: bool = False,
        separator_id: int = -1,
        unknown_id: int = -1,
        segments: bool = False,
        matches: bool = False,
        ngrams: NgramEmbeddingConfig | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.concatenate_positions = concatenate_positions
        width = hidden_size // 2 if concatenate_positions else hidden_size
        self.weight = nn.Parameter(normal_(torch.empty(vocab_size, width), std=width**-0.5))
        self.scale = math.sqrt(width / 2) if concatenate_positions or scaled else 1.0
        self.frozen = False
        """Whether some rows of `weight` are never trained. Weight decay must leave `weight` alone then."""
        self.orthonormal_table = CachedMap(_orthonormal_table) if orthonormal else None
        self.separator_id = separator_id
        self.unknown_id = unknown_id
        self.second_text = nn.Parameter(torch.zeros(hidden_size)) if segments else None
        self.match = nn.Parameter(torch.zeros(hidden_size)) if matches else None
        self.ngrams = (
            None if ngrams is None else NgramEmbedding(hidden_size, ngrams.lengths, ngrams.buckets, ngrams.dropout)
        )
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings: ids (B, T) -> (B, T, D)."""
        plain = self.orthonormal_table is None
        x = F.embedding(ids, self.weight) * self.scale if plain else F.embedding(ids, self.table())
        if self.concatenate_positions:
            positions = sinusoidal_positions(x.new_empty(1, ids.shape[1], self.hidden_size - x.shape[-1]))
            x = torch.cat([x, positions.expand(ids.shape[0], -1, -1)], dim=-1)  # (B, T, D)
        if self.second_text is not None or self.match is not None:
            x = self._mark_pairs(x, ids)
        x = self.dropout(x)
        return x if self.ngrams is None else x + self.ngrams(ids)

    def _mark_pairs(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return `x` (B, T, D) plus the learned vectors of second texts and of matches; ids (B, T)."""
        second = (ids == self.separator_id).cumsum(dim=1) > 0
        if self.second_text is not None:
            x = x + second.unsqueeze(2) * self.second_text
        if self.match is not None:
            matches = in_both_texts(ids, second, len(self.weight)) & (ids != self.unknown_id)
            x = x + matches.unsqueeze(2) * self.match
        return x

    def table(self) -> Tensor:
        """Return the vectors (V, W) of all tokens."""
        return self.weight * self.scale if self.orthonormal_table is None else self.orthonormal_table([self.weight])[0]

    def output_weight(self) -> Tensor:
        """Return the output weights (V, W) of a head that predicts tokens: the table with rows of norm near 1 [ours]."""
        return self.weight if self.orthonormal_table is None else self.table() * (self.weight.shape[1] / 2) ** -0.5

    def use_vectors(self, vectors: Tensor, known: Tensor, *, freeze: bool = False) -> None:
        """Copy pre-trained `vectors` (V, W) where `known` (V,) is True, scaled to the mean norm of the initial rows.

        With `freeze` these rows have a gradient of 0 from then on. The others, which are random, are trained.
        """
        with torch.no_grad():
            scale = self.weight.norm(dim=1).mean() / vectors[known].norm(dim=1).mean().clamp_min(1e-12)
            self.weight[known] = vectors[known].to(self.weight) * scale
        if freeze:
            self.frozen = True
            self.weight.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient.masked_fill(known.to(gradient.device)[:, None], 0.0)
            )
