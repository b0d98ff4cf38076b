"""The report on a model: metrics, those of its parts, and calibration.

Probabilities are calibrated by a fitted temperature (Guo et al., ICML 2017). Shapes: N rows, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.tasks import Task
from recurcli.evaluation.inference import cross_entropy, probabilities, report_of
from recurcli.evaluation.metrics import Report, accuracy_baselines
from recurcli.linear.ensemble import Ensemble, fit_weights

BINS = 15
"""Number of equal bins of the highest probability, as in Guo et al., section 4."""


def fit_temperature(logits: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """Return the temperature T with which softmax(logits / T) has the smallest cross-entropy (Guo et al., section 4.2).

    The logits are (N, C), the targets (N,). The penalty |1/T - 1|^2 / 2 is added to the sum over the rows; it is ours. It
    decides if a few rows, or rows without a mistake, would lead to a temperature near 0.
    """
    [inverse] = fit_weights(logits[None], targets, np.ones(1))
    return 1 / max(float(inverse), 1e-3)


def calibration_of(logits: NDArray[np.float64], targets: NDArray[np.int64], temperature: float) -> dict[str, Any]:
    """Return the calibration of softmax(logits / temperature) (N, C) on the targets (N,), for the JSON.

    `ece` is the expected calibration error (Guo et al., equation 3): the mean over the rows of |accuracy - confidence| of
    their bin. `bins` lists the bins that have rows, with their limits. `loss` is the mean cross-entropy in nats.
    """
    shares = probabilities(logits, temperature)
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == targets
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    bins = [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "rows": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "accuracy": float(right[inside].mean()),
        }
        for number in range(BINS)
        if (inside := place == number).any()
    ]
    error = sum(own["rows"] * abs(own["accuracy"] - own["confidence"]) for own in bins) / len(targets)
    return {
        "temperature": temperature,
        "ece": error,
        "loss": cross_entropy(logits / temperature, targets),
        "bins": bins,
    }


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
