"""The same text again – inside a split, in another split, under another label – found by sorting digests."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.inspection.rows import DIGEST_BYTES, PLACES_KEPT, SplitRows, digest

Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Texts (or pairs) that a split has more than once."""

    texts: int
    """How many different texts are repeated."""
    rows: int
    """Rows beyond each text's first one."""
    first_lines: list[list[int]]
    """The lines of the first of these texts."""
    conflicting_texts: int = 0
    """Texts with more than one label."""
    conflicting_rows: int = 0
    """All their rows."""
    first_conflicts: list[dict[str, Any]]
    """The first of them: `lines` and `labels`."""

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Texts (or pairs) that are in two splits."""

    first: str
    second: str
    texts: int
    first_rows: int
    """Rows of the first split that hold one of them."""
    second_rows: int
    other_labels: int
    """How many of the texts have not the same labels in both."""
    first_lines: list[list[int]]
    """The line in the first split and that in the second, of the first few texts."""

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping."""
        return asdict(self)


def numbered(splits: Sequence[SplitRows]) -> list[Numbers]:
    """A number for each row of each split: equal where the texts are equal, in whatever split."""
    return _numbered([split.texts for split in splits])


def _numbered(digests: Sequence[bytearray]) -> list[Numbers]:
    keys = np.concatenate([np.frombuffer(bytes(part), dtype=np.uint64).reshape(-1, 2) for part in digests])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    starts = np.ones(len(keys), dtype=np.int64)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    numbers = np.empty(len(keys), dtype=np.int64)
    numbers[order] = np.cumsum(starts) - 1
    return np.split(numbers, np.cumsum([len(part) // DIGEST_BYTES for part in digests])[:-1])


def repeated_ids(split: SplitRows) -> list[int]:
    """The lines of rows, in their order, whose id an earlier row has; rows without an id are none of them."""
    if not split.ids:
        return []
    numbers, none = _numbered([split.ids, bytearray(digest(""))])
    again = numbers != none
    again[np.unique(numbers, return_index=True)[1]] = False
    return np.array(split.lines)[again].tolist()


def repeats(split: SplitRows, numbers: Numbers) -> Repeats:
    """What the split has more than once."""
    counts = np.bincount(numbers)
    lines, labels = np.array(split.lines), np.array(split.labels, dtype=np.int64)
    conflicting = _with_several(_labelled(numbers, labels, split.label_numbers), split.label_numbers)
    names = list(split.label_numbers)
    first_conflicts = []
    for place in _rows_of_first(numbers, conflicting):
        found = sorted({int(label) for label in labels[place]})
        first_conflicts.append(
            {"lines": lines[place][:PLACES_KEPT].tolist(), "labels": [names[label] for label in found]}
        )
    return Repeats(
        texts=int((counts > 1).sum()),
        rows=int((counts[counts > 1] - 1).sum()),
        first_lines=[
            lines[place][:PLACES_KEPT].tolist() for place in _rows_of_first(numbers, np.flatnonzero(counts > 1))
        ],
        conflicting_texts=len(conflicting),
        conflicting_rows=int(counts[conflicting].sum()),
        first_conflicts=first_conflicts,
    )


def overlaps(splits: Sequence[SplitRows], numbers: Sequence[Numbers]) -> list[Overlap]:
    """What each two of the splits have in common; pairs without anything are there too."""
    found = []
    for (one, first), (two, second) in combinations(zip(splits, numbers, strict=True), 2):
        shared = np.intersect1d(first, second)
        lines = []
        for place in _rows_of_first(second, shared):
            line = one.lines[int(np.flatnonzero(first == second[place[0]])[0])]
            lines.append([line, two.lines[int(place[0])]])
        found.append(
            Overlap(
                first=one.split,
                second=two.split,
                texts=len(shared),
                first_rows=int(np.isin(first, shared).sum()),
                second_rows=int(np.isin(second, shared).sum()),
                other_labels=_other_labels(one, first, two, second, shared),
                first_lines=lines,
            )
        )
    return found


def _rows_of_first(numbers: Numbers, wanted: Numbers) -> list[Numbers]:
    """The rows of the first PLACES_KEPT texts whose number is `wanted`, in the order in which they first appear."""
    there = numbers[np.isin(numbers, wanted)]
    _, first = np.unique(there, return_index=True)
    return [np.flatnonzero(numbers == there[place]) for place in sorted(first)[:PLACES_KEPT]]


def _labelled(numbers: Numbers, labels: Numbers, known: Mapping[str, int]) -> Numbers:
    """Text and label of each labelled row as one number."""
    has = labels >= 0
    return np.unique(numbers[has] * max(1, len(known)) + labels[has])


def _with_several(pairs: Numbers, known: Mapping[str, int]) -> Numbers:
    """The texts that more than one of `pairs` holds."""
    return np.flatnonzero(np.bincount(pairs // max(1, len(known))) > 1)


def _other_labels(one: SplitRows, first: Numbers, two: SplitRows, second: Numbers, shared: Numbers) -> int:
    if not one.label_counts or not two.label_counts:
        return 0
    known = one.label_numbers
    sides = []
    for split, numbers in ((one, first), (two, second)):
        inside = np.isin(numbers, shared)
        sides.append(_labelled(numbers[inside], np.array(split.labels, dtype=np.int64)[inside], known))
    return len(np.unique(np.setxor1d(sides[0], sides[1]) // max(1, len(known))))
