"""Probabilities that are bounded, and thresholds against every threshold that could be chosen."""

from typing import Any

import numpy as np
import pytest
from class_numbers import numbered, probabilities
from sklearn.metrics import f1_score

from recurcli.evaluation.decision import Kept
from recurcli.metrics import counts_of, metric_named
from recurcli.targets import OneLabel, SeveralLabels, Target
from recurcli.targets.thresholds import fit_thresholds


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (100, 2), (1, 5), (600, 15)])
def test_no_score_is_above_what_so_many_rows_can_show_and_the_labels_keep_their_order(rows: int, classes: int) -> None:
    logits = 20 * np.random.default_rng(0).normal(size=(200, classes))
    logits[0, 0] = 900.0
    plain, bounded = probabilities(logits), probabilities(logits, rows=rows)
    assert plain.max() == 1.0
    assert bounded.max() <= 1 - 1 / (rows + 2)
    assert bounded[0, 0] == pytest.approx(1 - 1 / (rows + 2))
    assert bounded.sum(axis=1) == pytest.approx(np.ones(200))
    assert (bounded.argmax(axis=1) == logits.argmax(axis=1)).all()
    ordered = np.take_along_axis(bounded, logits.argsort(axis=1), axis=1)
    assert (np.diff(ordered, axis=1) >= 0).all()


def test_rows_that_are_not_known_bound_nothing() -> None:
    logits = np.array([[1.0, 3.0, 0.5]])
    assert probabilities(logits, 2.0) == pytest.approx(np.exp(logits / 2) / np.exp(logits / 2).sum())
    assert Kept.as_is(numbered(3)).probabilities(logits) == pytest.approx(probabilities(logits))


def test_only_thresholds_of_several_labels_hold_for_the_linear_model_of_an_ensemble() -> None:
    def kept(target: Target) -> Kept:
        thresholds = {"thresholds": {"a": 0.3, "b": 0.3}}
        return Kept(
            target, "ensemble", {"encoder": 1.0, "linear": 1.0}, {"encoder": 1.0, "linear": 1.0}, thresholds=thresholds
        )

    assert kept(OneLabel(("a", "b"))).only_linear.threshold_values == []
    assert kept(SeveralLabels(("a", "b"), ",")).only_linear.threshold_values == [0.3, 0.3]


def fraud(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and targets of two classes, of which the first is rare and underrated."""
    draw = np.random.default_rng(seed)
    targets = (draw.random(rows) >= 0.06).astype(np.int64)
    rare = 1 / (1 + np.exp(-(draw.normal(size=rows) - 2.5 + 2.5 * (targets == 0))))
    return np.stack([rare, 1 - rare], axis=1), targets


def decided(shares: np.ndarray, found: dict[str, Any]) -> np.ndarray:
    return numbered(shares.shape[1]).decide(shares, [*found["thresholds"].values()])


@pytest.mark.parametrize("metric", ["f1:a", "macro_f1", "balanced_accuracy", "mcc"])
def test_the_threshold_of_two_classes_is_at_least_as_good_as_every_other(metric: str) -> None:
    shares, targets = fraud(400, seed=1)
    found = fit_thresholds(shares, targets, metric, ["a", "b"])
    assert sum(found["thresholds"].values()) == pytest.approx(1)
    least, kind = found["thresholds"]["a"], metric_named(metric, ["a", "b"])
    predicted = np.where(shares[:, 0] >= least, 0, 1)
    assert (decided(shares, found) == predicted).all()

    def score(predictions: np.ndarray) -> float:
        return float(kind.of_counts(counts_of(targets, predictions, [0, 1]))[0])

    others = [np.where(shares[:, 0] >= other, 0, 1) for other in [*shares[:, 0], 1.1]]
    assert score(predicted) == pytest.approx(max(map(score, others)))


def test_thresholds_leave_out_rows_of_an_unknown_label() -> None:
    shares, targets = fraud(400, seed=1)
    more = np.vstack([shares, [[0.9, 0.1]] * 50]), np.append(targets, [-1] * 50)
    target = OneLabel(("a", "b"))
    assert target.fit_thresholds(*more, "f1:a") == target.fit_thresholds(shares, targets, "f1:a")


def test_thresholds_of_more_classes_raise_the_metric_and_are_ratios() -> None:
    draw = np.random.default_rng(2)
    targets = draw.choice(3, p=[0.8, 0.15, 0.05], size=600)
    logits = draw.normal(size=(600, 3)) + 1.5 * np.eye(3)[targets] + [2.0, 0.0, -1.0]
    shares = probabilities(logits, rows=600)
    found = fit_thresholds(shares, targets, "macro_f1", ["a", "b", "c"])
    values = np.array([*found["thresholds"].values()])
    assert values.sum() == pytest.approx(1) and values[0] > values[2]
    predicted = decided(shares, found)
    assert (predicted == (shares / values).argmax(axis=1)).all()
    before, after = (f1_score(targets, each, average="macro") for each in (shares.argmax(axis=1), predicted))
    assert after > before + 0.05
    assert found["most_probable"] == pytest.approx(before)
    assert before < found["cross_validated"] <= after


def test_the_cross_validated_score_of_noise_is_not_that_of_the_choice() -> None:
    draw = np.random.default_rng(3)
    targets, rare = np.array([0] * 6 + [1] * 194), draw.random(200)
    shares = np.stack([rare, 1 - rare], axis=1)
    found = fit_thresholds(shares, targets, "f1:a", ["a", "b"])
    assert found["cross_validated"] < f1_score(targets == 0, decided(shares, found) == 0)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_default_stays_where_no_threshold_is_better(classes: int) -> None:
    targets = np.arange(30) % classes
    shares = np.where(np.eye(classes)[targets] == 1, 0.8, 0.2 / (classes - 1))
    found = fit_thresholds(shares, targets, "accuracy", [*"abc"[:classes]])
    assert [*found["thresholds"].values()] == pytest.approx([1 / classes] * classes)
