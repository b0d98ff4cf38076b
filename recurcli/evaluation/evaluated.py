"""Labelled rows with the predictions of a classifier. Shapes: N rows, C classes."""

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
    """(N, C) probabilities of the classes."""
    lengths: NDArray[np.int64]
    """(N,) tokens that the encoder reads."""
    cut: NDArray[np.bool_]
    """(N,) whether the row was truncated."""

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """(N,) indices of the most probable classes."""
        return self.probabilities.argmax(axis=1)

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """(N,) the probability of the predicted class."""
        return self.probabilities.max(axis=1)

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """(M,) numbers of the wrongly predicted rows, in descending order of their scores."""
        wrong = np.flatnonzero(self.predictions != self.labels)
        return wrong[np.argsort(-self.scores[wrong], kind="stable")]
