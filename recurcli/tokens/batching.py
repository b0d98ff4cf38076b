"""Rows of different lengths to batches of tensors, with little padding.

Shapes: B batch, T positions.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recurcli.tokens.tokenizer import Tokens

Rows = NDArray[np.int64]
WINDOW = 1 << 22
"""Rows that are shuffled together: more would need memory for every row of a text that is larger than memory."""


class TokenRows(Protocol):
    """Rows of token ids, in memory or on the disk."""

    @property
    def lengths(self) -> NDArray[Any]:
        """Tokens a row, (rows,)."""
        ...

    def take(self, rows: Rows) -> Tokens:
        """Some of the rows, in the order of `rows`."""
        ...


def epoch_batches(
    lengths: NDArray[Any], batch_size: int, *, seed: int, epoch: int, first: int = 0, window: int | None = None
) -> Iterator[Rows]:
    """The batches of one training epoch from batch `first` on: every row exactly once, in ceil(rows / batch_size) batches.

    All rows as in `bucketed`; of more than `window` rows (WINDOW), window after window, the windows in a shuffled order.
    """
    window = max(1, (window or WINDOW) // batch_size) * batch_size  # only an epoch's last rows may make a smaller batch
    starts = range(0, len(lengths), window)
    if len(starts) <= 1:
        yield from bucketed(lengths, batch_size, seed=seed, epoch=epoch)[first:]
        return
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    for number in draw.permutation(len(starts)):
        some = lengths[starts[number] : starts[number] + window]
        count = -(-len(some) // batch_size)
        if first < count:
            batches = bucketed(some, batch_size, seed=seed, epoch=epoch, window=int(number))
            yield from (rows + starts[number] for rows in batches[first:])
        first = max(0, first - count)


def bucketed(
    lengths: NDArray[Any], batch_size: int, *, seed: int, epoch: int, window: int | None = None, pool: int = 50
) -> list[Rows]:
    """The batches of one training epoch: indices of rows of similar length, every row exactly once.

    Shuffle all rows, sort by length inside each pool of `pool` batches, cut into batches, shuffle the batches. The same
    (seed, epoch, window) gives the same batches; one batch may be smaller than `batch_size`.
    """
    numbers = [seed, epoch] if window is None else [seed, epoch, window]
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))
    shuffled = draw.permutation(len(lengths))
    batches: list[Rows] = []
    for start in range(0, len(shuffled), pool * batch_size):
        rows = shuffled[start : start + pool * batch_size]
        batches += _cut(rows[np.argsort(lengths[rows], kind="stable")], batch_size)
    return [batches[index] for index in draw.permutation(len(batches))]


def sorted_batches(lengths: Rows, batch_size: int) -> list[Rows]:
    """Batches for inference: longest rows first, so that a lack of memory shows at once; every row exactly once."""
    return _cut(np.argsort(-lengths, kind="stable"), batch_size)


def _cut(rows: Rows, batch_size: int) -> list[Rows]:
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def collate(tokens: TokenRows, rows: Rows, *, pad_id: int, multiple: int = 8) -> tuple[Tensor, Tensor]:
    """`rows` of `tokens` as ids (B, T) int64 and mask (B, T) bool, True at real tokens; padding on the right.

    T is the longest row's length, rounded up to a multiple of `multiple` and at least that.
    """
    taken = tokens.take(rows)
    width = max(1, -(-int(taken.lengths.max(initial=0)) // multiple)) * multiple
    mask = np.arange(width) < taken.lengths[:, None]  # (B, T)
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = taken.ids
    return torch.from_numpy(ids), torch.from_numpy(mask)
