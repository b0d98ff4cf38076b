"""Embeddings of token n-grams, which share one hashed table.

Shapes: B batch, T positions, D hidden, L lengths, H buckets.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.layers.dropout import Dropout

_PRIME = (1 << 31) - 1
_FACTOR, _SPREAD = 950706376, 742938285
"""Multipliers modulo 2^31 - 1 (Fishman & Moore, SIAM J. Sci. Stat. Comput., 1986)."""


def ngram_buckets(ids: Tensor, lengths: Sequence[int], buckets: int) -> Tensor:
    """Return the buckets (B, T, L) of the n-grams that end at each token of `ids` (B, T), one for each of `lengths`.

    A bucket is a polynomial in the ids modulo 2^31 - 1, then modulo `buckets`; different n-grams may share one. Tokens
    before the first are one symbol that stands nowhere else. No product exceeds 2^62, so any device gives the same.
    """
    found = []
    for length in lengths:
        hashes = torch.full_like(ids, length)
        for back in range(length - 1, -1, -1):
            token = F.pad(ids, (back, 0), value=-1)[:, : ids.shape[1]]
            hashes = (hashes * _FACTOR + token + 2) % _PRIME
        found.append(hashes * _SPREAD % _PRIME % buckets)
    return torch.stack(found, dim=2)


class NgramEmbedding(nn.Module):
    """Sums the vectors of the n-grams that end at a token, and applies dropout.

    Bags of hashed n-grams are fastText's (Joulin et al., EACL 2017, section 2.2); one for each token is ours.
    The table (H, D) is zero at first, and its gradient is sparse.
    """

    def __init__(self, hidden_size: int, lengths: Sequence[int], buckets: int, dropout: float) -> None:
        super().__init__()
        self.lengths = tuple(lengths)
        self.table = nn.Parameter(torch.zeros(buckets, hidden_size))
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the sums: ids (B, T) -> (B, T, D)."""
        buckets = ngram_buckets(ids, self.lengths, len(self.table))
        return self.dropout(F.embedding(buckets, self.table, sparse=True).sum(dim=2))
