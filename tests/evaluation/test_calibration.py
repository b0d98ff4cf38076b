"""The temperature, and the calibration error against a plain loop."""

import numpy as np
import pytest
from class_numbers import fit_calibration, numbered, probabilities

from recurcli.targets.one_label import BINS


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    return float(numbered(logits.shape[1]).losses_and_gradient(logits, targets)[0].mean())


def drawn_rows(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, C) and targets that are drawn from their softmax, so that the logits are calibrated."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(rows, classes))
    targets = np.array([generator.choice(classes, p=row) for row in probabilities(logits)])
    return logits, targets


@pytest.mark.parametrize("factor", [0.4, 1.0, 5.0])
def test_the_temperature_of_scaled_logits_is_their_factor(factor: float) -> None:
    logits, targets = drawn_rows(4000, 5, seed=1)
    temperature = 1 / fit_calibration(factor * logits, targets, 1.0)
    assert temperature == pytest.approx(factor, rel=0.08)
    losses = [
        cross_entropy(factor * logits / other, targets)
        for other in (temperature, 0.97 * temperature, 1.03 * temperature)
    ]
    assert min(losses) == losses[0]


def test_rows_without_a_mistake_do_not_lead_to_certainty() -> None:
    targets = np.arange(20) % 2
    logits = np.eye(2)[targets]
    assert 1 < fit_calibration(logits, targets, 1.0) < 5
    reversed_targets = 1 - targets
    assert np.isfinite(1 / fit_calibration(50 * logits, reversed_targets, 1.0))


def test_the_calibration_error_is_that_of_a_plain_loop() -> None:
    logits, targets = drawn_rows(300, 4, seed=2)
    shares = probabilities(logits / 0.5)
    found = numbered(4).calibration(shares, targets)
    error = 0.0
    for number in range(BINS):
        confidences, hits = [], []
        for row, target in zip(shares, targets, strict=True):
            if number / BINS <= row.max() < (number + 1) / BINS:
                confidences.append(row.max())
                hits.append(row.argmax() == target)
        if hits:
            error += len(hits) / len(targets) * abs(np.mean(hits) - np.mean(confidences))
    assert found["ece"] == pytest.approx(error, abs=1e-12)
    assert sum(own["rows"] for own in found["bins"]) == 300
    assert found["loss"] == pytest.approx(cross_entropy(2 * logits, targets))


def test_a_certain_row_is_in_the_last_bin() -> None:
    found = numbered(2).calibration(probabilities(np.array([[900.0, 0.0]])), np.array([0]))
    assert [(own["high"], own["rows"], own["accuracy"]) for own in found["bins"]] == [(1.0, 1, 1.0)]
    assert found["ece"] == 0
