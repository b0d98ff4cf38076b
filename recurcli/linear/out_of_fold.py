"""Logits of labelled rows by linear models that have not seen them: cross-validation. Shapes: N rows, C logits of a row."""

from collections import Counter
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from recurcli.data.splits import RowHashes
from recurcli.linear.fitting import fit_model
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngram_hashes import Texts
from recurcli.targets import Target
from recurcli.targets.target import Logits, RowWeights, Y

OUTER_FOLDS = 5
"""Ours."""


def out_of_fold_logits(
    texts: Texts,
    y: Y,
    target: Target,
    chosen: Hyperparameters,
    row_weights: RowWeights = None,
    *,
    fitted: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Logits:
    """Return logits (N, C) of the linear models of OUTER_FOLDS folds, each of which was fitted without the rows that it scores.

    `y` are their labels, `row_weights` (N,) factors of the rows' losses. Models are fitted on the `fitted` rows (N,), whose
    label is known; None: on all rows. The n-grams, C and the scale of static vectors are those `chosen` on all of them [ours].

    A fold on whose other rows no model can be fitted, as they have one class, gets `Target.constant_logits`. Raises DataError
    as `fit_model` does if none can be fitted on all rows.
    """
    used = np.ones(len(texts), bool) if fitted is None else fitted
    folds = draw_folds(RowHashes.of(texts).group_ids, y, target, seed)
    logits = np.zeros((len(texts), target.width))
    for fold in np.unique(folds):
        held_out = folds == fold
        others = used & ~held_out
        known, labels = list(compress(texts, others.tolist())), y[others]
        weights = None if row_weights is None else row_weights[others]
        if target.linear_obstacle(labels) and not target.linear_obstacle(y[used]):
            logits[held_out] = target.constant_logits(labels)
            continue
        model = fit_model(known, labels, target, chosen, weights)
        logits[held_out] = model.logits(list(compress(texts, held_out.tolist())))
    return logits


def draw_folds(
    group_ids: NDArray[np.uint64], y: Y, target: Target, seed: int = 0, folds: int = OUTER_FOLDS
) -> NDArray[np.int64]:
    """Return the fold of each row (N,). Rows of a group (see `RowHashes`) share a fold. A stratum's groups are dealt out."""
    if (parts := target.divide(y, group_ids, [1 / folds] * folds, seed)) is not None:
        return parts
    strata = target.strata(y)
    counts = Counter(dict(enumerate(range(int(strata.max(initial=0)) + 1))))  # rare ones begin in different folds
    drawn: dict[int, int] = {}
    for row in np.random.default_rng(seed).permutation(len(strata)).tolist():
        group_id, stratum = int(group_ids[row]), int(strata[row])
        if group_id not in drawn:
            drawn[group_id] = counts[stratum] % folds
            counts[stratum] += 1
    return np.array([drawn[group_id] for group_id in group_ids.tolist()], np.int64)
