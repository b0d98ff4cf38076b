"""Iterative stratification of rows with several labels (Sechidis, Tsoumakas and Vlahavas, ECML PKDD 2011, algorithm 1).

Shapes: N rows, C labels, G groups of rows, P parts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def stratified_parts(
    has_label: NDArray[np.bool_], group_ids: NDArray[np.uint64], shares: Sequence[float], seed: int
) -> NDArray[np.int64]:
    """Return the part of each row (N,), so that part i has `shares[i]` of the rows of each label (N, C), and of those without.

    Groups are dealt out one by one, those of the label that the fewest rows have left first, each to the part that lacks most
    rows of this label. Among parts that lack as many, give or take less than one, it is the one that lacks most of all rows and
    of the rows of the group's labels together (ours; the paper counts all rows alone, and then the most frequent of many labels
    are far from their share). Other ties, and the order of the groups of a label, follow from hashes of the `seed` and the
    group's id.

    Where the shares differ, part 0 has the training rows, and the first group with a label goes to it (ours), so that a model
    knows the label. Labels of a single group are left out of this where the other groups are too few for the other parts.
    """
    rows, labels = len(has_label), has_label.shape[1]
    table = np.column_stack([has_label, ~has_label.any(axis=1)])  # rows without labels have a label of their own
    ids, group_of = np.unique(group_ids, return_inverse=True)
    row_of, column_of = np.nonzero(table)
    keys, counts = np.unique(group_of[row_of] * (labels + 1) + column_of, return_counts=True)
    groups, columns = np.divmod(keys, labels + 1)
    ends = np.searchsorted(groups, np.arange(len(ids) + 1)).tolist()
    groups_with = np.bincount(columns, minlength=labels + 1)
    alone = np.unique(groups[groups_with[columns] == 1])  # groups with a label that no other has
    own_labels, own_counts, sizes = columns.tolist(), counts.tolist(), np.bincount(group_of).tolist()
    hashes = _mixed(ids ^ _mixed(np.array([seed], np.uint64)))
    order = np.lexsort((hashes[groups], columns))
    groups_of_label = np.split(groups[order], np.searchsorted(columns[order], np.arange(1, labels + 1)))
    lots = hashes.tolist()
    totals = table.sum(axis=0)
    lacking = [[share * total for share in shares] for total in totals.tolist()]
    lacking_rows = [share * rows for share in shares]
    left = totals.astype(float)
    part_of, parts = [-1] * len(ids), range(len(shares))
    are_few = rows - np.bincount(group_of)[alone].sum() < rows * sum(shares[1:])
    in_first = (groups_with <= are_few).tolist() if len({*shares}) > 1 else [True] * (labels + 1)
    for _ in range(labels + 1):
        label = int(np.where(left > 0, left, np.inf)[:labels].argmin()) if (left[:labels] > 0).any() else labels
        of_label = lacking[label]
        for group in groups_of_label[label].tolist():
            if part_of[group] >= 0:
                continue
            own = range(ends[group], ends[group + 1])
            part = 0
            if all(in_first[own_labels[place]] for place in own):
                most = max(of_label)
                least = min(most, max(most - 1, 0))
                near = [each for each in parts if of_label[each] >= least]
                lack = [lacking_rows[each] + sum(lacking[own_labels[place]][each] for place in own) for each in near]
                most = max(lack) - 1e-9
                tied = [each for each, of_group in zip(near, lack, strict=True) if of_group > most]
                part = tied[lots[group] % len(tied)]
            part_of[group] = part
            lacking_rows[part] -= sizes[group]
            for place in own:
                lacking[own_labels[place]][part] -= own_counts[place]
                left[own_labels[place]] -= own_counts[place]
                in_first[own_labels[place]] |= part == 0
    return np.array(part_of)[group_of]


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each value (the finalizer of SplitMix64; Steele, Lea and Flood, 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
