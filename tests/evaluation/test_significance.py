"""Tests between classifiers: McNemar against scipy, Holm by hand, the bootstrap against a plain loop and on simulations."""

import numpy as np
import pytest
from numpy.typing import NDArray

from recurcli.evaluation.metrics import METRICS
from recurcli.evaluation.significance import (
    bootstrap_difference,
    holm,
    intervals,
    mcnemar,
    resampled_scores,
    share_interval,
)

Array = NDArray[np.float64]
SCORED = [name for name, metric in METRICS.items() if metric.of_counts is not None]


def accuracies(right: NDArray[np.bool_], resamples: int) -> tuple[Array, Array]:
    """Accuracies (R,) of runs with right and wrong rows (R, N), and those on resampled rows (R, B)."""
    of_counts = METRICS["accuracy"].of_counts
    assert of_counts is not None
    labels = np.zeros(right.shape[1], np.int64)
    return right.mean(axis=1), resampled_scores(of_counts, labels, (~right).astype(np.int64), resamples=resamples)


def simulated(generator: np.random.Generator, rows: int, difference: float, seeds_sd: float) -> list[NDArray[np.bool_]]:
    """Two groups of three runs on the same rows, which are as hard for all; the first is better by `difference`."""
    hardness = generator.random(rows)
    chances = 0.5 + np.array([[difference / 2], [-difference / 2]]) + seeds_sd * generator.normal(size=(2, 3))
    noise = 0.3 * generator.random((2, 3, rows))  # rows on which the seeds of a group differ
    return list((hardness * 0.7 + noise) < _quantile(chances)[:, :, None])


def _quantile(chance: Array) -> Array:
    """The threshold under which 0.7 U + 0.3 V lies with this chance, for uniform U and V and chances in [0.22, 0.78]."""
    return 0.15 + 0.7 * chance


def test_every_metric_of_the_table_can_be_tested() -> None:
    assert set(SCORED) == set(METRICS)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (5, 5), (3, 12), (12, 3), (40, 61), (900, 1100)])
def test_mcnemar_is_the_exact_binomial_test(first: int, second: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("name", SCORED)
def test_resampled_scores_are_the_metric_on_the_drawn_rows(name: str) -> None:
    generator = np.random.default_rng(5)
    labels = generator.choice([0, 1, 3], size=25)  # no row has class 2, and small draws miss others
    predictions = generator.integers(4, size=(3, 25))
    predictions[2] = 1
    metric = METRICS[name]
    assert metric.of_counts is not None
    found = resampled_scores(metric.of_counts, labels, predictions, resamples=40, seed=7)
    draws = np.random.default_rng(7)
    for resample in range(40):
        rows = draws.integers(25, size=25)
        expected = [metric.compute(labels[rows].tolist(), run[rows].tolist()) for run in predictions]
        assert found[:, resample] == pytest.approx(expected)


def test_equal_predictions_do_not_differ() -> None:
    right = np.random.default_rng(0).random((1, 90)) < 0.37
    scores, resampled = accuracies(np.repeat(right, 3, axis=0), 200)
    found = bootstrap_difference(scores, scores, resampled, resampled)
    assert (found.p_value, found.low, found.high, found.detectable) == (1.0, 0.0, 0.0, 0.0)


def test_the_detectable_difference_of_two_runs_is_2_8_standard_errors_of_mcnemar() -> None:
    right = np.array([[True] * 60 + [False] * 340, [False] * 30 + [True] * 90 + [False] * 280])
    scores, resampled = accuracies(right, 10_000)
    found = bootstrap_difference(scores[:1], scores[1:], resampled[:1], resampled[1:])
    only_first, only_second = 30, 60
    error = (only_first + only_second - (only_first - only_second) ** 2 / 400) ** 0.5 / 400
    assert found.detectable == pytest.approx(2.8016 * error, rel=0.05)
    assert found.low == pytest.approx(-0.075 - 1.96 * error, abs=0.003)
    assert found.high == pytest.approx(-0.075 + 1.96 * error, abs=0.003)
    assert found.p_value == pytest.approx(mcnemar(only_first, only_second), abs=0.002)


def test_two_seeds_that_differ_much_show_no_difference_of_groups() -> None:
    generator = np.random.default_rng(3)
    chances = np.array([[0.60], [0.50], [0.48], [0.40]])
    scores, resampled = accuracies(generator.random((4, 5000)) < chances, 2000)
    found = bootstrap_difference(scores[:2], scores[2:], resampled[:2], resampled[2:])
    assert found.p_value > 0.1
    one_each = bootstrap_difference(scores[:1], scores[2:3], resampled[:1], resampled[2:3])
    assert one_each.p_value < 0.01, "a single run adds no error of its seed"


@pytest.mark.parametrize(
    ("times", "seeds_sd", "false_alarms", "coverage"),
    [
        (40, 0.01, 0.1, 0.85),
        *(pytest.param(400, sd, 0.065, 0.93, marks=pytest.mark.slow) for sd in (0.0, 0.01, 0.02, 0.05)),
    ],
)
def test_without_a_difference_p_is_rarely_small_and_with_one_the_interval_holds_it(
    times: int, seeds_sd: float, false_alarms: float, coverage: float
) -> None:
    generator = np.random.default_rng(11)
    p_values, covered = [], 0
    for _ in range(times):
        for difference in (0.0, 0.08):
            scores, resampled = zip(
                *(accuracies(group, 300) for group in simulated(generator, 300, difference, seeds_sd)), strict=True
            )
            found = bootstrap_difference(scores[0], scores[1], resampled[0], resampled[1])
            if difference:
                covered += found.low <= difference <= found.high
            else:
                p_values.append(found.p_value)
    assert np.mean(np.array(p_values) <= 0.05) <= false_alarms
    assert 0.25 <= np.mean(np.array(p_values) <= 0.5) <= 0.65
    assert covered >= coverage * times


@pytest.mark.slow
def test_the_detectable_difference_of_groups_is_found_four_times_in_five() -> None:
    """With the seeds' error too: three seeds a group, differences as large as each comparison says that it can detect."""
    generator, found = np.random.default_rng(4), []
    for _ in range(60):
        scores, resampled = zip(*(accuracies(g, 300) for g in simulated(generator, 400, 0.0, 0.02)), strict=True)
        found.append(bootstrap_difference(scores[0], scores[1], resampled[0], resampled[1]).detectable)
    effect, hits = float(np.mean(found)), 0
    for _ in range(150):
        scores, resampled = zip(*(accuracies(g, 300) for g in simulated(generator, 400, effect, 0.02)), strict=True)
        hits += bootstrap_difference(scores[0], scores[1], resampled[0], resampled[1]).p_value <= 0.05
    assert 0.65 <= hits / 150 <= 0.95


def test_intervals_of_one_model_are_those_of_its_resampled_scores() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(3, size=400)
    predictions = np.where(generator.random(400) < 0.7, labels, generator.integers(3, size=400))
    found = intervals(METRICS, labels, predictions)
    assert set(found) == set(SCORED)
    accuracy = float((labels == predictions).mean())
    error = 1.96 * (accuracy * (1 - accuracy) / 400) ** 0.5
    assert found["accuracy"] == pytest.approx([accuracy - error, accuracy + error], abs=0.006)
    assert found["accuracy"] == list(share_interval(int((labels == predictions).sum()), 400))
    for name, limits in found.items():
        metric = METRICS[name].of_counts
        assert metric is not None
        drawn = resampled_scores(metric, labels, predictions[None], resamples=2000, seed=1)
        assert limits == pytest.approx(np.quantile(drawn, [0.025, 0.975]).tolist(), abs=0.01)


def test_the_interval_of_a_share_is_wilsons() -> None:
    z, hits, rows = 1.959964, 9, 12
    centre = (hits + z**2 / 2) / (rows + z**2)
    width = z / (rows + z**2) * (hits * (rows - hits) / rows + z**2 / 4) ** 0.5
    assert share_interval(hits, rows) == pytest.approx((centre - width, centre + width), abs=1e-6)
    low, high = share_interval(0, 5)
    assert low == 0 and 0.3 < high < 0.6
