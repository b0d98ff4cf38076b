"""compare, tune, check and teachers where rows have several labels, or numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import Kept
from running import Recur, result_of

from recurcli.config import DataConfig
from recurcli.data.splits import split_in_memory
from recurcli.data.tasks import task_named
from recurcli.data.teacher import read_teacher
from recurcli.log import Log
from recurcli.targets import Number, SeveralLabels, Target

WORDS = {"cold": "ice", "wet": "rain", "windy": "gust"}
FAST = [
    part for each in ("words=[1,1]", "characters=null", "vectors=null", "c=1") for part in ("--set", f"linear.{each}")
]


def rows_of(kind: str, seed: int, count: int) -> list[dict[str, Any]]:
    """Rows whose labels, or number of labels and some noise, are those of their words."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        own = sorted(label for label in WORDS if draw.random() < 0.4)
        words = [WORDS[label] for label in own] + [f"w{draw.integers(30)}" for _ in range(4)]
        value = own if kind == "several" else round(len(own) + draw.normal() / 10, 3)
        rows.append({"text": f"{' '.join(words)} {seed}-{number}", "label": value})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module", params=["several", "number"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(kind: str, tmp_path: Path) -> list[str]:
    """The options that name a file of training rows and one of dev rows."""
    named = {"train": (1, 150), "dev": (2, 60)}
    paths = {name: write(tmp_path / f"{name}.jsonl", rows_of(kind, *own)) for name, own in named.items()}
    return [part for name, path in paths.items() for part in (f"--{name}", str(path))]


def test_runs_are_compared_by_the_headline_or_a_named_metric(
    kind: str, files: list[str], recur: Recur, tmp_path: Path
) -> None:
    train = ["finetune", "--preset", "linear-custom", *files, *FAST, "--set"]
    for name, share in (("a", 1), ("b", 0.1)):
        recur.json(*train, f"data.train_share={share}", "--output", tmp_path / "runs" / name)
    headline, constant, sign, other = (
        ("micro_f1", "most frequent labels", 1, "f1:cold")
        if kind == "several"
        else ("mae", "constant mean", -1, "f1_at_least:1")
    )
    page, plot = tmp_path / "page.html", tmp_path / "plot.png"
    over = ("--over", "data.train_share", "--report", page, "--plot", plot)
    found = recur.json("compare", tmp_path / "runs", *over)
    assert (found["metric"], [each["name"] for each in found["baselines"]]) == (headline, [constant])
    assert found["groups"][0]["runs"] == [str(tmp_path / "runs" / "a")]  # the better one comes first
    for group, name in zip(found["groups"], "ab", strict=True):
        stored = result_of(tmp_path / "runs" / name)
        assert group["mean"] == pytest.approx(stored["dev"][headline])
        assert group["interval"] == pytest.approx(stored["model_intervals"]["model"])
    [test] = found["tests"]
    assert (test["test"], test["p_value"] < 0.05, sign * test["difference"] > 0) == ("bootstrap", True, True)
    assert ("points" in found["verdict"][0]) == (kind == "several")
    assert found["verdict"][0].startswith("More labels help: ")
    chart = "dev micro F1 in per cent with 95 %" if kind == "several" else "dev MAE with 95 %"
    assert chart in page.read_text()
    assert ("is nearer than" in page.read_text()) == (kind == "number") and plot.stat().st_size
    assert recur.json("compare", tmp_path / "runs", "--metric", other)["metric"] == other
    recur.refused(2, "not accuracy", "compare", tmp_path / "runs", "--metric", "accuracy")


def test_runs_of_two_kinds_cannot_be_compared(recur: Recur, tmp_path: Path) -> None:
    rows = [{"text": row["text"], "label": len(row["label"])} for row in rows_of("several", 1, 90)]
    path = write(tmp_path / "rows.jsonl", rows)
    for target in ("one", "number"):
        line = ("finetune", path, "--preset", "linear-custom", *FAST, "--target", target)
        recur.json(*line, "--output", tmp_path / "runs" / target)
    recur.refused(2, "their kinds of labels are number and one", "compare", tmp_path / "runs")


def test_trials_are_scored_by_the_loss_or_the_encoders_metric(
    kind: str, files: list[str], recur: Recur, tmp_path: Path
) -> None:
    line = ["tune", "--preset", "linear-custom", *files, *FAST[:6], "--trials", "2", "--range", "linear.c=0.01|1"]
    found = recur.json(*line, "--output", tmp_path / "linear")
    assert found["metric"] == ("log_loss" if kind == "several" else "squared_error")
    assert found["best"]["dev_metric"] == min(trial["dev_metric"] for trial in found["trials"])
    sizes = ("encoder.hidden_size=8", "encoder.num_layers=1", "finetuning.max_steps=4", "ensemble=null")
    line = ["tune", "--preset", "bilstm-custom", *files, *FAST, *(part for each in sizes for part in ("--set", each))]
    line += ["--trials", "2", "--range", "finetuning.learning_rate=0.0001|0.1", "--output", str(tmp_path / "encoder")]
    found, best = recur.json(*line), max if kind == "several" else min
    assert found["metric"] == ("micro_f1" if kind == "several" else "mae")
    assert found["best"]["dev_metric"] == best(trial["dev_metric"] for trial in found["trials"])


def test_check_counts_labels_sets_and_numbers(kind: str, recur: Recur, tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [*rows_of(kind, 1, 60), *rows_of(kind, 1, 1)])
    odd = (["cold"], ["hot"], ["cold"]) if kind == "several" else (3, 4, 3)
    write(tmp_path / "dev.jsonl", [{"text": text, "label": each} for text, each in zip("aab", odd, strict=True)])
    code, out, _ = recur("check", tmp_path, "--json")
    [report] = json.loads(out)["reports"]
    train, dev = report["splits"]
    messages = " ".join(finding["message"] for finding in report["findings"])
    assert (train["target"], dev["target"], dev["repeated"]["conflicting_texts"]) == (kind, kind, 1)
    if kind == "several":
        cells = [row["label"] for row in [*rows_of(kind, 1, 60), *rows_of(kind, 1, 1)]]
        assert train["labels"] == {label: sum(label in cell for cell in cells) for label in train["labels"]}
        assert train["label_sets"]["without_labels"] == cells.count([]) and train["majority"] is None
        assert (code, "with the labels cold; hot" in messages) == (3, True)
        assert "dev has labels that no train row has: 'hot'" in messages
    else:
        assert (code, dev["labels"], dev["numbers"]["median"], dev["numbers"]["maximum"]) == (0, {}, 3, 4)
        assert "different numbers; the first: lines 1, 2 with the numbers 3; 4" in messages
    recur("check", tmp_path)  # is shown


def test_suspects_come_first_and_out_of_fold_predictions_teach(kind: str, recur: Recur, tmp_path: Path) -> None:
    rows = rows_of(kind, 1, 360)
    planted = [number for number, row in enumerate(rows) if " ice" in f" {row['text']}" and number % 7 == 0][:4]
    for number in planted:
        cell = rows[number]["label"]
        rows[number]["label"] = [each for each in cell if each != "cold"] if kind == "several" else cell + 9
    train = write(tmp_path / "train.jsonl", rows)
    suspects, opinions = tmp_path / "suspects.csv", tmp_path / "opinions.csv"
    found = recur.json("check", train, "--suspects", suspects, "--out-of-fold", opinions, "--no-lengths")
    head, *lines = [line.split(",") for line in suspects.read_text().splitlines()]
    assert {int(line[0]) - 1 for line in lines[: len(planted)]} == {*planted}
    last = ["suggested_add", "suggested_remove", "probability"] if kind == "several" else ["suggested", "distance"]
    assert (head[-len(last) :], found["suspects"]["suspects"]) == (last, len(lines))
    if kind == "several":
        assert {(line[-3], line[-2]) for line in lines[: len(planted)]} == {("cold", "")}
    student = write(tmp_path / "few.jsonl", rows[:180])
    line = ("finetune", student, "--preset", "linear-custom", *FAST, "--teacher", opinions)
    result = recur.json(*line, "--output", tmp_path / "student")
    teacher = result["teacher"]
    assert teacher["column"] == ("probability_LABEL" if kind == "several" else "prediction")
    assert teacher["training_rows"] + teacher["left_out"] == teacher["added"] == 180


def test_suspects_are_found_label_by_label() -> None:
    draw = np.random.default_rng(0)
    has = (draw.random((200, 2)) < 0.5).astype(np.int64)
    chances = np.where(has > 0, 0.9, 0.1) + draw.random((200, 2)) * 0.05
    chances[7] = np.where(has[7] > 0, 0.02, 0.98)
    chances[9, 1] = 0.01 if has[9, 1] else 0.99
    found = SeveralLabels(("a", "b"), ",").suspects(chances, np.column_stack([has, np.zeros(200, np.int64)]))
    [(first, [*of_first, _]), (second, [*of_second, _])] = found
    assert (first, of_first) == (9, ["", "b"] if has[9, 1] else ["b", ""])
    changes = (",".join(label for label, own in zip("ab", has[7], strict=True) if own == had) for had in (0, 1))
    assert (second, of_second) == (7, [*changes])


def test_suspect_numbers_are_those_far_from_the_others() -> None:
    target = Number(("number",), -100, 100, 0, 1, is_whole=True)
    y = np.array([-1.0, 1, -1, 1, 0, 10])
    assert target.suspects(np.zeros((6, 1)), y) == [(5, ["0", "6.41"])]


@pytest.mark.parametrize(
    ("target", "lines", "expected", "cells"),
    [
        (
            SeveralLabels(("x", "y"), ","),
            ["text,prediction,probability_x,probability_y,reason", "a,,0,0,", 'b,"x,y",0.9,0.7,', "c,,,,blank"],
            [[0, 0], [0.9, 0.7]],
            [(), ("x", "y")],
        ),
        (SeveralLabels(("x", "y"), "|"), ["text,prediction", "a,", "b,x|y"], [[0, 0], [1, 1]], [(), ("x", "y")]),
        (
            Number(("number",), 0.0, 5.0, 2.0, 1.0, False),
            ["text,prediction", "a,1.5", "c,", "b,7"],
            [[1.5], [7]],
            [1.5, 7],
        ),
    ],
)
def test_a_teachers_answers_are_read(
    target: Target, lines: list[str], expected: list[list[float]], cells: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "teacher.csv"
    path.write_text("\n".join(lines) + "\n")
    task = task_named("custom")
    task = task.__class__(**{**vars(task), "labels": target.labels, "target": target})
    train = split_in_memory([("z", None, cells[1])], target=target)
    teacher, rows = read_teacher(path, train, [], task, DataConfig(), Log())
    assert np.isnan(teacher.probabilities[0]).all()
    np.testing.assert_allclose(teacher.probabilities[1:], expected)
    assert rows.cells[1:] == cells


@pytest.mark.parametrize(("share", "reason"), [(1.2, "at most 1"), (-0.1, "below 0")])
def test_a_probability_of_several_labels_is_between_0_and_1(share: float, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{"text": "a", "probabilities": {"x": share}}])
    task = task_named("custom")
    target = SeveralLabels(("x", "y"), ",")
    task = task.__class__(**{**vars(task), "labels": target.labels, "target": target})
    with pytest.raises(Exception, match=reason):
        read_teacher(path, split_in_memory([("z", None, ("x",))], target=target), [], task, DataConfig(), Kept())
