"""The ensemble: weights that fit best, and a choice that is hardly ever worse than a part alone."""

import numpy as np
import pytest
from class_numbers import choose, fit_weights, standard_errors

from recurcli.evaluation.decision import Kept
from recurcli.linear.ensemble import ENCODER_FACTOR
from recurcli.targets import OneLabel

PRIOR_WEIGHTS = np.array(OneLabel.prior_weights)


def drawn(strengths: tuple[float, float], rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits (2, N, C) of two parts that know the targets (N,) by so much."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 3, rows)
    parts = draw.normal(size=(2, rows, 3))
    for part, strength in zip(parts, strengths, strict=True):
        part[np.arange(rows), targets] += strength
    return parts, targets


def kept_by(parts: np.ndarray, targets: np.ndarray) -> Kept:
    """What is kept by logits (2, N, C) of encoder and linear model on rows with these targets (N,)."""
    return choose({"encoder": parts[0], "linear": parts[1]}, targets)


def loss(weights: np.ndarray, parts: np.ndarray, targets: np.ndarray, prior: np.ndarray) -> float:
    """The objective, row by row."""
    total = float(((weights - prior) ** 2).sum()) / 2
    for row, target in enumerate(targets):
        logits = sum(weight * part[row] for weight, part in zip(weights, parts, strict=True))
        total += float(np.log(np.exp(logits).sum()) - logits[target])
    return total


def accuracy(targets: np.ndarray, logits: np.ndarray) -> tuple[float, ...]:
    return (float((logits.argmax(axis=1) == targets).mean()),)


@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.2, 2.0), (-1.0, 1.5), (-1.0, -1.0)])
def test_no_other_weights_fit_better(strengths: tuple[float, float]) -> None:
    parts, targets = drawn(strengths)
    weights = fit_weights(parts, targets, PRIOR_WEIGHTS)
    best = loss(weights, parts, targets, PRIOR_WEIGHTS)
    assert (weights >= 0).all()
    for step in np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, 1]]) * 1e-2:
        assert loss(np.maximum(weights + step, 0), parts, targets, PRIOR_WEIGHTS) >= best


def test_few_rows_leave_the_weights_near_the_neutral_ones() -> None:
    parts, targets = drawn((3.0, 3.0), rows=1)
    assert np.abs(fit_weights(parts, targets, PRIOR_WEIGHTS) - PRIOR_WEIGHTS).max() < 0.5
    separable = np.stack([np.eye(3)[targets]] * 2) * 5
    assert np.isfinite(fit_weights(separable, targets, PRIOR_WEIGHTS)).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.0, 2.0), (2.0, 0.0), (-1.0, 1.0)])
def test_on_other_rows_it_is_hardly_ever_worse_than_a_part_alone(strengths: tuple[float, float], seed: int) -> None:
    parts, targets = drawn(strengths, rows=5000, seed=seed)
    kept = kept_by(parts[:, :300], targets[:300])
    held_out, others = targets[300:], parts[:, 300:]
    joint = accuracy(held_out, kept.logits({"encoder": others[0], "linear": others[1]}))[0]
    assert joint >= max(accuracy(held_out, part)[0] for part in others) - 0.01
    if strengths == (1.0, 1.0):
        assert joint > max(accuracy(held_out, part)[0] for part in others) + 0.05
    if strengths in ((0.0, 2.0), (-1.0, 1.0)):
        assert kept.name == "linear model"
    if strengths == (2.0, 0.0):
        assert kept.name == "encoder"


def test_a_row_with_the_weight_three_counts_as_three_rows() -> None:
    parts, targets = drawn((1.0, 1.0), rows=200)
    factors = np.where(np.arange(200) % 4, 1, 3)
    repeated = np.arange(200).repeat(factors)
    found = fit_weights(parts, targets, PRIOR_WEIGHTS, factors.astype(float))
    np.testing.assert_allclose(found, fit_weights(parts[:, repeated], targets[repeated], PRIOR_WEIGHTS), atol=1e-4)
    assert np.abs(found - fit_weights(parts, targets, PRIOR_WEIGHTS)).max() > 0.01


def test_the_linear_model_without_the_encoder_has_a_weight_of_its_own() -> None:
    parts, targets = drawn((1.5, 1.5))
    kept = kept_by(parts, targets)
    alone = kept.only_linear
    assert (kept.name, alone.name, alone.rows, [*alone.weights]) == ("ensemble", "linear model", 400, ["linear"])
    scales = np.array([0.9, 1.0, 1.1]) * alone.weights["linear"]
    losses = [loss(np.array([scale]), parts[1:], targets, PRIOR_WEIGHTS[1:]) for scale in scales]
    assert losses[1] == min(losses)


@pytest.mark.parametrize("strengths", [pytest.param((1.0, 1.0), marks=pytest.mark.slow), (0.5, 2.0)])
def test_standard_errors_are_the_deviations_of_weights_of_bootstraps(strengths: tuple[float, float]) -> None:
    parts, targets = drawn(strengths, rows=600)
    draws = np.random.default_rng(1).integers(0, 600, (200, 600))
    found = [fit_weights(parts[:, rows], targets[rows], PRIOR_WEIGHTS) for rows in draws]
    errors = standard_errors(fit_weights(parts, targets, PRIOR_WEIGHTS), parts, targets)
    np.testing.assert_allclose(errors, np.std(found, axis=0), rtol=0.2)


def test_a_row_with_the_weight_two_moves_the_standard_errors_as_that_row() -> None:
    """Weights of 2 on all rows: the curvature doubles, and so does each row's gradient."""
    parts, targets = drawn((1.0, 1.0), rows=5000)
    weights = fit_weights(parts, targets, PRIOR_WEIGHTS)
    doubled = standard_errors(weights, parts, targets, np.full(5000, 2.0))
    np.testing.assert_allclose(doubled, standard_errors(weights, parts, targets), rtol=0.01)


def test_the_encoder_has_a_share_of_its_fitted_weight_and_the_sum_is_calibrated() -> None:
    parts, targets = drawn((1.0, 1.0))
    encoder, linear = fit_weights(parts, targets, PRIOR_WEIGHTS)
    kept = kept_by(parts, targets)
    assert kept.weights["encoder"] / kept.weights["linear"] == pytest.approx(ENCODER_FACTOR * encoder / linear)
    weights = np.array([kept.weights["encoder"], kept.weights["linear"]])
    losses = [loss(scale * weights, parts, targets, weights) for scale in (0.95, 1.0, 1.05)]
    assert losses[1] == min(losses)


@pytest.mark.parametrize("strengths", [(-1.0, 1.5), (1.5, -1.0), (-1.0, -1.0)])
def test_a_part_without_weight_is_left_out_and_the_linear_model_stays_where_neither_has_one(
    strengths: tuple[float, float],
) -> None:
    kept = kept_by(*drawn(strengths))
    wanted = "encoder" if strengths[0] > 0 else "linear"
    assert (kept.name.removesuffix(" model"), kept.weights) == (wanted, {wanted: kept.alone[wanted]})
    assert kept.alone.keys() == {"encoder", "linear"}
