"""The ensemble: weights that fit best, and a choice that is hardly ever worse than a part alone."""

from functools import partial

import numpy as np
import pytest

from recurcli.linear.ensemble import (
    FEWEST_ROWS,
    PRIOR_WEIGHTS,
    choose_ensemble,
    fit_candidates,
    fit_weights,
    held_out_losses,
)
from recurcli.linear.fitting import fit_model
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngrams import NgramConfig

LINEAR = fit_model([("a", None), ("b", None)], [0, 1], 2, Hyperparameters(NgramConfig(characters=(1, 1)), 0.5))


def drawn(strengths: tuple[float, float], rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits (2, N, C) of two parts that know the targets (N,) by so much."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, 3, rows)
    parts = draw.normal(size=(2, rows, 3))
    for part, strength in zip(parts, strengths, strict=True):
        part[np.arange(rows), targets] += strength
    return parts, targets


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
    ensemble = choose_ensemble(
        LINEAR, (parts[0, :300], parts[1, :300]), targets[:300], partial(accuracy, targets[:300])
    )
    held_out, others = targets[300:], parts[:, 300:]
    joint = accuracy(held_out, ensemble.join(*others))[0]
    assert joint >= max(accuracy(held_out, part)[0] for part in others) - 0.01
    if strengths == (1.0, 1.0):
        assert joint > max(accuracy(held_out, part)[0] for part in others) + 0.05
    if strengths in ((0.0, 2.0), (-1.0, 1.0)):
        assert ensemble.encoder_weight == 0
    if strengths == (2.0, 0.0):
        assert ensemble.linear_weight == 0


def test_a_smaller_share_of_the_encoder_is_chosen_where_it_is_better() -> None:
    """The linear model is sure where it is wrong, so the smallest cross-entropy trusts the encoder on every row.

    The margins of the linear model are 1 on 700 rows, -2 on 150, -0.5 on 150; those of the encoder 0.9 on 65 % of each, else
    -0.9. With half of its weight the encoder corrects the last 150 rows alone; a quarter corrects none.
    """
    linear = np.repeat([1.0, -2.0, -0.5], [700, 150, 150])
    encoder = np.where(np.arange(1000) % 20 < 13, 0.9, -0.9)
    parts = [np.stack([margins, -margins], axis=1) / 2 for margins in (encoder, linear)]
    targets = np.zeros(1000, np.int64)
    fitted = fit_weights(np.stack(parts), targets, PRIOR_WEIGHTS)
    assert accuracy(targets, fitted[0] * parts[0] + fitted[1] * parts[1]) == (0.549,)
    ensemble = choose_ensemble(LINEAR, (parts[0], parts[1]), targets, lambda logits: accuracy(targets, logits))
    assert ensemble.encoder_weight / ensemble.linear_weight == pytest.approx(fitted[0] / fitted[1] / 2)
    assert accuracy(targets, ensemble.join(parts[0], parts[1]))[0] > 0.79


def test_an_ensemble_of_clearly_lower_loss_is_kept_although_it_predicts_the_same() -> None:
    """Both parts predict the same class; where it is wrong, one or the other is unsure."""
    rows, targets = np.arange(300), np.arange(300) % 3
    right = rows % 10 < 7
    predicted = np.eye(3)[np.where(right, targets, (targets + 1) % 3)]
    linear, encoder = (predicted * np.where(right | (rows // 10 % 2 == k), 2.0, 0.1)[:, None] for k in (0, 1))
    ensemble = choose_ensemble(LINEAR, (encoder, linear), targets, partial(accuracy, targets))
    assert min(ensemble.encoder_weight, ensemble.linear_weight) > 0
    assert accuracy(targets, ensemble.join(encoder, linear)) == accuracy(targets, linear)


def test_lower_loss_counts_if_accuracy_is_higher_by_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 rows the ensemble turns 8 to right and k to wrong: its gain is 8 - k rows, the standard error sqrt(8 + k).

    Where the ensemble is very sure of a wrong row, its loss is higher.
    """
    monkeypatch.setattr("recurcli.linear.ensemble.STANDARD_ERRORS", np.inf)
    monkeypatch.setattr("recurcli.linear.ensemble.fit_weights", lambda parts, *_: np.ones(len(parts)))
    targets = np.zeros(400, np.int64)
    for wrong, sure, wins in ((1, 4, True), (4, 4, True), (5, 4, False), (8, 4, False), (1, 400, False)):
        linear = np.tile([1.0, 0.0], (400, 1))
        encoder = np.tile([0.5, 0.0], (400, 1))
        linear[:8], encoder[:8] = [-0.1, 0.0], [4.0, 0.0]
        linear[8 : 8 + wrong], encoder[8 : 8 + wrong] = [0.1, 0.0], [-sure, 0.0]
        encoder[30:50] = [-0.5, 0.0]  # wrong alone, and outvoted
        ensemble = choose_ensemble(LINEAR, (encoder, linear), targets, partial(accuracy, targets))
        assert (ensemble.encoder_weight, ensemble.linear_weight) == (float(wins), 1.0), (wrong, sure)


def test_few_rows_keep_no_ensemble() -> None:
    for rows in (FEWEST_ROWS - 1, FEWEST_ROWS):
        parts, targets = drawn((1.5, 1.5), rows=rows)
        ensemble = choose_ensemble(LINEAR, (parts[0], parts[1]), targets, partial(accuracy, targets))
        assert bool(ensemble.encoder_weight and ensemble.linear_weight) == (rows >= FEWEST_ROWS)


def test_a_row_with_the_weight_three_counts_as_three_rows() -> None:
    parts, targets = drawn((1.0, 1.0), rows=200)
    factors = np.where(np.arange(200) % 4, 1, 3)
    repeated = np.arange(200).repeat(factors)
    found = fit_candidates(parts, targets, factors.astype(float))
    np.testing.assert_allclose(found, fit_candidates(parts[:, repeated], targets[repeated]), atol=1e-4)
    assert np.abs(found - fit_candidates(parts, targets)).max() > 0.01


def test_each_row_is_scored_with_the_weights_of_the_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, targets = drawn((1.0, 1.0), rows=301)
    halves = []

    def numbered(rows: np.ndarray, labels: np.ndarray, _: None) -> np.ndarray:
        halves.append((rows, labels))
        return np.array([[len(halves), 0.0]])

    monkeypatch.setattr("recurcli.linear.ensemble.fit_candidates", numbered)
    losses = held_out_losses(parts, targets)[0]
    sets = [{row.tobytes() for row in rows[0]} for rows, _ in halves]
    assert not sets[0] & sets[1]
    assert len(sets[0] | sets[1]) == 301
    assert np.abs(np.bincount(halves[0][1]) - np.bincount(halves[1][1])).max() <= 1
    for row in range(301):
        weight = 2 if parts[0, row].tobytes() in sets[0] else 1
        logits = weight * parts[0, row]
        assert losses[row] == pytest.approx(np.log(np.exp(logits).sum()) - logits[targets[row]])


def test_the_linear_model_without_the_encoder_has_a_weight_of_its_own() -> None:
    parts, targets = drawn((1.5, 1.5))
    ensemble = choose_ensemble(LINEAR, (parts[0], parts[1]), targets, partial(accuracy, targets))
    alone = ensemble.without_encoder()
    assert (alone.encoder_weight, alone.linear_weight > 0, ensemble.encoder_weight > 0) == (0, True, True)
    scales = np.array([0.9, 1.0, 1.1]) * alone.linear_weight
    losses = [loss(np.array([scale]), parts[1:], targets, PRIOR_WEIGHTS[1:]) for scale in scales]
    assert losses[1] == min(losses)


def test_a_part_that_the_cross_entropy_rejects_is_still_a_candidate() -> None:
    """Right by a little on many rows, wrong by a lot on some: both weights of the ensemble are then 0."""
    targets = np.arange(90) % 3
    linear = np.eye(3)[targets] * 0.01
    wrong = np.arange(90) % 10 < 4
    linear[wrong] = np.eye(3)[(targets[wrong] + 1) % 3] * 90
    encoder = -linear
    ensemble = choose_ensemble(LINEAR, (encoder, linear), targets, lambda logits: accuracy(targets, logits))
    assert accuracy(targets, ensemble.join(encoder, linear)) == (0.6,)
    assert ensemble.linear_weight > 0
