"""Repeated texts and ids: within a split, across splits, and with different labels. Compares hashes of the texts."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.inspection.rows import SplitRows, digest

Numbers = NDArray[np.int64]
LISTED = 5
"""Texts, and lines of each, that are listed; all are counted."""


def text_numbers(splits: Sequence[SplitRows]) -> list[Numbers]:
    """Return a number for each row of each split, (rows,): equal texts (or pairs) have equal numbers in all splits."""
    digests = [np.frombuffer(split.texts, dtype=np.uint64) for split in splits]
    numbers = np.unique(np.concatenate(digests), return_inverse=True)[1]
    return np.split(numbers, np.cumsum([len(part) for part in digests])[:-1])


def note_repeated_ids(split: SplitRows) -> None:
    """Add the issue "repeated id" for each row whose id an earlier row has. Rows without an id are ignored."""
    ids = np.frombuffer(split.ids, dtype=np.uint64)
    again = ids != np.frombuffer(digest(""), dtype=np.uint64)
    again[np.unique(ids, return_index=True)[1]] = False
    if again.any():
        split.issues["repeated id"].extend(np.array(split.lines)[again].tolist())


def repeated_texts(split: SplitRows, numbers: Numbers) -> dict[str, Any]:
    """Return the repeated texts of a split, and those with more than one label, as counts and first lines."""
    counts = np.bincount(numbers)
    repeated = np.flatnonzero(counts > 1)
    several_labels = np.flatnonzero(np.bincount(_text_labels(split, numbers) // _factor(split)) > 1)
    lines, labels, names = np.array(split.lines), np.array(split.labels), list(split.label_numbers)
    conflicts = [(lines[rows], np.unique(labels[rows])) for rows in _rows_of_first(numbers, several_labels)]
    return {
        "texts": len(repeated),
        "rows": int((counts[repeated] - 1).sum()),  # beyond each text's first
        "first_lines": [lines[rows][:LISTED].tolist() for rows in _rows_of_first(numbers, repeated)],
        "conflicting_texts": len(several_labels),
        "conflicting_rows": int(counts[several_labels].sum()),
        "first_conflicts": [
            {"lines": where[:LISTED].tolist(), "labels": [names[label] for label in found if label >= 0]}
            for where, found in conflicts
        ],
    }


def shared_texts(splits: Sequence[SplitRows], numbers: Sequence[Numbers]) -> list[dict[str, Any]]:
    """Return the texts that each two splits share, as counts and first lines."""
    overlaps = []
    for (one, first), (two, second) in combinations(zip(splits, numbers, strict=True), 2):
        shared = np.intersect1d(first, second)
        in_first, in_second = np.isin(first, shared), np.isin(second, shared)
        other_labels = 0
        if one.label_counts and two.label_counts:
            pairs = np.setxor1d(_text_labels(one, first, in_first), _text_labels(two, second, in_second))
            other_labels = len(np.unique(pairs // _factor(one)))
        overlap = {
            "first": one.split,
            "second": two.split,
            "texts": len(shared),
            "first_rows": int(in_first.sum()),
            "second_rows": int(in_second.sum()),
            "other_labels": other_labels,  # texts whose labels differ between the splits
        }
        rows = [row[0] for row in _rows_of_first(second, shared)]
        lines = [[one.lines[int(np.argmax(first == second[row]))], two.lines[int(row)]] for row in rows]
        overlaps.append({**overlap, "first_lines": lines})
    return overlaps


def _rows_of_first(numbers: Numbers, wanted: Numbers) -> list[Numbers]:
    """Return the rows of the first LISTED texts among `wanted`, in the order in which they first occur."""
    present = numbers[np.isin(numbers, wanted)]
    _, first = np.unique(present, return_index=True)
    return [np.flatnonzero(numbers == present[row]) for row in sorted(first)[:LISTED]]


def _factor(split: SplitRows) -> int:
    return max(1, len(split.label_numbers))


def _text_labels(split: SplitRows, numbers: Numbers, where: NDArray[np.bool_] | bool = True) -> Numbers:
    """Return each pair of text and label among the labelled rows `where`, once, as one number."""
    labels = np.array(split.labels, dtype=np.int64)
    chosen = (labels >= 0) & where
    return np.unique(numbers[chosen] * _factor(split) + labels[chosen])
