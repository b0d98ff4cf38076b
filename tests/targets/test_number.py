"""Numbers: how they are read, the gradients of their losses, ridge regression, and metrics against scikit-learn and SciPy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csr_matrix
from sklearn import metrics as sk

from recurcli.config import DataConfig, FinetuningConfig, LinearConfig
from recurcli.errors import DataError, UsageError
from recurcli.evaluation.decision import choose
from recurcli.files import OpenedFile
from recurcli.linear import fitting
from recurcli.linear.model import LinearModel
from recurcli.metrics import NUMBER_METRICS, format_score, metric_named
from recurcli.targets import Number, target_from_json

Numbers = NDArray[np.float64]


def target_of(*numbers: float) -> Number:
    return Number.of([*numbers], DataConfig())


STARS = target_of(1, 2, 3, 4, 5)


def ratings(rows: int = 300, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Whole numbers from 1 to 5, and predictions near them of which some are equal."""
    draw = np.random.default_rng(seed)
    y = draw.integers(1, 6, rows).astype(float)
    return y, (0.6 * y + 1.2 + draw.normal(size=rows)).round(1).clip(1, 5)


def test_the_range_the_mean_and_whole_numbers_are_those_of_the_training_rows() -> None:
    target = Number.of(["3", 1.5, "-2e0"], DataConfig())
    assert (target.low, target.high, target.is_whole) == (-2, 3, False)
    assert (target.mean, target.std) == pytest.approx((np.mean([3, 1.5, -2]), np.std([3, 1.5, -2])))
    assert STARS.is_whole
    assert target_from_json(json.loads(json.dumps(target.to_json())), ("number",)) == target


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([3.0, "3"], "holds only 3 in all 2 rows; there is nothing to predict"),
        ([0.5], "holds only 0.5 in its only row"),
        ([1e300, -1e300], "numbers from -1e\\+300 to 1e\\+300, whose variance no double can hold"),
        ([0.1] * 3, "holds only 0.1 in all 3 rows"),
    ],
)
def test_numbers_that_cannot_be_learned_are_refused(cells: list[Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Number.of(cells, DataConfig())


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("abc", "label 'abc' is not a number"),
        ("3,5", "label '3,5' is not a number"),
        ("nan", "label 'nan' is not a finite number"),
        ("-inf", "label '-inf' is not a finite number"),
        (("a", "b"), r"has 2 labels \('a', 'b'\) in a list, not a number"),
        ((), "has 0 labels in a list, not a number"),
    ],
)
def test_a_cell_that_is_no_finite_number_is_refused(cell: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Number.cell_of(cell)


def test_a_damaged_target_is_refused() -> None:
    for key, value in {"std": 0.0, "mean": float("nan"), "low": "a"}.items():
        with pytest.raises(ValueError, match="target: "):
            target_from_json({**STARS.to_json(), key: value}, ("number",))


def test_numbers_are_shown_with_six_digits() -> None:
    assert [STARS.text_of(cell) for cell in (3.0, 0.1 + 0.2, "2.50", 1234567.0)] == ["3", "0.3", "2.5", "1234567"]
    assert [STARS.text_of(cell) for cell in (-1e-9, 20.0, 1 / 3)] == ["0", "20", "0.33333"]
    far = target_of(20230115, 20230120, 20230131)
    assert [far.text_of(cell) for cell in (20230115.25, 20230120.0)] == ["20230115.25", "20230120"]
    assert STARS.decode(STARS.encode(["2", 2.5])) == [2.0, 2.5]


def test_a_number_far_from_the_others_is_warned_of() -> None:
    assert not [*STARS.doubts()]
    [doubt] = target_of(*range(1000), 1e6).doubts()
    assert "the number 1e+06 is 32 standard deviations from the mean" in doubt


def test_strata_are_deciles_and_equal_numbers_are_in_one() -> None:
    y = np.random.default_rng(0).permutation(100).astype(float)
    assert (STARS.strata(y) == y // 10).all()
    assert STARS.strata_names(y)[int(np.flatnonzero(y == 42)[0])] == "40 to 49"
    same = np.array([0.0] * 55 + [*range(1, 46)])
    assert np.bincount(STARS.strata(same)).tolist() == [55, 0, 0, 0, 0, 5, 10, 10, 10, 10]
    assert STARS.strata(np.zeros(0)).shape == (0,)


def test_settings_of_classes_are_refused() -> None:
    settings: list[tuple[dict[str, Any], str]] = [
        ({"loss": "hinge"}, "loss"),
        ({"label_smoothing": 0.1}, "label_smoothing"),
        ({"thresholds": "macro_f1"}, "thresholds"),
        ({"class_weights": "balanced"}, "class_weights"),
        ({"metric": "macro_f1"}, "metric: these numbers have mae, rmse, .*f1_at_least:X"),
    ]
    STARS.check_settings(FinetuningConfig(metric="f1_at_least:3"))
    for each, words in settings:
        with pytest.raises(UsageError, match=f"finetuning.{words}"):
            STARS.check_settings(FinetuningConfig(**each))
    assert STARS.weights_of_labels("none", np.ones(3)) == [1]


def test_gradient_and_curvature_are_the_differences_of_the_losses() -> None:
    draw, step = np.random.default_rng(0), 1e-4
    y, logits, parts = draw.normal(3, 1, 20), draw.normal(size=(20, 1)), draw.normal(size=(2, 20, 1))
    losses, gradient = STARS.losses_and_gradient(logits, y)
    ahead, behind = (STARS.losses_and_gradient(logits + sign * step, y)[0] for sign in (1, -1))
    assert gradient[:, 0] == pytest.approx((ahead - behind) / (2 * step))
    both = torch.from_numpy(logits), torch.from_numpy(y)
    assert STARS.linear_loss_gradient(logits, y) == pytest.approx((gradient / 2).clip(-3, 3))
    assert STARS.loss(*both, FinetuningConfig()).numpy() == pytest.approx(losses)
    numbers = STARS.mean + STARS.std * logits
    assert STARS.losses_of_probabilities(numbers, y) == pytest.approx(losses)
    assert STARS.teacher_loss(both[0], both[1][:, None], 2.0).numpy() == pytest.approx(losses)

    factors, weights = draw.random(20), np.array([0.3, 0.9])

    def slope(weights: Numbers) -> Numbers:
        own = STARS.losses_and_gradient(np.tensordot(weights, parts, 1), y)[1]
        return np.tensordot(parts, own * factors[:, None], 2)

    found = STARS.curvature(np.tensordot(weights, parts, 1), parts, factors)
    expected = [(slope(weights + step * each) - slope(weights - step * each)) / (2 * step) for each in np.eye(2)]
    assert found == pytest.approx(np.array(expected))


def test_predictions_stay_within_the_range_of_the_training_rows() -> None:
    assert STARS.decide(STARS.probabilities(np.array([[-9.0], [0.0], [9.0]]))).tolist() == [1, 3, 5]
    y = np.array([2.0, 5.0])
    assert STARS.constant(y).tolist() == [3.5, 3.5]
    assert STARS.probabilities(STARS.constant_logits(y)[None]) == pytest.approx(3.5)
    assert STARS.linear_obstacle(np.array([2.0, 2.0])) == "training rows with two different numbers"
    assert not STARS.linear_obstacle(y)


@pytest.mark.parametrize("features", [5, 60])
def test_the_linear_model_is_ridge_regression(features: int) -> None:
    draw = np.random.default_rng(0)
    x, row_weights, c = draw.normal(size=(40, features)).astype(np.float32), draw.random(40) + 0.5, 0.25
    y = 3 + x[:, 0] + draw.normal(size=40)
    weights, bias = STARS.fit_linear(csr_matrix(x), y, c, row_weights)
    ones = np.column_stack([x, np.ones(40)]).astype(float)  # the least (|w|² + b²) / 2 + c sum of f (x w + b - z)²
    z = (y - STARS.mean) / STARS.std
    exact = np.linalg.solve(
        np.eye(features + 1) + 2 * c * ones.T @ (row_weights[:, None] * ones), 2 * c * ones.T @ (row_weights * z)
    )
    assert np.append(weights, bias) == pytest.approx(exact, abs=5e-3)


def reviews(rows: int, seed: int) -> tuple[list[tuple[str, None]], Numbers]:
    """Texts whose number is the sum of the values of their words, and noise."""
    draw = np.random.default_rng(seed)
    words = [f"w{chr(97 + each % 26)}{each}" for each in range(60)]
    chosen = draw.integers(60, size=(rows, 8))
    y = np.linspace(-2, 2, 60)[chosen].sum(axis=1) + draw.normal(size=rows)
    return [(" ".join(words[each] for each in own), None) for own in chosen], y


def test_sgd_predicts_about_what_ridge_does() -> None:
    (texts, y), (others, numbers) = reviews(1500, 0), reviews(500, 1)
    target = Number.of(y.tolist(), DataConfig())
    chosen = fitting.search_hyperparameters(texts, y, target, LinearConfig())
    assert chosen.c > fitting.C_GRID[0]
    assert chosen.score == pytest.approx(1.0, abs=0.3)  # the mean absolute error
    found = {}
    for solver in ("Ridge", "SGD"):
        model = fitting.fit_model(texts, y, target, replace(chosen, solver=solver))
        found[solver] = target.decide(target.probabilities(model.logits(others)))
        assert target.score("r2", numbers, found[solver]) > 0.85
    assert target.score("pearson", found["Ridge"], found["SGD"]) > 0.99


def test_a_linear_model_of_numbers_is_stored_with_its_solver(tmp_path: Path) -> None:
    texts, y = reviews(60, 0)
    model = fitting.fit_model(
        texts, y, target_of(*y), fitting.search_hyperparameters(texts, y, target_of(*y), LinearConfig())
    )
    path = tmp_path / "linear.safetensors"
    path.write_bytes(model.to_bytes())
    assert model.hyperparameters.solver == "Ridge"
    assert LinearModel.load(OpenedFile(path)).facts(texts) == model.facts(texts)


def test_metrics_are_those_of_scikit_learn_and_scipy() -> None:
    y, predictions = ratings()
    y[0] = 2.25
    report = STARS.report(y, predictions, predictions[:, None], loss=0.5)
    rounded = y.round().astype(int), predictions.round().astype(int)
    expected = {
        "mae": sk.mean_absolute_error(y, predictions),
        "rmse": sk.root_mean_squared_error(y, predictions),
        "r2": sk.r2_score(y, predictions),
        "pearson": stats.pearsonr(y, predictions).statistic,
        "spearman": stats.spearmanr(y, predictions).statistic,
        "quadratic_kappa": sk.cohen_kappa_score(*rounded, weights="quadratic", labels=[1, 2, 3, 4, 5]),
        "loss": 0.5,
    }
    assert {name: report[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert [*NUMBER_METRICS] == [*expected][:-1]
    cut = y >= 3, predictions >= 3
    for kind, of_scikit in {"f1": sk.f1_score, "precision": sk.precision_score, "recall": sk.recall_score}.items():
        assert STARS.score(f"{kind}_at_least:3", y, predictions) == pytest.approx(of_scikit(*cut))


def test_metrics_of_large_numbers_far_from_0_lose_no_digits() -> None:
    y, predictions = ratings()
    far = target_of(*(1.7e9 + y))
    for name in ("r2", "pearson", "spearman", "quadratic_kappa"):
        assert far.score(name, 1.7e9 + y, 1.7e9 + predictions.round(1)) == pytest.approx(
            STARS.score(name, y, predictions), abs=1e-6
        )


def test_metrics_of_equal_numbers_or_predictions_are_0() -> None:
    y, predictions = ratings(20)
    for numbers, own in ((y, np.full(20, 2.1)), (np.full(20, 4.0), predictions), (np.full(20, 0.1), np.full(20, 0.1))):
        report = STARS.report(numbers, own, None)
        assert [report[name] for name in ("pearson", "spearman")] == [0, 0]
    assert STARS.report(np.full(20, 4.0), predictions, None)["r2"] == 0
    assert STARS.score("quadratic_kappa", y, y) == pytest.approx(1)
    assert STARS.score("f1_at_least:9", y, predictions) == 0


def test_metrics_that_these_numbers_do_not_have_are_refused() -> None:
    y, predictions = ratings(20)
    halves = target_of(0.5, 1, 2)
    assert "quadratic_kappa" not in halves.report(y, predictions, None)
    for target, name in ((halves, "quadratic_kappa"), (STARS, "accuracy"), (STARS, "f1:3"), (STARS, "f1_at_least:")):
        with pytest.raises(UsageError, match="these numbers have mae, "):
            target.score(name, y, predictions)
    with pytest.raises(UsageError, match="f1_at_least:x: 'x' is not a number"):
        STARS.check_metric("--metric", "f1_at_least:x")


def test_metrics_have_words_a_direction_and_decimals() -> None:
    shown = {"mae": "1.2346", "r2": "1.235", "f1_at_least:3": "123.5"}
    assert {name: format_score(name, 1.23456) for name in shown} == shown
    assert metric_named("f1_at_least:2.50").words == "F1 of at least 2.5"
    assert [metric_named(name).minimize for name in ("mae", "rmse", "r2", "f1_at_least:3")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("name", [*NUMBER_METRICS, "f1_at_least:3", "recall_at_least:4"])
def test_resamples_are_those_of_a_plain_loop(name: str) -> None:
    y, first = ratings(60)
    runs = np.stack([first, ratings(60, 1)[1]])
    found = STARS.resampled(name, y, runs, resamples=25, seed=3)
    draw, expected = np.random.default_rng(3), []
    ranks = stats.rankdata(y), stats.rankdata(runs, axis=1)
    for _ in range(25):
        rows = draw.integers(60, size=60)
        if name == "spearman":  # ranks of all rows
            expected.append([stats.pearsonr(ranks[0][rows], own[rows]).statistic for own in ranks[1]])
        else:
            expected.append([STARS.score(name, y[rows], own[rows]) for own in runs])
    assert found == pytest.approx(np.array(expected).T)


def test_intervals_hold_the_scores_and_say_which_model_is_better() -> None:
    y, predictions = ratings(400)
    intervals = STARS.intervals(y, predictions)
    for name, limits in intervals.items():
        assert limits is not None
        assert limits[0] < STARS.score(name, y, predictions) < limits[1]
    low, high = STARS.interval(y, predictions)
    assert [low, high] == intervals["mae"]
    error = np.abs(y - predictions)
    assert (high - low) / 2 == pytest.approx(1.96 * error.std() / 20, rel=0.1)
    paired = STARS.paired_interval(y, predictions, STARS.constant(y))
    assert paired is not None
    assert paired[1] < 0
    assert STARS.paired_interval(y, predictions, predictions) == (0, 0)
    assert {*STARS.intervals(y[:9], predictions[:9]).values()} == {None}


def test_the_calibration_has_the_numbers_beside_the_deciles_of_the_predictions() -> None:
    y, _ = ratings(100)
    predictions = y / 2
    found = STARS.calibration(predictions[:, None], y)
    assert [each["number"] for each in found["bins"]] == [1, 2, 3, 4, 5]
    assert [each["prediction"] for each in found["bins"]] == [0.5, 1, 1.5, 2, 2.5]
    assert sum(each["rows"] for each in found["bins"]) == 100
    assert found["loss"] == pytest.approx(np.mean((y / 2) ** 2) / 2)


def test_few_rows_leave_the_weight_of_ridge_near_one() -> None:
    target = target_of(1, 2, 3, 4)
    logits = (np.array([[1.0], [4.0]]) - target.mean) / target.std  # those of the numbers
    assert choose({"linear": logits}, np.array([1.0, 4.0]), target).weights["linear"] == pytest.approx(1)


def test_a_prediction_is_right_if_it_rounds_to_the_whole_number() -> None:
    y, predictions = np.array([1.0, 2.0, 3.0]), np.array([1.4, 2.6, 3.0])
    assert STARS.hits(y, predictions).tolist() == [True, False, True]
    assert target_of(0.5, 1).hits(y, predictions).tolist() == [False, False, True]
    assert STARS.errors(y, predictions, predictions[:, None]) == pytest.approx([0.4, 0.6, 0])


def test_predictions_that_hardly_differ_are_warned_of() -> None:
    y, predictions = ratings(100)
    assert not [*STARS.notes(STARS.report(y, predictions, None))]
    [note] = STARS.notes(STARS.report(y, np.full(100, 3.0), None))
    assert (note.level, "hardly differ" in note.text) == ("warning", True)
