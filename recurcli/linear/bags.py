"""Weighted sums of the rows of a table. `recur export` copies this file, so it imports numpy alone.

Shapes: N bags, M items of all bags, K rows of the table, S values of a row.
"""

import numpy as np
from numpy.typing import NDArray

LONG = 64
"""A bag of more items is added up alone. Ours: of shorter ones the calls of numpy take longer than the sums."""
VALUES_AT_ONCE = 1 << 16
"""Shorter bags are added up together, with at most this many values, which stay in a processor's cache [ours]."""


def sums(
    offsets: NDArray[np.integer],
    rows: NDArray[np.integer],
    table: NDArray[np.float32],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return for each bag the sum (N, S) of the rows of `table` (K, S) that it has, times `weights` (M,); None: times 1.

    Bag i has rows[offsets[i] : offsets[i + 1]]. Its sum does not depend on the other bags.
    """
    lengths = np.diff(offsets)
    found, order = np.zeros((len(lengths), table.shape[1]), np.float32), np.argsort(-lengths, kind="stable")
    num_long, at_once = int((lengths > LONG).sum()), max(1, VALUES_AT_ONCE // table.shape[1])
    for bag in order[:num_long].tolist():
        items = slice(offsets[bag], offsets[bag + 1])
        own = table.take(rows[items], axis=0)
        found[bag] = own.sum(axis=0) if weights is None else weights[items] @ own
    for start in range(num_long, len(order), at_once):
        bags = order[start : start + at_once]  # the longest first
        firsts, left, total = offsets[bags], lengths[bags], np.zeros((len(bags), table.shape[1]), np.float32)
        for place in range(left[0]):  # the items at this place of all bags that have one
            items = firsts[: int((left > place).sum())] + place
            own = table.take(rows[items], axis=0)
            total[: len(items)] += own if weights is None else own * weights[items, None]
        found[bags] = total
    return found


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors (N, S) scaled to norm 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
