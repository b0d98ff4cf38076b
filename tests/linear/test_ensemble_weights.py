"""The ensemble: weights that fit best, and a choice that is never worse than a part alone."""

import numpy as np
import pytest

from recurcli.linear.ensemble import NEUTRAL, Ensemble, fit_weights
from recurcli.linear.model import LinearModel

LINEAR = LinearModel.fit([("a", None), ("b", None)], [0, 1], num_classes=2)


def drawn(strengths: tuple[float, float], rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits (2, N, C) of two parts that know the targets (N,) by so much."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 3, rows)
    parts = draw.normal(size=(2, rows, 3))
    for part, strength in zip(parts, strengths, strict=True):
        part[np.arange(rows), targets] += strength
    return parts, targets


def loss(weights: np.ndarray, parts: np.ndarray, targets: np.ndarray, neutral: np.ndarray) -> float:
    """The objective, row by row."""
    total = float(((weights - neutral) ** 2).sum()) / 2
    for row, target in enumerate(targets):
        logits = sum(weight * part[row] for weight, part in zip(weights, parts, strict=True))
        total += float(np.log(np.exp(logits).sum()) - logits[target])
    return total


def accuracy(targets: np.ndarray, logits: np.ndarray) -> tuple[float, ...]:
    return (float((logits.argmax(axis=1) == targets).mean()),)


@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.2, 2.0), (-1.0, 1.5), (-1.0, -1.0)])
def test_no_other_weights_fit_better(strengths: tuple[float, float]) -> None:
    parts, targets = drawn(strengths)
    weights = fit_weights(parts, targets, NEUTRAL)
    best = loss(weights, parts, targets, NEUTRAL)
    assert (weights >= 0).all()
    for step in np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, 1]]) * 1e-2:
        assert loss(np.maximum(weights + step, 0), parts, targets, NEUTRAL) >= best


def test_few_rows_leave_the_weights_near_the_neutral_ones() -> None:
    parts, targets = drawn((3.0, 3.0), rows=1)
    assert np.abs(fit_weights(parts, targets, NEUTRAL) - NEUTRAL).max() < 0.5
    separable = np.stack([np.eye(3)[targets]] * 2) * 5
    assert np.isfinite(fit_weights(separable, targets, NEUTRAL)).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.0, 2.0), (2.0, 0.0), (-1.0, 1.0), (-1.0, -1.0)])
def test_it_is_never_worse_than_a_part_alone(strengths: tuple[float, float], seed: int) -> None:
    parts, targets = drawn(strengths, rows=60, seed=seed)
    ensemble = Ensemble.fit(LINEAR, (parts[0], parts[1]), targets, lambda logits: accuracy(targets, logits))
    joint = accuracy(targets, ensemble.join(parts[0], parts[1]))
    assert joint >= max(accuracy(targets, parts[0]), accuracy(targets, parts[1]))
    if strengths == (-1.0, 1.0):
        assert (ensemble.encoder_weight, ensemble.linear_weight > 0) == (0, True)


def test_a_smaller_share_of_the_encoder_is_chosen_where_it_is_better() -> None:
    """The linear model is sure where it is wrong, so the smallest cross-entropy trusts the encoder on every row.

    The margins of the linear model are 1 on 650 rows, -2 on 200, -0.5 on 150; those of the encoder 0.9 on 65 % of each, else
    -0.9. With a quarter of its weight the encoder corrects the last 150 rows alone; an eighth corrects none.
    """
    linear = np.repeat([1.0, -2.0, -0.5], [650, 200, 150])
    encoder = np.where(np.arange(1000) % 20 < 13, 0.9, -0.9)
    parts = [np.stack([margins, -margins], axis=1) / 2 for margins in (encoder, linear)]
    targets = np.zeros(1000, np.int64)
    fitted = fit_weights(np.stack(parts), targets, NEUTRAL)
    assert accuracy(targets, fitted[0] * parts[0] + fitted[1] * parts[1]) == (0.65,)
    ensemble = Ensemble.fit(LINEAR, (parts[0], parts[1]), targets, lambda logits: accuracy(targets, logits))
    assert ensemble.encoder_weight / ensemble.linear_weight == pytest.approx(fitted[0] / fitted[1] / 4)
    assert accuracy(targets, ensemble.join(parts[0], parts[1]))[0] > 0.74


def test_the_sum_must_be_better_by_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 rows the sum turns 8 to right and k to wrong: its gain is 8 - k rows, the standard error sqrt(8 + k)."""
    targets = np.zeros(400, np.int64)
    for wrong, wins in ((1, True), (4, True), (5, False), (8, False)):
        linear = np.tile([1.0, 0.0], (400, 1))
        encoder = np.tile([0.5, 0.0], (400, 1))
        linear[:8], encoder[:8] = [-0.1, 0.0], [4.0, 0.0]
        linear[8 : 8 + wrong], encoder[8 : 8 + wrong] = [0.1, 0.0], [-4.0, 0.0]
        encoder[30:50] = [-0.5, 0.0]  # wrong alone, and outvoted
        monkeypatch.setattr("recurcli.linear.ensemble.fit_weights", lambda parts, *_: np.ones(len(parts)))
        ensemble = Ensemble.fit(
            LINEAR, (encoder, linear), targets, lambda logits: (*accuracy(targets, logits), logits.std())
        )
        assert (ensemble.encoder_weight, ensemble.linear_weight) == ((1.0, 1.0) if wins else (0.0, 1.0)), wrong


def test_a_part_that_the_cross_entropy_rejects_is_still_a_candidate() -> None:
    """Right by a little on many rows, wrong by a lot on some: both weights of the sum are then 0."""
    targets = np.arange(90) % 3
    linear = np.eye(3)[targets] * 0.01
    wrong = np.arange(90) % 10 < 4
    linear[wrong] = np.eye(3)[(targets[wrong] + 1) % 3] * 90
    encoder = -linear
    ensemble = Ensemble.fit(LINEAR, (encoder, linear), targets, lambda logits: accuracy(targets, logits))
    assert accuracy(targets, ensemble.join(encoder, linear)) == (0.6,)
    assert ensemble.linear_weight > 0
