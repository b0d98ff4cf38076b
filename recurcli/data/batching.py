"""Rows of different lengths to batches of tensors, with little padding.

Shapes: B batch, T positions.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recurcli.data.tokenizer import Tokens

Rows = NDArray[np.int64]


def bucketed(lengths: Rows, batch_size: int, *, seed: int, epoch: int, pool: int = 50) -> list[Rows]:
    """The batches of one training epoch: indices of rows of similar length, every row exactly once.

    Shuffle all rows, sort by length inside each pool of `pool` batches, cut into batches, shuffle the batches. The same
    (seed, epoch) gives the same batches; one batch may be smaller than `batch_size`.
    """
    draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
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


def collate(tokens: Tokens, rows: Rows, *, pad_id: int, multiple: int = 8) -> tuple[Tensor, Tensor]:
    """`rows` of `tokens` as ids (B, T) int64 and mask (B, T) bool, True at real tokens; padding on the right.

    T is the longest row's length, rounded up to a multiple of `multiple` and at least that.
    """
    starts, lengths = tokens.offsets[rows], tokens.lengths[rows]
    width = max(1, -(-int(lengths.max(initial=0)) // multiple)) * multiple
    positions = np.arange(width)
    mask = positions < lengths[:, None]  # (B, T)
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = tokens.ids[(starts[:, None] + positions)[mask]]
    return torch.from_numpy(ids), torch.from_numpy(mask)
