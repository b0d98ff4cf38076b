"""The report on a model with its metrics and its calibration. With an ensemble it has the metrics of each part as well."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recurcli.data.tasks import Task
from recurcli.evaluation.calibration import calibration_of
from recurcli.evaluation.inference import report_of
from recurcli.evaluation.metrics import Report, accuracy_baselines
from recurcli.linear.ensemble import Ensemble


def report_with_parts(
    encoder: np.ndarray,
    linear: np.ndarray | None,
    ensemble: Ensemble | None,
    labels: Sequence[str],
    task: Task,
    known: Mapping[str, float],
    temperature: float = 1.0,
) -> tuple[Report, dict[str, Any], np.ndarray]:
    """Return the report on the model, facts for the JSON, and the logits (N, C) of the model.

    `encoder` and `linear` are the logits (N, C) of the parts; `linear` is None without a linear model. Without an ensemble, the
    linear model is a baseline only. The facts are the `baselines` (`known` are the task's own) and the `calibration` at the
    `temperature` of the model. If there is an ensemble, they also have its weights and the scores of both parts alone.
    """
    report, logits = report_of(encoder, labels, task), encoder
    baseline = None if linear is None else report_of(linear, labels, task)
    facts: dict[str, Any] = {"baselines": accuracy_baselines(labels, baseline, known)}
    if ensemble is not None:
        assert linear is not None and baseline is not None, "an ensemble has a linear model"
        facts |= {"ensemble": ensemble.to_json(), "parts": {"encoder": report.scores(), "linear": baseline.scores()}}
        logits = ensemble.join(encoder, linear)
        report = report_of(logits, labels, task)
    return report, {**facts, "calibration": calibration_of(logits, np.array(task.targets(labels)), temperature)}, logits
