"""Metrics against scikit-learn's, and what a report holds."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_score, recall_score

from recurcli.metrics import METRICS, cells_of, classification_report, counts_of

NAMES = ("c", "a", "b")  # not in alphabetical order: `names` alone decides
CLASSES = st.integers(1, 4)
CASES = CLASSES.flatmap(
    lambda classes: st.tuples(
        st.just([f"class {index}" for index in range(classes)]),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=30),
    )
)


def test_keeps_the_order_of_names() -> None:
    report = json.loads(json.dumps(classification_report(["a", "a", "b"], ["b", "c", "a"], NAMES), allow_nan=False))
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
    report = classification_report(labels, predictions, names)
    assert report["accuracy"] == accuracy_score(labels, predictions)
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert report[f"macro_{name}"] == function(labels, predictions, average="macro", zero_division=0)
        of_classes = function(labels, predictions, labels=names, average=None, zero_division=0)
        assert [report["per_class"][label][name] for label in names] == of_classes.tolist()
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
    assert classification_report([*labels], [*predictions], ["a", "b"])["mcc"] == 0.0
    assert classification_report(["a"], ["a"], ["a"])["mcc"] == 0.0


def test_names_that_numpy_would_confuse_stay_apart() -> None:
    names = ["a", "a\0", "1", "1.0", "nan", ""]
    assert classification_report(names, names, names)["accuracy"] == 1.0


def test_importing_it_loads_no_heavy_library() -> None:
    code = "import sys, recurcli.metrics; print([m for m in ('sklearn', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_confusions_of_many_classes_are_their_cells() -> None:
    names = [f"c{number}" for number in range(101)]
    labels, predictions = ["c0", "c0", "c7", "c100"], ["c0", "c9", "c7", "c100"]
    many = classification_report(labels, predictions, names)
    assert many["confusion"] == [["c0", "c0", 1], ["c0", "c9", 1], ["c7", "c7", 1], ["c100", "c100", 1]]
    few = classification_report(labels, predictions, [name for name in names if name != "c50"])
    assert len(few["confusion"]) == 100
    for report in (many, few):
        last = len(report["names"]) - 1
        assert cells_of(report) == {(0, 0): 1, (0, 9): 1, (7, 7): 1, (last, last): 1}
