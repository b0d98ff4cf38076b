"""What a column of labels holds – one label a row, several, or numbers – is decided by all rows of the training file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recurcli.config import DataConfig
from recurcli.data.splits import Split, load_split, with_labels_of
from recurcli.data.tasks import TASKS, Task
from recurcli.errors import DataError, UsageError
from recurcli.targets import Cell, Number, SeveralLabels

CUSTOM = TASKS["custom"]


def load(path: Path, content: str | list[Any], task: Task = CUSTOM, split: str = "train", **settings: Any) -> Split:
    """Read a file of this content, or JSON rows with these labels."""
    if not isinstance(content, str):
        content = "".join(json.dumps({"text": f"t{row}", "label": cell}) + "\n" for row, cell in enumerate(content))
    path.write_text(content)
    config = DataConfig(path=str(path), **settings)
    return load_split(task, split, config)


def kind_and_cells(split: Split) -> tuple[str, list[Cell]]:
    assert split.target is not None
    return split.target.kind, split.cells


@pytest.mark.parametrize(
    ("content", "settings", "cells"),
    [
        ([["b", "a"], [], ["a"]], {}, [("a", "b"), (), ("a",)]),
        ([["b", "a", "a"], "a", [" "]], {}, [("a", "b"), ("a",), ()]),
        ([{"a": 1, "b": 1.0}, {"a": False, "b": True}, {"a": 0, "b": 0}], {}, [("a", "b"), ("b",), ()]),
        (["a, b", "", "b"], {"label_separator": ","}, [("a", "b"), (), ("b",)]),
        ([["a"], ["b"], ["a"]], {"target": "several"}, [("a",), ("b",), ("a",)]),
    ],
)
def test_lists_are_several_labels(content: list[Any], settings: Any, cells: list[Cell], tmp_path: Path) -> None:
    assert kind_and_cells(load(tmp_path / "x.jsonl", content, **settings)) == ("several", cells)


def test_columns_of_0_and_1_are_labels_and_other_values_are_refused(tmp_path: Path) -> None:
    content = "text,toxic,rude,never\na,1,0,0\nb,0,0,0\nc,true,1.0,0\n"
    label = ("toxic", "rude", "never")
    found = load(tmp_path / "x.csv", content, label=label)
    assert kind_and_cells(found) == ("several", [("toxic",), (), ("rude", "toxic")])
    assert found.source.label == label
    assert isinstance(found.target, SeveralLabels)
    assert (found.target.labels, found.target.unseen) == (("toxic", "rude"), ("never",))
    assert "left out, since no row has it: 'never'" in found.notes[-1].text
    with pytest.raises(DataError, match=r"x.csv:2: 'text' is 'a', not 0 or 1; several label columns hold 0 or 1"):
        load(tmp_path / "x.csv", content, label=("rude", "text"), text="never")


def test_lists_of_one_label_are_that_label(tmp_path: Path) -> None:
    assert kind_and_cells(load(tmp_path / "x.jsonl", [["a"], "b", ["c"]])) == ("one", ["a", "b", "c"])
    with pytest.raises(DataError, match=r"x.jsonl:1: has 2 labels \('a', 'b'\); a row has one; --target several"):
        load(tmp_path / "x.jsonl", [["a", "b"], "b"], target="one")


def test_numbers_are_predicted_where_some_are_not_whole_and_many_differ(tmp_path: Path) -> None:
    halves, whole = [row / 2 for row in range(22)], [float(row) for row in range(22)]
    assert kind_and_cells(load(tmp_path / "x.jsonl", halves)) == ("number", halves)
    assert kind_and_cells(load(tmp_path / "x.jsonl", [str(each) for each in halves])) == ("number", halves)
    assert kind_and_cells(load(tmp_path / "x.jsonl", halves[:20]))[0] == "one"
    found = load(tmp_path / "x.jsonl", whole)
    assert kind_and_cells(found) == ("one", [str(row) for row in range(22)])
    assert "--target number predicts numbers" in found.notes[-1].text
    found = load(tmp_path / "x.jsonl", [1, 2.5], target="number")
    assert isinstance(found.target, Number)
    assert (found.cells, found.target.low, found.target.high) == ([1.0, 2.5], 1.0, 2.5)
    with pytest.raises(DataError, match=r"x.jsonl:2: label 'x' is not a number"):
        load(tmp_path / "x.jsonl", ["1", "x"], target="number")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_5_and_5_point_0_are_one_class(ending: str, tmp_path: Path) -> None:
    cells = ["5", "5.0", "4", "3.0"]
    content: Any = [float(cell) if "." in cell else cell for cell in cells]
    if ending == "csv":
        content = "text,label\n" + "".join(f"t{row},{cell}\n" for row, cell in enumerate(cells))
    found = load(tmp_path / f"x.{ending}", content)
    assert kind_and_cells(found) == ("one", ["5", "5", "4", "3"])
    task = with_labels_of(CUSTOM, found, DataConfig())
    later = load(tmp_path / f"y.{ending}", content, task, "dev")
    assert later.cells == found.cells


def test_versions_stay_classes_of_their_own(tmp_path: Path) -> None:
    found = load(tmp_path / "x.csv", "text,label\na,3.0\nb,3.1\nc,next\n")
    assert found.cells == ["3.0", "3.1", "next"]


def test_rows_without_a_label_are_told_from_rows_without_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x.jsonl:2: its label is null, not a string"):
        load(tmp_path / "x.jsonl", [["a", "b"], None, []])
    joined = "text,label\n" + "a,p\nb,\nc,p|q\nd,q\n"
    with pytest.raises(DataError, match=r"its label is empty.*'p\|q' looks like several.*--label-separator '\|' takes"):
        load(tmp_path / "x.csv", joined)
    assert load(tmp_path / "x.csv", joined, label_separator="|").cells == [("p",), (), ("p", "q"), ("q",)]


def test_each_label_has_its_share_of_the_drawn_dev_rows_and_each_decile_of_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        [name for name, share in zip("abcd", (0.5, 0.2, 0.05, 0.02), strict=True) if draw.random() < share]
        for _ in range(2000)
    ]
    load(tmp_path / "x.jsonl", rows)
    train = load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.jsonl")), use_dev_split=True)
    assert train.dev is not None
    counts = [Counter(label for cell in cells for label in cell) for cells in (rows, train.dev.cells)]  # type: ignore[union-attr]
    assert all(abs(counts[1][name] - counts[0][name] / 10) <= 1 for name in "abcd")
    assert abs(len(train.dev.examples) - 200) <= 4
    numbers = draw.lognormal(size=1000)
    load(tmp_path / "x.jsonl", numbers.tolist())
    train = load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.jsonl")), use_dev_split=True)
    assert train.dev is not None
    deciles = np.searchsorted(np.sort(numbers), np.array(train.dev.cells)) // 100
    assert np.bincount(deciles).tolist() == [10] * 10


def test_labels_that_a_setting_names_are_kept_and_others_refused(tmp_path: Path) -> None:
    found = load(tmp_path / "x.csv", "text,label\na,1.0\nb,2.0\n", labels=("1.0", "2.0"))
    assert found.cells == ["1.0", "2.0"]
    found = load(tmp_path / "x.jsonl", [["a", "b"], ["b"]], labels=("b", "a"), target="several")
    assert found.target is not None and found.target.labels == ("a",)
    with pytest.raises(DataError, match=r"x.jsonl:2: label 'c' is not one of custom's 2 labels"):
        load(tmp_path / "x.jsonl", [["a", "b"], ["c"], []], labels=("a", "b"), target="several")
    with pytest.raises(UsageError, match="labels are named"):
        load(tmp_path / "x.jsonl", [1.5, 2.5], labels=("1.5", "2.5"), target="number")


@pytest.mark.parametrize(
    ("task", "settings", "reason"),
    [
        ("tnews", {"label_separator": ","}, "task tnews has one label a row"),
        ("tnews", {"target": "several"}, "task tnews has one label a row"),
        ("custom", {"target": "one", "at_least_one": True}, "at_least_one is for several labels a row"),
    ],
)
def test_settings_of_other_kinds_are_refused(task: str, settings: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        load(tmp_path / "train.json", ["100"], TASKS[task], **settings)
