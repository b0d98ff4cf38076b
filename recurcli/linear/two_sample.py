"""Are two sets of texts of one kind? The classifier two-sample test (Lopez-Paz & Oquab, ICLR 2017) by the linear model."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.splits import RowHashes
from recurcli.linear.fitting import INITIAL_C
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngram_hashes import Texts
from recurcli.linear.ngrams import ngram_sets
from recurcli.linear.out_of_fold import OUTER_FOLDS, out_of_fold_logits
from recurcli.significance import SMALLEST_P
from recurcli.targets import OneLabel


class TwoSamples(NamedTuple):
    """How far a linear model tells two sets of N texts each apart, on texts that it was not fitted on."""

    accuracy: float
    """0.5: not at all."""
    p_value: float
    """Of the hypothesis that it tells no more than half of them apart."""
    distances: NDArray[np.float64]
    """(N,) the logit of each text of the second set for that set, the larger the less it is like those of the first."""


def two_sample_test(first: Texts, second: Texts) -> TwoSamples:
    """Test whether the texts of two sets of equal size are of one distribution.

    The statistic is the share of texts that are told apart by cross-validation in K folds. Texts of one group (see `RowHashes`)
    share a fold, and count as one observation: z = sum of e / sqrt(v sum of e^2), where e = hits - n / 2 of a group of n texts.
    v = 1 + K / (K - 1), since the models of the folds share most of their texts (Nadeau & Bengio, Machine Learning 52, 2003).
    """
    texts, y = [*first, *second], np.repeat([0, 1], [len(first), len(second)])
    chosen = Hyperparameters(ngram_sets(texts)[0], INITIAL_C)
    logits = out_of_fold_logits(texts, y, OneLabel(("first", "second")), chosen)
    distances = logits[:, 1] - logits[:, 0]
    hits = (1 + np.sign(distances) * (2 * y - 1)) / 2
    _, groups = np.unique(RowHashes.of(texts).group_ids, return_inverse=True)
    excess = np.bincount(groups, hits - 0.5)
    variance = (1 + OUTER_FOLDS / (OUTER_FOLDS - 1)) * float((excess**2).sum())
    z = float(excess.sum()) / math.sqrt(max(variance, 1e-12))
    p_value = max(SMALLEST_P, math.erfc(z / math.sqrt(2)) / 2)
    return TwoSamples(float(hits.mean()), p_value, distances[len(first) :])
