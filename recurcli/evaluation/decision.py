"""From the logits of a kept model to its probabilities and labels: what a run keeps, and the thresholds of labels.

Shapes: N rows, C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from recurcli.linear.ensemble import RowWeights, fit_calibration, fit_ensemble
from recurcli.linear.model import Logits
from recurcli.metrics import CountMetric, counts_of, metric_named

Shares = NDArray[np.float64]
"""Probabilities (N, C)."""
Labels = NDArray[np.int64]
"""Class indices (N,)."""
THRESHOLD_FOLDS = 5
"""Folds of the rows by which the score of thresholds is cross-validated."""
PASSES = 3
"""Passes over the classes, in which the threshold of each is chosen beside those of the others."""
CUTS = 50
"""The most thresholds of a class that are tried in a pass."""


def mixed_share(rows: int, classes: int) -> float:
    """Return the weight of the uniform distribution in a mixture that bounds each probability by 1 - 1 / (rows + 2)."""
    return classes / ((classes - 1) * (rows + 2)) if rows and classes > 1 else 0.0


def probabilities(logits: Logits, temperature: float = 1.0, rows: int = 0) -> Shares:
    """Return softmax(logits / temperature) of the logits (N, C), mixed with the uniform one: none is above 1 - 1 / (rows + 2).

    `rows` is the number of dev rows by which the model was chosen; 0: it is not known, and nothing is mixed. By Laplace's rule
    of succession the chance of a mistake after n rows without one is 1 / (n + 2). The order of the labels of a row stays, and
    that of the rows by the probability of one of two labels.
    """
    shares: Shares = torch.from_numpy(logits / temperature).softmax(dim=1).numpy()
    if mixed := mixed_share(rows, logits.shape[1]):
        shares = np.minimum((1 - mixed) * shares + mixed / logits.shape[1], 1 - 1 / (rows + 2))
    return shares


KeptName = Literal["encoder", "linear model", "ensemble"]


@dataclass(frozen=True)
class Kept:
    """The model that a run keeps: its encoder, its linear model or both, and how logits become probabilities and labels."""

    name: KeptName
    weights: Mapping[str, float]
    """The weight of each part, "encoder" or "linear". The logits of the model are the weighted sum of theirs."""
    alone: Mapping[str, float]
    """The weight of each part that could be kept, for its use without the other."""
    temperature: float = 1.0
    """The probabilities are those of logits / temperature. It is 1 where the weights are fitted instead."""
    rows: int = 0
    """Number of dev rows by which it was chosen, which bounds the probabilities; 0: it was not chosen yet."""
    thresholds: Mapping[str, Any] | None = None
    """The content of thresholds.json (`fit_thresholds`). None: the label is the most probable one."""

    def logits(self, of: Mapping[str, Logits]) -> Logits:
        """Return the logits (N, C) of the kept model, given those `of` the candidates by name."""
        first, *others = (weight * of[name] for name, weight in self.weights.items())
        return sum(others, first)

    def probabilities(self, logits: Logits) -> Shares:
        """Return the probabilities (N, C) of its logits (N, C)."""
        return probabilities(logits, self.temperature, self.rows)

    @property
    def divisors(self) -> list[float] | float:
        """What the probabilities are divided by before the label with the largest ratio is taken: the thresholds (C), or 1."""
        return 1.0 if self.thresholds is None else [*self.thresholds["thresholds"].values()]

    def decide(self, shares: Shares) -> Labels:
        """Return the class (N,) of each row with these probabilities (N, C)."""
        return (shares / self.divisors).argmax(axis=1)

    @property
    def only_linear(self) -> "Kept":
        """The linear model in place of what is kept, by its own calibration and without thresholds."""
        return _single("linear", self.alone, self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the content of kept.json."""
        return {key: value for key, value in vars(self).items() if key != "thresholds"}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Kept":
        """Return what `to_json` stored. Raises ValueError if its name is not that of its weights, or `alone` lacks one."""
        kept = cls(**stored)
        parts = {"ensemble": {"encoder", "linear"}, "linear model": {"linear"}, "encoder": {"encoder"}}[kept.name]
        if kept.weights.keys() != parts or not parts <= kept.alone.keys():
            named = f"{sorted(kept.weights)} and {sorted(kept.alone)}"
            raise ValueError(f"its weights and alone are of {named}, but it is named {kept.name}")
        return kept


def _single(candidate: str, alone: Mapping[str, float], rows: int) -> Kept:
    name: KeptName = "encoder" if candidate == "encoder" else "linear model"
    return Kept(name, {candidate: alone[candidate]}, alone, rows=rows)


PLAIN = Kept("encoder", {"encoder": 1.0}, {"encoder": 1.0})
"""A model alone: its most probable label by its own logits."""


def choose(held_out: Mapping[str, Logits], targets: Labels, row_weights: RowWeights = None) -> Kept:
    """Choose what is kept, by the logits (N, C) of each candidate on rows that it was not fitted on.

    The rows have the `targets` and the `row_weights` (N,). An encoder that is the only candidate has a fitted temperature;
    otherwise the candidates have fitted weights (`fit_ensemble`).
    """
    rows = len(targets)
    if held_out.keys() == {"encoder"}:
        temperature = 1 / fit_calibration(held_out["encoder"], targets, 1.0, row_weights)
        return replace(PLAIN, temperature=temperature, rows=rows)
    if held_out.keys() == {"linear"}:
        return _single(
            "linear", {"linear": fit_calibration(held_out["linear"], targets, row_weights=row_weights)}, rows
        )
    weights, alone = fit_ensemble(held_out["encoder"], held_out["linear"], targets, row_weights)
    if len(weights) > 1:
        return Kept("ensemble", weights, alone, rows=rows)
    return _single(next(iter(weights)), alone, rows)


def log_losses(shares: Shares, targets: Labels) -> NDArray[np.float64]:
    """Return -log of the probability of each target (N,), given the probabilities (N, C)."""
    return -np.log(shares[np.arange(len(targets)), targets].clip(min=np.finfo(float).tiny))


def fit_thresholds(shares: Shares, targets: Labels, metric: str, names: Sequence[str]) -> dict[str, Any]:
    """Choose the thresholds with the best `metric` on rows with these probabilities (N, C) and `targets` (N,) [ours].

    The label is the one with the largest ratio of probability to threshold. The thresholds add up to 1, so that of two classes
    each is predicted where its probability is at least its threshold. The score of the choice is cross-validated: each of
    THRESHOLD_FOLDS folds, which have every fifth row of each class in an order that is drawn with a fixed seed, is labelled by
    the thresholds of the others. Rows of an unknown label, whose target is -1, are left out.

    Returns the content of thresholds.json. Raises UsageError if `metric` is of a label that is not among the classes `names`.
    """
    of_counts, known = metric_named(metric, names).of_counts, targets >= 0
    shares, targets = shares[known], targets[known]
    order = np.lexsort((np.random.default_rng(0).random(len(targets)), targets))
    fold, held_out = np.empty_like(targets), np.empty_like(targets)
    fold[order] = np.arange(len(targets)) % THRESHOLD_FOLDS
    for each in np.unique(fold):
        own = fold == each
        held_out[own] = (shares[own] / _best_thresholds(shares[~own], targets[~own], of_counts)).argmax(axis=1)
    return {
        "metric": metric,
        "thresholds": dict(zip(names, _best_thresholds(shares, targets, of_counts).tolist(), strict=True)),
        "cross_validated": _score(of_counts, targets, held_out, len(names)),
        "most_probable": _score(of_counts, targets, shares.argmax(axis=1), len(names)),
        "folds": THRESHOLD_FOLDS,
        "rows": len(targets),
    }


def _score(metric: CountMetric, targets: Labels, predictions: Labels, classes: int) -> float:
    return float(metric(counts_of(targets, predictions, range(classes)))[0])


def _best_thresholds(shares: Shares, targets: Labels, metric: CountMetric) -> NDArray[np.float64]:
    """Return the thresholds (C,) with the best metric, chosen for one class after the other, in PASSES over the classes.

    A class without a row keeps that of the beginning, which all classes share, relative to the others.
    """
    classes, shares = shares.shape[1], shares.clip(min=1e-12)  # so that ratios are finite
    values = np.full(classes, 1 / classes)
    for _ in range(PASSES):
        for label in np.unique(targets).tolist():
            ratios = shares / values
            ratios[:, label] = 0
            otherwise, own = ratios.argmax(axis=1), shares[:, label] / ratios.max(axis=1)
            scores = {
                cut: round(_score(metric, targets, np.where(own >= cut, label, otherwise), classes), 12)
                for cut in _cuts(own, targets == label, values[label])
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
