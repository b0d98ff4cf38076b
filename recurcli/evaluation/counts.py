"""Classification metrics from counts per class, of many resamples at once or of one list of predictions.

B resamples, C classes, N rows. The numbers are those of scikit-learn to the last bit, without its import, which takes longer
than a small evaluation. numpy is imported when counts are made, not with this module.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class ClassCounts(NamedTuple):
    """Numbers of rows of each class, each (B, C)."""

    hits: "np.ndarray"
    """Rows of the class that are predicted as it."""
    predicted: "np.ndarray"
    """Rows that are predicted as the class."""
    support: "np.ndarray"
    """Rows that have the class as label."""


CountMetric = Callable[[ClassCounts], "np.ndarray"]
"""A metric of each resample: ClassCounts -> (B,), or of each of its classes: (B, C)."""


def counts_of(labels: Sequence[int], predictions: Sequence[int], classes: Sequence[int] | None = None) -> ClassCounts:
    """Return the counts (1, C) of the class indices `labels` and `predictions`, each (N,).

    The classes are those in `classes`, which ascends and holds all that occur; None: those that occur.
    """
    import numpy as np

    both = np.array([labels, predictions])  # (2, N)
    known = np.unique(both) if classes is None else np.array(classes)
    right, predicted = np.searchsorted(known, both)
    hits, predictions_of, support = (
        np.bincount(rows, minlength=len(known)).astype(float)[None]
        for rows in (right[right == predicted], predicted, right)
    )
    return ClassCounts(hits, predictions_of, support)


def of_one(metric: CountMetric) -> Callable[[Sequence[int], Sequence[int]], float]:
    """Return `metric` as a function of the class indices of the labels (N,) and of the predictions (N,)."""

    def compute(labels: Sequence[int], predictions: Sequence[int]) -> float:
        return float(metric(counts_of(labels, predictions))[0])

    return compute


def accuracy(counts: ClassCounts) -> "np.ndarray":
    """Return the accuracies (B,)."""
    return counts.hits.sum(axis=-1) / counts.support.sum(axis=-1)


def precision(counts: ClassCounts) -> "np.ndarray":
    """Return the precision of each class (B, C); 0 for a class that is never predicted."""
    return counts.hits / counts.predicted.clip(min=1)


def recall(counts: ClassCounts) -> "np.ndarray":
    """Return the recall of each class (B, C); 0 for a class that no row has."""
    return counts.hits / counts.support.clip(min=1)


def f1(counts: ClassCounts) -> "np.ndarray":
    """Return the F1 of each class (B, C); 0 for a class that no row has and none is predicted as."""
    return 2 * counts.hits / (counts.predicted + counts.support).clip(min=1)


def macro(of_classes: CountMetric) -> CountMetric:
    """Return the mean of `of_classes` (B, C) over the classes that occur among labels or predictions."""

    def compute(counts: ClassCounts) -> "np.ndarray":
        present = counts.predicted + counts.support > 0
        return of_classes(counts).sum(axis=-1) / present.sum(axis=-1)

    return compute


def mcc(counts: ClassCounts) -> "np.ndarray":
    """Return Matthews' coefficients (B,) (Gorodkin 2004, eq. 8); 0 if all labels or all predictions are equal."""
    rows = counts.support.sum(axis=-1)
    covariance = counts.hits.sum(axis=-1) * rows - (counts.predicted * counts.support).sum(axis=-1)
    spread = (rows**2 - (counts.predicted**2).sum(axis=-1)) * (rows**2 - (counts.support**2).sum(axis=-1))
    return covariance / spread.clip(min=1) ** 0.5
