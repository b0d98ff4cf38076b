"""Evaluated rows: what a classifier made of each labelled row. N rows, C classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EvaluatedRows:
    """Labelled rows with the probabilities that a classifier gives them."""

    ids: Sequence[str]
    texts: Sequence[tuple[str, str | None]]
    names: Sequence[str]
    """The C classes."""
    labels: NDArray[np.int64]
    """(N,) class indices."""
    probabilities: NDArray[np.float64]
    """(N, C)"""
    lengths: NDArray[np.int64]
    """(N,) tokens that the encoder reads."""
    cut: NDArray[np.bool_]
    """(N,) whether the row was longer and was truncated."""

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """(N,) class indices."""
        return self.probabilities.argmax(axis=1)

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """(N,) the probability of the predicted class."""
        return self.probabilities.max(axis=1)

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """(M,) numbers of the rows that are predicted wrongly, the highest score first."""
        wrong = np.flatnonzero(self.predictions != self.labels)
        return wrong[np.argsort(-self.scores[wrong], kind="stable")]
