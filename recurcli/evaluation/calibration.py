"""Calibration of probabilities: a fitted temperature, and the expected calibration error (Guo et al., ICML 2017).

Shapes: N rows, C classes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.evaluation.inference import cross_entropy, probabilities
from recurcli.linear.ensemble import fit_weights

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
