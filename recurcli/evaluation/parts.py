"""The report on a model with its metrics and its calibration. With a prior it has the metrics of each part as well."""

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
    """Return the report on the model, facts for the JSON, and the logits (N, C) of the model.

    `encoder` and `linear` are the logits (N, C) of the parts; `linear` is None without a linear model. Without a prior, the
    linear model is a floor only. The facts are the `floors` (`known` are the task's own) and the `calibration` at the
    `temperature` of the model. If there is a prior, they also have its weights and the scores of both parts alone.
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
