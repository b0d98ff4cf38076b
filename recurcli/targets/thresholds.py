"""Thresholds of the labels with the best metric on dev rows [ours]. Shapes: N rows, C classes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.metrics import ClassCounts, CountMetric, counts_of, cumulated, metric_named
from recurcli.targets.target import Probabilities, Y

THRESHOLD_FOLDS = 5
"""Folds of the rows by which the score of thresholds is cross-validated."""
PASSES = 3
"""Passes over the classes, in which the threshold of each is chosen beside those of the others."""
CUTS = 50
"""The most thresholds of a class that are tried in a pass."""


def fit_thresholds(probabilities: Probabilities, y: Y, metric: str, labels: Sequence[str]) -> dict[str, Any]:
    """Choose the thresholds with the best `metric` on rows with these probabilities (N, C) and `y` (N,) [ours].

    The label is the one with the largest ratio of probability to threshold. The thresholds add up to 1, so that of two classes
    each is predicted where its probability is at least its threshold. The score of the choice is cross-validated: each of
    THRESHOLD_FOLDS folds, which have every fifth row of each class in an order that is drawn with a fixed seed, is labelled by
    the thresholds of the others.

    Returns the content of thresholds.json. Raises UsageError if `metric` is of a label that is not among the classes `labels`.
    """
    of_counts = metric_named(metric, labels).of_counts
    order = np.lexsort((np.random.default_rng(0).random(len(y)), y))
    fold, held_out = np.empty_like(y), np.empty_like(y)
    fold[order] = np.arange(len(y)) % THRESHOLD_FOLDS
    for each in np.unique(fold):
        own = fold == each
        held_out[own] = (probabilities[own] / _best_thresholds(probabilities[~own], y[~own], of_counts)).argmax(axis=1)
    return {
        "metric": metric,
        "thresholds": dict(zip(labels, _best_thresholds(probabilities, y, of_counts).tolist(), strict=True)),
        "cross_validated": _score(of_counts, y, held_out, len(labels)),
        "most_probable": _score(of_counts, y, probabilities.argmax(axis=1), len(labels)),
        "folds": THRESHOLD_FOLDS,
        "rows": len(y),
    }


def _score(metric: CountMetric, y: Y, predictions: Y, classes: int) -> float:
    return float(metric(counts_of(y, predictions, range(classes)))[0])


def _best_thresholds(probabilities: Probabilities, y: Y, metric: CountMetric) -> NDArray[np.float64]:
    """Return the thresholds (C,) with the best metric, chosen for one class after the other, in PASSES over the classes.

    A class without a row keeps that of the beginning, which all classes share, relative to the others.
    """
    classes, probabilities = probabilities.shape[1], probabilities.clip(min=1e-12)  # so that ratios are finite
    values = np.full(classes, 1 / classes)
    for _ in range(PASSES):
        for label in np.unique(y).tolist():
            ratios = probabilities / values
            ratios[:, label] = 0
            otherwise, own = ratios.argmax(axis=1), probabilities[:, label] / ratios.max(axis=1)
            scores = {
                cut: round(_score(metric, y, np.where(own >= cut, label, otherwise), classes), 12)
                for cut in _cuts(own, y == label, values[label])
            }
            values[label] = max(scores, key=scores.__getitem__)  # the first of equally good ones
    return values / values.sum()


def _cuts(own: NDArray[np.float64], is_label: NDArray[np.bool_], now: float) -> list[float]:
    """Return the thresholds of a class that are tried, those near to `now` first; rows have the ratios `own` (N,).

    They are `now`, one above all rows, and those below CUTS rows of the class, evenly drawn from all of these by rank, each at
    the geometric mean of the row and the next different one below it.
    """
    levels, rows = np.unique(own), np.sort(own[is_label])
    places = np.searchsorted(levels, rows[np.linspace(0, len(rows) - 1, min(CUTS, len(rows))).astype(int)])
    cuts = np.sqrt(levels[places] * levels[np.maximum(places - 1, 0)]).tolist()
    return sorted([now, 2 * float(levels[-1]), *cuts], key=lambda cut: abs(math.log(cut / now)))


class LabelCuts(NamedTuple):
    """The K + 1 thresholds of one of several labels with which the rows that get it differ, from the largest."""

    values: NDArray[np.float64]
    """(K + 1,) each in the middle of its interval, or 0.5 where that lies in it."""
    counts: ClassCounts
    """Of the label with each threshold, (K + 1,)."""

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], has: NDArray[np.bool_] | NDArray[np.float64]) -> "LabelCuts":
        """Return those of a label with these probabilities (N,), which the rows have (N,) or not, or with what probability."""
        given, hits = cumulated(has, probabilities)
        levels = np.concatenate([[1.0], np.unique(probabilities)[::-1], [0.0]])
        values = (levels[:-1] + levels[1:]) / 2
        values[(levels[1:] < 0.5) & (levels[:-1] >= 0.5)] = 0.5
        return cls(values.clip(min=1e-12), ClassCounts(hits, given, hits[-1:]))

    def best(self, gains: NDArray[np.float64]) -> int:
        """Return the place of the threshold with the largest of these gains (K + 1,), nearest to 0.5 of equally good ones."""
        distances = np.where(gains > gains.max() - 1e-12, np.abs(self.values - 0.5), np.inf)
        return int(distances.argmin())
