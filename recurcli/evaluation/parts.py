"""The report on a model: metrics and calibration and, with a prior, the metrics of encoder and linear model alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recurcli.data.tasks import Task
from recurcli.evaluation.calibration import calibration_of
from recurcli.evaluation.inference import report_of
from recurcli.evaluation.metrics import Report, accuracy_floors
from recurcli.linear.prior import Prior


def report_with_parts(
    encoder: np.ndarray,
    linear: np.ndarray | None,
    prior: Prior | None,
    labels: Sequence[str],
    task: Task,
    known: Mapping[str, float],
    temperature: float = 1.0,
) -> tuple[Report, dict[str, Any], np.ndarray]:
    """Return the report on the model that has the logits `encoder` and `linear` (each N, C), facts for the JSON, and logits.

    The logits (N, C) are those of the model. The facts are the `floors` (`known`: the task's own), the `calibration` at the
    `temperature` of the model and, if there is a prior, its weights and the scores of both parts alone. Without a prior,
    `linear` is a floor only; None: there is no linear model.
    """
    report, logits = report_of(encoder, labels, task), encoder
    floor = None if linear is None else report_of(linear, labels, task)
    facts: dict[str, Any] = {"floors": accuracy_floors(labels, floor, known)}
    if prior is not None:
        assert linear is not None and floor is not None, "a prior has a linear model"
        facts |= {"prior": prior.to_json(), "parts": {"encoder": report.scores(), "linear": floor.scores()}}
        logits = prior.join(encoder, linear)
        report = report_of(logits, labels, task)
    return report, {**facts, "calibration": calibration_of(logits, np.array(task.targets(labels)), temperature)}, logits
