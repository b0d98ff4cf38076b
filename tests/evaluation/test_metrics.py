"""Metrics against scikit-learn's, and what a report holds."""

import json
import subprocess
import sys

import numpy as np
import pytest
from class_numbers import report as report_by_name
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    matthews_corrcoef,
    precision_score,
    recall_score,
    roc_auc_score,
)

from recurcli.errors import UsageError
from recurcli.metrics import (
    METRICS,
    cells_of,
    counts_of,
    is_of_labels,
    metric_named,
    rank_report,
    score_in,
)

NAMES = ("c", "a", "b")  # not in alphabetical order: `names` alone decides
CLASSES = st.integers(1, 4)
CASES = CLASSES.flatmap(
    lambda classes: st.tuples(
        st.just([f"class {index}" for index in range(classes)]),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=30),
    )
)


def test_keeps_the_order_of_names() -> None:
    report = json.loads(json.dumps(report_by_name(["a", "a", "b"], ["b", "c", "a"], NAMES), allow_nan=False))
    assert report["names"] == list(report["per_class"]) == list(NAMES)
    assert report["loss"] is None
    assert report["confusion"] == [[0, 0, 0], [1, 0, 1], [0, 1, 0]]  # c, a, b: rows right, columns predicted
    assert [repr(scores["support"]) for scores in report["per_class"].values()] == ["0", "2", "1"], "integers"


@settings(max_examples=20, deadline=None)
@given(CASES)
@example((["a", "b"], [(0, 0), (1, 0)]))  # a class is never predicted
@example((["a", "b"], [(0, 1), (1, 0)]))  # none is ever right
@example((["c", "a", "b"], [(1, 1), (2, 2), (2, 0)]))  # a class of no row is predicted
@example((["a", "b", "c"], [(0, 0), (1, 1)]))  # a class is nowhere
def test_the_metrics_are_scikit_learns_to_the_last_bit(case: tuple[list[str], list[tuple[int, int]]]) -> None:
    names, pairs = case
    labels, predictions = [names[right] for right, _ in pairs], [names[predicted] for _, predicted in pairs]
    report = report_by_name(labels, predictions, names)
    assert report["accuracy"] == accuracy_score(labels, predictions)
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert report[f"macro_{name}"] == function(labels, predictions, average="macro", zero_division=0)
        of_classes = function(labels, predictions, labels=names, average=None, zero_division=0)
        assert [report["per_class"][label][name] for label in names] == of_classes.tolist()
    if set(predictions) <= set(labels) and len(set(labels)) > 1:  # else scikit-learn warns
        assert report["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predictions))
    if len(set(labels)) > 1 and len(set(predictions)) > 1:  # else scikit-learn warns
        assert report["mcc"] == matthews_corrcoef(labels, predictions)
    rows = list(zip(labels, predictions, strict=True))
    assert report["confusion"] == [[rows.count((label, other)) for other in names] for label in names]
    assert [report["per_class"][name]["support"] for name in names] == [labels.count(name) for name in names]


def test_the_metrics_of_many_classes_are_scikit_learns_to_the_last_bit() -> None:
    draw = np.random.default_rng(2)
    labels = draw.choice(np.arange(0, 119, 3), size=5000)  # most classes have no row
    predictions = np.where(draw.random(5000) < 0.6, labels, draw.integers(119, size=5000))
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        expected = function(labels, predictions, average="macro", zero_division=0)
        assert METRICS[f"macro_{name}"].of_counts(counts_of(labels.tolist(), predictions.tolist()))[0] == expected
    assert METRICS["mcc"].of_counts(counts_of(labels.tolist(), predictions.tolist()))[0] == matthews_corrcoef(
        labels, predictions
    )


@pytest.mark.parametrize(("labels", "predictions"), [("a", "a"), ("aa", "ab"), ("ab", "bb")])
def test_the_coefficient_of_a_single_class_is_zero(labels: str, predictions: str) -> None:
    assert report_by_name([*labels], [*predictions], ["a", "b"])["mcc"] == 0.0
    assert report_by_name(["a"], ["a"], ["a"])["mcc"] == 0.0


def test_names_that_numpy_would_confuse_stay_apart() -> None:
    names = ["a", "a\0", "1", "1.0", "nan", ""]
    assert report_by_name(names, names, names)["accuracy"] == 1.0


def test_importing_it_loads_no_heavy_library() -> None:
    code = "import sys, recurcli.metrics; print([m for m in ('sklearn', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_confusions_of_many_classes_are_their_cells() -> None:
    names = [f"c{number}" for number in range(101)]
    labels, predictions = ["c0", "c0", "c7", "c100"], ["c0", "c9", "c7", "c100"]
    many = report_by_name(labels, predictions, names)
    assert many["confusion"] == [["c0", "c0", 1], ["c0", "c9", 1], ["c7", "c7", 1], ["c100", "c100", 1]]
    few = report_by_name(labels, predictions, [name for name in names if name != "c50"])
    assert len(few["confusion"]) == 100
    for report in (many, few):
        last = len(report["names"]) - 1
        assert cells_of(report) == {(0, 0): 1, (0, 9): 1, (7, 7): 1, (last, last): 1}


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_the_metrics_of_probabilities_are_scikit_learns(classes: int) -> None:
    draw = np.random.default_rng(classes)
    targets = np.concatenate([np.arange(classes), draw.choice(classes, p=draw.dirichlet(np.ones(classes)), size=300)])
    shares = draw.dirichlet(np.ones(classes), size=len(targets)).round(2)  # many are equal
    found, right = rank_report(targets, shares), np.eye(classes)[targets]
    columns = [int(right.sum(axis=0).argmin())] if classes == 2 else [*range(classes)]
    for name, function in (("average_precision", average_precision_score), ("roc_auc", roc_auc_score)):
        expected = np.mean([function(right[:, column], shares[:, column]) for column in columns])
        assert found[name] == pytest.approx(expected, abs=1e-12)


def test_of_two_classes_the_rarer_label_is_scored_and_the_second_of_equally_frequent_ones() -> None:
    shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.2, 0.8]])
    rarer_first = rank_report(np.array([0, 1, 1, 1]), shares[::-1])
    assert rarer_first["average_precision"] == 0.25, "the row of the first label has the smallest probability of it"
    equal = rank_report(np.array([0, 1, 0, 1]), shares)
    assert equal["average_precision"] == average_precision_score([0, 1, 0, 1], shares[:, 1])


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_one_class_do_not_define_a_metric_of_probabilities(classes: int) -> None:
    undefined = {"average_precision": None, "roc_auc": None}
    assert rank_report(np.zeros(3, int), np.full((3, classes), 1 / classes)) == undefined


def test_a_metric_of_one_label_is_that_of_the_table_by_class() -> None:
    labels, predictions = [*"aabbbc"], [*"abbbac"]
    report = report_by_name(labels, predictions, NAMES)
    places = [[NAMES.index(word) for word in words] for words in (labels, predictions)]
    for kind, function in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        expected = function(labels, predictions, labels=["b"], average=None)[0]
        assert score_in(report, f"{kind}:b") == expected
        assert metric_named(f"{kind}:b", NAMES).of_counts(counts_of(*places))[0] == expected
    assert metric_named("f1:d", [*NAMES, "d"]).of_counts(counts_of(*places))[0] == 0, "a label that occurs nowhere"
    assert metric_named("f1:b").words == "F1 of b"


def test_a_name_of_no_metric_or_no_label_is_found() -> None:
    assert is_of_labels("f1:a:b") and is_of_labels("balanced_accuracy")
    assert not any(map(is_of_labels, ("f1", "f1:", "f2:a", "macro_f1:a", "roc_auc", "perplexity")))
    with pytest.raises(UsageError, match="unknown label 'spma'; did you mean 'spam'"):
        metric_named("recall:spma", ["spam", "ham"])
