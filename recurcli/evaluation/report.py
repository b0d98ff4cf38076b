"""Reports on a model: metrics, those of its parts, calibration. Shapes: N rows, C logits of a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.splits import Split
from recurcli.evaluation.decision import Kept
from recurcli.metrics import NUMBER_METRICS, is_of_numbers, score_in
from recurcli.targets import Cell, Target
from recurcli.targets.target import Logits, Probabilities, Y


@dataclass(frozen=True)
class EvaluatedRows:
    """Labelled rows with the probabilities (N, C) that a classifier gives them."""

    ids: Sequence[str] | None
    """None: the rows have no ids of their own."""
    lines: Sequence[int | str]
    """The number of the first line of each row in its file, from 1; of Parquet that of the row; of several files `file:line`.
    0: it has no file."""
    texts: Sequence[tuple[str, str | None]]
    target: Target
    labels: Sequence[Cell]
    """The labels of the rows as their file has them."""
    y: Y
    """These labels, as the target encodes them."""
    probabilities: Probabilities
    predictions: Y

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """(N,) the probability of the predicted class, of rows with one label."""
        return self.probabilities[np.arange(len(self.labels)), self.predictions]

    @cached_property
    def predicted(self) -> list[Cell]:
        """The predictions as their file would have them."""
        return self.target.decode(self.predictions)

    def mistake(self, row: int) -> dict[str, str]:
        """Return what a list of mistakes shows of the row number `row` beside label and prediction, by column."""
        return self.target.mistake(self.labels[row], self.y[row], self.predictions[row], self.probabilities[row])

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """(M,) the places of the wrongly predicted rows, those with the largest errors first."""
        errors = self.target.errors(self.y, self.predictions, self.probabilities)
        wrong = np.flatnonzero(errors > 0)
        return wrong[np.argsort(-errors[wrong], kind="stable")]


def report_of(kept: Kept, logits: Logits, rows: Split, metric: str) -> dict[str, Any]:
    """Return the report of the target on the logits (N, C) of the model `kept`, or of a part, for the labels of `rows`.

    It has the `metric` too (`cut_score`). Its loss is that of the logits as they are, or None without a row of a known label.
    """
    target, y, probabilities = kept.target, rows.y, kept.probabilities(logits)
    known = target.is_known(y)
    loss = float(target.losses_and_gradient(logits[known], y[known])[0].mean()) if known.any() else None
    unknown = [*map(str, compress(rows.examples.labels, ~known))]
    predictions = kept.decide(probabilities)
    report = target.report(y, predictions, probabilities, loss=loss, unknown=unknown)
    return report | cut_score(target, metric, y, predictions)


def cut_score(target: Target, metric: str, y: Y, predictions: Y) -> dict[str, float]:
    """Return the `metric` by its name if it is one of numbers that are cut at another, which reports do not have."""
    is_cut = is_of_numbers(metric) and metric not in NUMBER_METRICS
    return {metric: target.score(metric, y, predictions)} if is_cut else {}


def scores_of(report: Mapping[str, Any], metric: str) -> dict[str, float | None]:
    """Return the metrics and the loss of a `report_of` without its tables, and `metric`, which may be in one of them."""
    scores = {name: value for name, value in report.items() if not isinstance(value, dict | list)}
    return scores | {metric: score_in(report, metric)}


def calibration_of(kept: Kept, logits: Logits, rows: Split) -> dict[str, Any]:
    """Return the calibration of `kept` with these logits (N, C), on the `rows` of known labels, for the JSON."""
    known = kept.target.is_known(rows.y)
    found = kept.target.calibration(kept.probabilities(logits[known]), rows.y[known])
    return {"temperature": kept.temperature, **found}


def report_with_parts(
    kept: Kept,
    of: Mapping[str, Logits],
    rows: Split,
    baselines: Mapping[str, float],
    metric: str,
    trained_on: NDArray[np.bool_] | None,
    refitted: Logits | None = None,
    linear_scores: Mapping[str, float | None] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], Logits]:
    """Return the report on the kept model, facts for the JSON, and its logits (N, C).

    `of` has the logits (N, C) of each candidate. Scores are those of the target's `headline`. The facts are the `baselines`
    (the score of the best constant prediction, of the linear model beside an encoder, and the task's own, which are given),
    `model_intervals`, the 95 % interval of the score of the model and of each candidate, and the `calibration`. With two
    candidates they have `paired`: by candidate the 95 % interval of the score of the kept model less that of the candidate.
    Where both could be kept, they also have the scores of both `parts`, by `metric` too. Where some of the rows, but not all,
    were `trained_on` (N,), they have the scores of the kept model on the others, the `unseen` ones; None: it is not known which
    were.

    `refitted` are the logits of the linear model that was fitted again, which takes the place of the one in `of` in what is
    kept. The scores of the linear model are those of the one in `of` (`linear_scores`, if they are known). The calibration
    leaves out rows of an unknown label; at least one row has a known label.
    """
    logits = kept.logits(of if refitted is None else {**of, "linear": refitted})
    target, predictions = kept.target, kept.predict(logits)
    plain = replace(Kept.as_is(target), thresholds=kept.thresholds_of_parts)
    constant = target.score(target.headline, rows.y, target.constant(rows.y))
    facts: dict[str, Any] = {"baselines": {target.constant_name: constant, **baselines}}
    facts["model_intervals"] = {"model": target.interval(rows.y, predictions)}
    if trained_on is not None and 0 < (unseen := int((~trained_on).sum())) < len(trained_on):
        report = report_of(kept, logits[~trained_on], rows.take(~trained_on), metric)
        facts["unseen"] = {"rows": unseen, **scores_of(report, metric)}
    if len(of) > 1:
        of = {part: kept.calibrated(part, own) for part, own in of.items()}
        parts = {part: scores_of(report_of(plain, own, rows, metric), metric) for part, own in of.items()}
        if linear_scores is not None and not kept.calibrations:
            parts["linear"] = dict(linear_scores)
        facts["baselines"]["linear"] = parts["linear"][target.headline]
        if len(kept.alone) > 1:
            facts["parts"] = parts
        alone = {part: plain.predict(own) for part, own in of.items()}
        facts["model_intervals"] |= {part: target.interval(rows.y, own) for part, own in alone.items()}
        facts["paired"] = {part: target.paired_interval(rows.y, predictions, own) for part, own in alone.items()}
    facts["calibration"] = calibration_of(kept, logits, rows)
    return report_of(kept, logits, rows, metric), facts, logits


class DevScore(NamedTuple):
    """The dev metric and dev loss of a model. Between equal metrics the smaller loss is better."""

    metric: float
    loss: float
    """The mean of the loss that training minimizes: of the dev rows, or of the tokens of the dev text in nats."""
