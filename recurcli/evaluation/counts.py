"""Metrics of many resamples at once, from their counts per class.

B resamples, C classes. The same metrics, of one list of predictions, are computed by scikit-learn in `metrics.py`.
"""

from collections.abc import Callable
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


OfCounts = Callable[[ClassCounts], "np.ndarray"]
"""A metric of each resample: ClassCounts -> (B,)."""


def accuracy_of(counts: ClassCounts) -> "np.ndarray":
    """Return the accuracies (B,)."""
    return counts.hits.sum(axis=-1) / counts.support.sum(axis=-1)


def macro_of(average: int) -> OfCounts:
    """Return macro precision (0), recall (1) or F1 (2), over the classes that occur among labels or predictions."""

    def compute(counts: ClassCounts) -> "np.ndarray":
        either = counts.predicted + counts.support
        numerator, denominator = (
            (counts.hits, counts.predicted),
            (counts.hits, counts.support),
            (2 * counts.hits, either),
        )[average]
        ratios = numerator / denominator.clip(min=1)  # a ratio of 0 rows counts as 0
        return ratios.sum(axis=-1) / (either > 0).sum(axis=-1)

    return compute


def mcc_of(counts: ClassCounts) -> "np.ndarray":
    """Return Matthews' coefficients (B,) (Gorodkin 2004, eq. 8); 0 if all labels or all predictions are equal."""
    rows = counts.support.sum(axis=-1)
    covariance = counts.hits.sum(axis=-1) * rows - (counts.predicted * counts.support).sum(axis=-1)
    spread = (rows**2 - (counts.predicted**2).sum(axis=-1)) * (rows**2 - (counts.support**2).sum(axis=-1))
    return covariance / spread.clip(min=1) ** 0.5
