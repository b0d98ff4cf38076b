"""Weighted sums of the rows of a table. `recur export` copies this file, so it imports numpy alone, and scipy if it is there.

Shapes: N bags, M items of all bags, K rows of the table, S values of a row.
"""

import numpy as np
from numpy.typing import NDArray


def sums(
    offsets: NDArray[np.integer],
    rows: NDArray[np.integer],
    table: NDArray[np.float32],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return for each bag the sum (N, S) of the rows of `table` (K, S) that it has, times `weights` (M,); None: times 1.

    Bag i has rows[offsets[i] : offsets[i + 1]]. A sum does not depend on the other bags.
    """
    factors = np.ones(len(rows), np.float32) if weights is None else weights
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        return sums_by_numpy(offsets, rows, table, factors)
    # rows and offsets are copied where they have not the same type
    bags = csr_matrix((factors, rows.astype(np.int32), offsets.astype(np.int32)), shape=(len(offsets) - 1, len(table)))
    found: NDArray[np.float32] = bags @ table
    return found


def sums_by_numpy(
    offsets: NDArray[np.integer], rows: NDArray[np.integer], table: NDArray[np.float32], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return what `sums` returns, as it is defined."""
    found = np.zeros((len(offsets) - 1, table.shape[1]), np.float32)
    for bag, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        found[bag] = weights[start:end] @ table[rows[start:end]]
    return found


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors (N, S) scaled to norm 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
