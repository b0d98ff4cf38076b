"""The report on a model with a prior: the metrics of the sum, and of the encoder and the linear model alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recurcli.data.tasks import Task
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
) -> tuple[Report, dict[str, Any]]:
    """Return the report on the model that has the logits `encoder` and `linear` (each N, C), and facts for the JSON.

    The facts are the `floors` (`known`: the task's own) and, if there is a prior, its weights and the scores of both parts
    alone. Without a prior, `linear` is a floor only; None: there is no linear model.
    """
    report = report_of(encoder, labels, task)
    if linear is None:
        return report, {"floors": accuracy_floors(labels, None, known)}
    floor = report_of(linear, labels, task)
    facts: dict[str, Any] = {"floors": accuracy_floors(labels, floor, known)}
    if prior is not None:
        facts |= {"prior": prior.to_json(), "parts": {"encoder": report.scores(), "linear": floor.scores()}}
        report = report_of(prior.join(encoder, linear), labels, task)
    return report, facts
