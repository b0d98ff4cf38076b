"""Metrics against numbers worked out by hand, and against the plain loops that define them."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_score, recall_score

from recurcli.errors import DataError
from recurcli.evaluation.metrics import METRICS, cells_of, classification_report

NAMES = ("c", "a", "b")  # not in alphabetical order: `names` alone decides
CLASSES = st.integers(1, 4)
CASES = CLASSES.flatmap(
    lambda classes: st.tuples(
        st.just([f"class {index}" for index in range(classes)]),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=30),
    )
)


def ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def test_the_rows_of_a_class_are_integers_even_if_no_prediction_is_right() -> None:
    report = classification_report(["a", "b"], ["b", "a"], NAMES)
    assert [repr(scores["support"]) for scores in report.per_class.values()] == ["0", "1", "1"]


def test_agrees_with_an_example_worked_out_by_hand() -> None:
    labels = ["a", "a", "a", "b", "b", "c"]
    predictions = ["a", "a", "b", "b", "c", "c"]
    report = classification_report(labels, predictions, NAMES, loss=0.5)
    assert report.metrics["accuracy"] == pytest.approx(4 / 6)
    assert report.per_class["a"] == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8, "support": 3})
    assert report.per_class["b"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2})
    assert report.per_class["c"] == pytest.approx({"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": 1})
    assert report.metrics["macro_precision"] == pytest.approx(2 / 3)
    assert report.metrics["macro_recall"] == pytest.approx((2 / 3 + 0.5 + 1) / 3)
    assert report.metrics["macro_f1"] == pytest.approx((0.8 + 0.5 + 2 / 3) / 3)
    # (right × rows - Σ label count × prediction count) / √((rows² - Σ predictions²)(rows² - Σ labels²))
    assert report.metrics["mcc"] == pytest.approx((4 * 6 - (3 * 2 + 2 * 2 + 1 * 2)) / math.sqrt((36 - 12) * (36 - 14)))
    assert report.loss == 0.5


def test_keeps_the_order_of_names() -> None:
    report = classification_report(["a", "a", "b"], ["a", "c", "b"], NAMES)
    assert report.names == NAMES
    assert list(report.per_class) == list(NAMES)
    assert report.confusion() == [[0, 0, 0], [1, 1, 0], [0, 0, 1]]  # c, a, b: rows right, columns predicted


def test_a_class_never_predicted_counts_as_nothing() -> None:
    report = classification_report(["a", "b"], ["a", "a"], ["a", "b"])
    assert report.per_class["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert report.metrics["macro_precision"] == pytest.approx(0.25)


def test_a_class_never_right_counts_as_nothing() -> None:
    report = classification_report(["a", "b"], ["b", "a"], ["a", "b"])
    assert (report.metrics["accuracy"], report.metrics["macro_f1"], report.metrics["mcc"]) == (0.0, 0.0, -1.0)


def test_a_class_of_no_row_is_not_in_the_macro_averages() -> None:
    report = classification_report(["a", "b"], ["a", "b"], NAMES)
    assert report.per_class["c"]["support"] == 0
    assert report.metrics["macro_f1"] == report.metrics["macro_precision"] == report.metrics["macro_recall"] == 1.0


def test_a_class_that_is_only_predicted_is_in_the_macro_averages() -> None:
    report = classification_report(["a", "b", "b"], ["a", "b", "c"], NAMES)
    assert report.metrics["macro_recall"] == pytest.approx((1 + 0.5 + 0) / 3)


@settings(max_examples=30, deadline=None)
@given(CASES)
def test_the_metrics_are_scikit_learns_to_the_last_bit(case: tuple[list[str], list[tuple[int, int]]]) -> None:
    names, pairs = case
    labels, predictions = [names[right] for right, _ in pairs], [names[predicted] for _, predicted in pairs]
    found = classification_report(labels, predictions, names).metrics
    assert found["accuracy"] == accuracy_score(labels, predictions)
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert found[f"macro_{name}"] == function(labels, predictions, average="macro", zero_division=0)
    if len(set(labels)) > 1 and len(set(predictions)) > 1:  # else scikit-learn warns
        assert found["mcc"] == matthews_corrcoef(labels, predictions)


def test_the_metrics_of_many_classes_are_scikit_learns_to_the_last_bit() -> None:
    draw = np.random.default_rng(2)
    labels = draw.choice(np.arange(0, 119, 3), size=5000)  # most classes have no row
    predictions = np.where(draw.random(5000) < 0.6, labels, draw.integers(119, size=5000))
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        expected = function(labels, predictions, average="macro", zero_division=0)
        assert METRICS[f"macro_{name}"].compute(labels.tolist(), predictions.tolist()) == expected
    assert METRICS["mcc"].compute(labels.tolist(), predictions.tolist()) == matthews_corrcoef(labels, predictions)


@pytest.mark.parametrize(
    ("labels", "predictions"), [(["a"], ["a"]), (["a", "a"], ["a", "b"]), (["a", "b"], ["b", "b"])]
)
def test_the_coefficient_of_a_single_class_is_zero(labels: list[str], predictions: list[str]) -> None:
    assert classification_report(labels, predictions, ["a", "b"]).metrics["mcc"] == 0.0
    assert classification_report(["a"], ["a"], ["a"]).metrics["mcc"] == 0.0


def test_names_that_numpy_would_confuse_stay_apart() -> None:
    names = ["a", "a\0", "1", "1.0", "nan", ""]
    assert classification_report(names, names, names).metrics["accuracy"] == 1.0


def test_refuses_an_empty_set() -> None:
    with pytest.raises(DataError, match="no labelled rows"):
        classification_report([], [], NAMES)


def test_refuses_sides_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="2 labels but 1 predictions"):
        classification_report(["a", "b"], ["a"], NAMES)


def test_refuses_a_label_that_is_no_class_and_names_it() -> None:
    with pytest.raises(DataError, match=r"label 'neutra' .* did you mean 'neutral'"):
        classification_report(["neutra"], ["neutral"], ["neutral", "contradiction"])
    with pytest.raises(DataError, match="prediction 'd'"):
        classification_report(["a"], ["d"], NAMES)


def test_the_report_is_plain_json() -> None:
    report = classification_report(["a", "b"], ["a", "a"], ["a", "b"])
    value = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert value["confusion"] == [[1, 0], [1, 0]]
    assert value["per_class"]["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert value["loss"] is None


@settings(max_examples=50, deadline=None)
@given(CASES)
def test_agrees_with_the_plain_loops(case: tuple[list[str], list[tuple[int, int]]]) -> None:
    names, pairs = case
    labels, predictions = [names[right] for right, _ in pairs], [names[predicted] for _, predicted in pairs]
    report = classification_report(labels, predictions, names, loss=1.25)
    scores = []
    for name, line in zip(names, report.confusion(), strict=True):
        rows = list(zip(labels, predictions, strict=True))
        hits = sum(right == name == predicted for right, predicted in rows)
        precision = ratio(hits, predictions.count(name))
        recall = ratio(hits, labels.count(name))
        f1 = ratio(2 * precision * recall, precision + recall)
        if name in labels or name in predictions:
            scores.append((precision, recall, f1))
        expected = {"precision": precision, "recall": recall, "f1": f1, "support": labels.count(name)}
        assert report.per_class[name] == pytest.approx(expected)
        assert line == [rows.count((name, other)) for other in names]
    macro = [sum(column) / len(scores) for column in zip(*scores, strict=True)]
    assert [
        report.metrics["macro_precision"],
        report.metrics["macro_recall"],
        report.metrics["macro_f1"],
    ] == pytest.approx(macro)
    assert report.metrics["accuracy"] == pytest.approx(
        sum(right == predicted for right, predicted in pairs) / len(pairs)
    )
    assert report.metrics["mcc"] == pytest.approx(plain_coefficient(pairs, classes=len(names)), abs=1e-12)


def plain_coefficient(pairs: list[tuple[int, int]], classes: int) -> float:
    """The correlation of the two one-hot tables: cov(X, Y) / √(cov(X, X) cov(Y, Y)), Gorodkin's definition."""
    left = [[float(right == index) for index in range(classes)] for right, _ in pairs]
    right = [[float(predicted == index) for index in range(classes)] for _, predicted in pairs]

    def covariance(first: list[list[float]], second: list[list[float]]) -> float:
        total = 0.0
        for index in range(classes):
            one, two = [row[index] for row in first], [row[index] for row in second]
            mean_one, mean_two = sum(one) / len(one), sum(two) / len(two)
            total += sum((x - mean_one) * (y - mean_two) for x, y in zip(one, two, strict=True))
        return total

    variances = covariance(left, left) * covariance(right, right)
    return covariance(left, right) / math.sqrt(variances) if variances > 1e-12 else 0.0


def test_importing_it_loads_no_heavy_library() -> None:
    code = (
        "import sys, recurcli.evaluation.metrics; print([m for m in ('sklearn', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_confusions_of_many_classes_are_their_cells() -> None:
    names = [f"c{number}" for number in range(101)]
    labels, predictions = ["c0", "c0", "c7", "c100"], ["c0", "c9", "c7", "c100"]
    many = classification_report(labels, predictions, names)
    assert many.to_json()["confusion"] == [["c0", "c0", 1], ["c0", "c9", 1], ["c7", "c7", 1], ["c100", "c100", 1]]
    few = classification_report(labels, predictions, [name for name in names if name != "c50"])
    assert len(few.to_json()["confusion"]) == 100
    for report in (many, few):
        assert cells_of(report.to_json()) == report.cells
