"""Logits of labelled rows by linear models that have not seen them: cross-validation. Shapes: N rows, C classes."""

from collections import Counter
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from recurcli.config import LinearConfig
from recurcli.data.splits import RowHashes
from recurcli.linear.ensemble import RowWeights
from recurcli.linear.fitting import UNSEEN, fit_model, search_hyperparameters
from recurcli.linear.model import Hyperparameters, Logits
from recurcli.linear.ngram_hashes import Texts

OUTER_FOLDS = 5
"""Each fold's model chooses its n-grams and C in folds of its own (`fitting.FOLDS`)."""


def out_of_fold_logits(
    texts: Texts,
    targets: NDArray[np.int64],
    num_classes: int,
    chosen: Hyperparameters | LinearConfig,
    row_weights: RowWeights = None,
    *,
    fitted: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Logits:
    """Return logits (N, C) of the linear models of OUTER_FOLDS folds, each of which was fitted without the rows that it scores.

    `targets` (N,) are class numbers, `row_weights` (N,) factors of the rows' losses. Models are fitted on the `fitted` rows
    (N,), which have a class; None: on all rows. The n-grams and C are `chosen`, or each model chooses those that a
    LinearConfig leaves open. A class that only one fold has gets the logit UNSEEN there, and a single other class 1. Raises
    DataError as `fit_model` does.
    """
    used = np.ones(len(texts), bool) if fitted is None else fitted
    folds = draw_folds(RowHashes.of(texts).group_ids, targets, seed)
    logits = np.zeros((len(texts), num_classes))
    for fold in np.unique(folds):
        held_out = folds == fold
        others = used & ~held_out
        known, labels = list(compress(texts, others.tolist())), targets[others]
        classes, weights = np.unique(labels), None if row_weights is None else row_weights[others]
        if len(classes) == 1 < len(np.unique(targets[used])):
            logits[held_out] = UNSEEN
            logits[held_out, classes] = 1.0  # as LinearSVC's of the right class
            continue
        own = chosen
        if isinstance(own, LinearConfig):
            own = search_hyperparameters(known, labels.tolist(), num_classes, own, weights)
        model = fit_model(known, labels.tolist(), num_classes, own, weights)
        logits[held_out] = model.logits(list(compress(texts, held_out.tolist())))
    return logits


def draw_folds(
    group_ids: NDArray[np.uint64], targets: NDArray[np.int64], seed: int = 0, folds: int = OUTER_FOLDS
) -> NDArray[np.int64]:
    """Return the fold of each row (N,). Rows of a group (see `RowHashes`) share a fold. A class's groups are dealt out."""
    counts = Counter(dict(enumerate(range(int(targets.max(initial=0)) + 1))))  # rare classes begin in different folds
    drawn: dict[int, int] = {}
    for row in np.random.default_rng(seed).permutation(len(targets)).tolist():
        group_id, target = int(group_ids[row]), int(targets[row])
        if group_id not in drawn:
            drawn[group_id] = counts[target] % folds
            counts[target] += 1
    return np.array([drawn[group_id] for group_id in group_ids.tolist()], np.int64)
