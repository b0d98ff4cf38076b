"""From the logits of a kept model to its probabilities and labels: what a run keeps, its cascade, and the thresholds of labels.

Shapes: N rows, C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recurcli.evaluation.significance import exact_interval
from recurcli.linear.ensemble import RowWeights
from recurcli.linear.model import Cascade, Ensemble, Logits
from recurcli.metrics import CountMetric, counts_of, metric_named

Shares = NDArray[np.float64]
"""Probabilities (N, C)."""
Labels = NDArray[np.int64]
"""Class indices (N,)."""
CHANGED, MAX_CHANGED = 0.001, 0.005
"""A cascade is chosen on rows of which at most the first share changes its label. Its check allows the second one, as the upper
end of an interval. Ours."""
WORSE, MAX_WORSE = 0.5, 1.0
"""The same for its log loss above the ensemble's, in standard errors of the ensemble's. Ours."""
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


class KeptModel(NamedTuple):
    """What a run keeps: the encoder, the linear model, or an ensemble of both; and how its logits become labels."""

    ensemble: Ensemble | None
    """The weights of encoder and linear model. None: the encoder, without a linear model."""
    temperature: float = 1.0
    """The probabilities are those of logits / temperature. It is 1 with an ensemble, whose weights are fitted instead."""
    rows: int = 0
    """Number of dev rows by which it was calibrated, which bounds the probabilities; 0: it is not known."""
    thresholds: Mapping[str, Any] | None = None
    """The content of thresholds.json (`fit_thresholds`). None: the label is the most probable one."""

    def logits(self, encoder: Logits | None, linear: Logits | None) -> Logits:
        """Return the logits (N, C) of the kept model, given those of its parts. A part that has the weight 0 may be None."""
        if self.ensemble is not None and linear is not None:
            return self.ensemble.join(encoder, linear)
        assert encoder is not None, "a model without an encoder has a linear model"
        return encoder

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


PLAIN = KeptModel(None)
"""A model alone: its most probable label by its own logits."""


def choose_cascade(
    kept: KeptModel,
    encoder: Logits,
    linear: Logits,
    targets: Labels,
    halves: Labels,
    row_weights: RowWeights = None,
    *,
    labels_only: bool = False,
) -> KeptModel:
    """Return the ensemble `kept` with a cascade, if the linear model can answer enough of the rows alone [ours].

    The rows have these logits (N, C), `targets` and `row_weights` (N,); `halves` (N,) are 0 and 1. On each half the smallest
    threshold is chosen with which at most CHANGED of its rows have another label than by the ensemble, and the log loss is
    larger by WORSE at most. It is checked on the other half: of the rows that the linear model answers there, MAX_CHANGED may
    have another label, at the upper end of the exact 95 % interval, and the log loss of all rows may be larger by MAX_WORSE.
    The larger threshold is kept. With `labels_only` the log loss may be as large as it comes.
    """
    assert kept.ensemble is not None and len(np.unique(halves)) == 2, "an ensemble, and rows in both halves"
    if exact_interval(0, len(targets))[1] > MAX_CHANGED:
        return kept  # too few rows to show it
    joined, margins = kept.ensemble.join(encoder, linear), kept.ensemble.margins(linear)
    alone = kept.ensemble.linear_alone_weight * linear
    changes = joined.argmax(axis=1) != alone.argmax(axis=1)
    factors = np.ones(len(targets)) if row_weights is None else row_weights / row_weights.mean()
    before, after = (factors * log_losses(kept.probabilities(logits), targets) for logits in (joined, alone))
    if labels_only:
        after = before
    chosen = np.empty(2)
    for half in (0, 1):
        own = halves == half
        chosen[half] = _smallest_margin(margins[own], changes[own], before[own], after[own])
    answered = margins > chosen[1 - halves]
    checked, changed = int(answered.sum()), int((answered & changes).sum())
    is_worse = (after - before)[answered].sum() > MAX_WORSE * before.std() * math.sqrt(len(targets))
    if is_worse or not checked or exact_interval(changed, checked)[1] > MAX_CHANGED:
        return kept
    margin = float(chosen.max())
    found = Cascade(margin=margin, share=float((margins > margin).mean()), checked=checked, changed=changed)
    return kept._replace(ensemble=replace(kept.ensemble, cascade=found))


def cascade_holds(kept: KeptModel, encoder: Logits | None, linear: Logits | None) -> bool:
    """Return whether the thresholds of `kept` leave its cascade in the limits of `choose_cascade`; True without a cascade.

    `encoder` and `linear` are logits (N, C) of rows.
    """
    if kept.ensemble is None or kept.ensemble.cascade is None or linear is None:
        return True
    whole = kept._replace(ensemble=replace(kept.ensemble, cascade=None))
    labels = [kept.decide(each.probabilities(each.logits(encoder, linear))) for each in (kept, whole)]
    changed, answered = (labels[0] != labels[1]).sum(), kept.ensemble.is_alone(linear).sum()
    return exact_interval(int(changed), int(answered))[1] <= MAX_CHANGED


def _smallest_margin(
    margins: NDArray[np.float64], changes: NDArray[np.bool_], before: NDArray[np.float64], after: NDArray[np.float64]
) -> float:
    """Return the smallest threshold of the `margins` (N,) of rows for which a linear model may answer alone.

    `changes` (N,): whether that changes the label; `before` and `after` (N,) are the log losses without and with it.
    """
    order = np.argsort(-margins, kind="stable")
    few = changes[order].cumsum() <= CHANGED * len(order)
    good = (after - before)[order].cumsum() <= WORSE * before.std() * math.sqrt(len(order))
    rows = int(np.flatnonzero(np.append(True, few & good))[-1])
    return float(margins[order[rows]]) if rows < len(order) else 0.0


def log_losses(shares: Shares, targets: Labels) -> NDArray[np.float64]:
    """Return -log of the probability of each target (N,), given the probabilities (N, C)."""
    return -np.log(shares[np.arange(len(targets)), targets].clip(min=np.finfo(float).tiny))


def fit_thresholds(shares: Shares, targets: Labels, metric: str, names: Sequence[str]) -> dict[str, Any]:
    """Choose the thresholds with the best `metric` on rows with these probabilities (N, C) and `targets` (N,) [ours].

    Rows of an unknown label, whose target is -1, are left out.
    The label is the one with the largest ratio of probability to threshold. The thresholds add up to 1, so that of two classes
    each is predicted where its probability is at least its threshold. The score of the choice is cross-validated: each of
    THRESHOLD_FOLDS folds, which have every fifth row of each class in an order that is drawn with a fixed seed, is labelled by
    the thresholds of the others.

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
