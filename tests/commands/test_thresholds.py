"""Thresholds of the labels: chosen in a training or by `recur eval --fit-thresholds`, kept in the run, and followed by all."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import Recur, lines_of, result_of, saved
from small_runs import copy_of, weighted

from recurcli.cli import run as run_command
from recurcli.evaluation.predictor import Predictor
from recurcli.runs.predictions import read_current_result
from recurcli.runs.run_directory import RunDirectory, open_run

SPAM, COMMON = ["win", "cash", "prize", "now"], ["the", "a", "we", "you", "meet", "at", "home", "today", "call"]


def rare_rows(count: int, seed: int) -> str:
    """Rows of a CSV, one in eight of which is spam, that share most of their words."""
    draw, lines = random.Random(seed), ["text,label"]
    for number in range(count):
        spam = number % 8 == 0
        words = [draw.choice(SPAM if draw.random() < (0.45 if spam else 0.12) else "abcdefgh")]
        words += [draw.choice(COMMON) for _ in range(6)]
        words += [draw.choice(SPAM if spam and draw.random() < 0.5 else "abcdefgh")]
        lines.append(f"{' '.join(words)},{'spam' if spam else 'ham'}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear model of two classes with dev and test rows, without thresholds."""
    folder = tmp_path_factory.mktemp("thresholds")
    files = {
        name: saved(folder / f"{name}.csv", rare_rows(240, seed)) for seed, name in enumerate(("train", "dev", "test"))
    }
    named = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    assert (
        run_command(["finetune", "--preset", "linear-custom", *named, "--output", str(folder / "run"), "--quiet"]) == 0
    )
    return folder / "run"


@pytest.fixture
def moved(recur: Recur, plain: Path, tmp_path: Path) -> Path:
    """A copy of the run in which thresholds for the F1 of spam are saved."""
    run = copy_of(plain, tmp_path / "moved")
    recur.ok("eval", run, "--fit-thresholds", "f1:spam", "--save")
    return run


def decided(row: dict[str, dict[str, float]], least: float) -> str:
    return "spam" if row["probabilities"]["spam"] >= least else "ham"


def test_saved_thresholds_are_in_one_file_and_on_the_card(plain: Path, moved: Path) -> None:
    stored = json.loads((moved / "thresholds.json").read_text())
    assert {*stored["thresholds"]} == {"spam", "ham"} and stored["folds"] == 5 and stored["rows"] == 240
    before = result_of(plain)["dev"]["per_class"]["spam"]["f1"]
    assert stored["most_probable"] == before and stored["cross_validated"] > before + 0.02
    before_and_after = [{path.name: path.read_bytes() for path in run.iterdir()} for run in (plain, moved)]
    changed = {name for name, _ in before_and_after[1].items() ^ before_and_after[0].items()}
    assert changed == {"README.md", "thresholds.json"}
    assert "by cross-validation the F1 of spam is " in (moved / "README.md").read_text()


def test_the_result_of_a_run_follows_them(plain: Path, moved: Path) -> None:
    stored, before, after = (read_current_result(open_run(run)) for run in (plain, plain, moved))
    least = after["thresholds"]["thresholds"]["spam"]
    for split in ("dev", "test"):
        rows = lines_of(moved / f"predictions.{split}.jsonl")
        right = np.mean([row["label"] == decided(row, least) for row in rows])
        assert after[split]["accuracy"] == pytest.approx(right) != before[split]["accuracy"]
        assert after[split]["loss"] == before[split]["loss"]
    assert stored == result_of(plain)


@pytest.mark.parametrize("damage", ['{"thresholds": 1}', "0.2", "x"])
def test_damaged_thresholds_are_refused(damage: str, recur: Recur, moved: Path) -> None:
    path = moved / "thresholds.json"
    content = path.read_text()
    least = str(json.loads(content)["thresholds"]["spam"])
    path.write_text(content.replace(least, damage) if damage == "0.2" else damage)
    for command in (["eval", moved], ["predict", moved, moved / "preset.yaml"], ["compare", moved]):
        recur.refused(4, f"{path}: is damaged", *command)


def test_the_most_probable_label_is_back_without_the_file(recur: Recur, plain: Path, moved: Path) -> None:
    (moved / "thresholds.json").unlink()
    assert recur.json("eval", moved)["metrics"] == recur.json("eval", plain)["metrics"]


def test_predict_eval_load_and_compare_follow_them(recur: Recur, plain: Path, moved: Path, tmp_path: Path) -> None:
    least = json.loads((moved / "thresholds.json").read_text())["thresholds"]["spam"]
    dev = read_current_result(open_run(moved))["dev"]["per_class"]
    assert recur.json("eval", moved)["metrics"]["per_class"] == dev
    assert recur.json("compare", moved, "--metric", "f1:spam")["groups"][0]["mean"] == dev["spam"]["f1"]
    source, output = plain.with_name("test.csv"), tmp_path / "labelled.jsonl"
    recur.ok("predict", moved, source, "--output", output, "--probabilities", "--top-k", 2, "--explain")
    rows = lines_of(output)
    assert [row["prediction"] for row in rows] == [decided(row, least) for row in rows]
    assert all(row["score"] == row["probabilities"][row["prediction"]] for row in rows)
    assert all(row["top"][0]["score"] >= row["top"][1]["score"] for row in rows), "ordered by probability"
    assert any(row["prediction"] != row["top"][0]["label"] for row in rows)
    texts = [row["text"] for row in rows]
    loaded = Predictor.load(moved).predict(texts)
    assert [each.label for each in loaded] == [row["prediction"] for row in rows]
    recur.ok("predict", moved, source, "--output", tmp_path / "unsure.jsonl", "--threshold", 0.6)
    unsure = lines_of(tmp_path / "unsure.jsonl")
    assert [row["prediction"] is None for row in unsure] == [row["score"] < 0.6 for row in rows]


def test_the_exported_script_follows_them(recur: Recur, plain: Path, moved: Path, tmp_path: Path) -> None:
    recur.ok("export", moved, "--format", "onnx", "--output", tmp_path / "folder")
    texts = [line.partition(",")[0] for line in plain.with_name("test.csv").read_text().splitlines()[1:]]
    done = subprocess.run(
        [sys.executable, tmp_path / "folder" / "predict.py"],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
    )
    wanted, found = Predictor.load(moved).predict(texts), [line.split("\t") for line in done.stdout.splitlines()]
    assert [label for label, _ in found] == [each.label for each in wanted]
    scores = [float(score) for _, score in found]
    assert scores == pytest.approx([each.score for each in wanted], abs=1e-5) and min(scores) < 0.5


def test_a_training_chooses_the_same_thresholds_as_eval(recur: Recur, plain: Path, moved: Path, tmp_path: Path) -> None:
    files = [part for name in ("train", "dev", "test") for part in (f"--{name}", plain.with_name(f"{name}.csv"))]
    setting = ["--set", "finetuning.thresholds=f1:spam", "--output", tmp_path / "run"]
    out, _ = recur.ok("finetune", "--preset", "linear-custom", *files, *setting)
    assert (tmp_path / "run" / "thresholds.json").read_text() == (moved / "thresholds.json").read_text()
    assert result_of(tmp_path / "run")["test"] == read_current_result(open_run(moved))["test"]
    assert "by cross-validation the F1 of spam is " in out


def test_without_save_the_thresholds_are_shown_and_nothing_changes(recur: Recur, plain: Path) -> None:
    before = {path.name: path.read_bytes() for path in plain.iterdir()}
    found = recur.json("eval", plain, "--fit-thresholds", "f1:spam")
    assert found["metrics"]["per_class"]["spam"]["f1"] > result_of(plain)["dev"]["per_class"]["spam"]["f1"]
    assert found["thresholds"]["metric"] == "f1:spam"
    assert {path.name: path.read_bytes() for path in plain.iterdir()} == before


def test_fast_takes_the_most_probable_label_of_the_linear_model_with_a_note(
    recur: Recur, trained: Path, plain: Path, moved: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    run = weighted(trained, tmp_path / "run", 1.0, 1.0)
    recur.ok("eval", run, "--fit-thresholds", "macro_f1", "--save")
    assert Predictor.load(run).kept.thresholds is not None
    source = tiny_tnews / "test.json"
    _, err = recur.ok("predict", run, source, "--fast", "--output", tmp_path / "fast.jsonl")
    assert "--fast takes the most probable label, since thresholds.json was chosen for the whole ensemble" in err
    assert Predictor.load(run, fast=True).kept.thresholds is None
    alone = Predictor.load(moved, fast=True)
    assert alone.kept.thresholds is not None, "they were chosen for the linear model alone"
    _, err = recur.ok("predict", moved, plain.with_name("test.csv"), "--fast", "--output", tmp_path / "alone.jsonl")
    assert "thresholds.json" not in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--fit-thresholds", "roc_auc"), "--fit-thresholds must be one of accuracy,"),
        (("--fit-thresholds", "f1"), "not 'f1'"),
        (("--fit-thresholds", "f1:spma"), "--fit-thresholds f1:spma: unknown label 'spma'; did you mean 'spam'?"),
        (("--save",), "--save keeps thresholds; choose them with --fit-thresholds METRIC"),
        (("--fit-thresholds", "mcc", "--split", "test"), "leave out --data and --split"),
    ],
)
def test_what_cannot_be_chosen_is_refused(options: tuple[str, ...], reason: str, recur: Recur, plain: Path) -> None:
    recur.refused(2, reason, "eval", plain, *options)


def test_a_locked_run_keeps_what_it_has(recur: Recur, plain: Path, tmp_path: Path) -> None:
    run = copy_of(plain, tmp_path / "run")
    with RunDirectory(run).lock():
        recur.refused(5, "another recur is at work here", "eval", run, "--fit-thresholds", "f1:spam", "--save")
    assert not (run / "thresholds.json").exists()


@pytest.mark.parametrize(
    ("value", "reason"),
    [("roc_auc", "thresholds: must be null, auto or one of accuracy,"), ("f1:spma", "did you mean")],
)
def test_a_training_refuses_thresholds_for_what_does_not_exist(
    value: str, reason: str, recur: Recur, plain: Path, tmp_path: Path
) -> None:
    files = [part for name in ("train", "dev") for part in (f"--{name}", plain.with_name(f"{name}.csv"))]
    setting = ["--set", f"finetuning.thresholds={value}", "--output", tmp_path / "run"]
    recur.refused(2, reason, "finetune", "--preset", "linear-custom", *files, *setting)


def test_several_labels_have_one_threshold_of_their_own_where_it_helps(recur: Recur, tmp_path: Path) -> None:
    draw, lines = random.Random(0), list[str]()
    for _ in range(600):
        words = draw.sample(["frost", "rain", "gust", "sun"], 2)
        lines.append(
            json.dumps({"text": " ".join(words), "labels": [word[0] for word in words if draw.random() < 0.35]})
        )
    rows = saved(tmp_path / "rows.jsonl", "\n".join(lines) + "\n")
    options = ("finetune", rows, "--preset", "linear-custom", "--set", "linear.vectors=null", "--output")
    recur.ok(*options, tmp_path / "chosen")
    recur.ok(*options, tmp_path / "none", "--set", "finetuning.thresholds=null")
    chosen = json.loads((tmp_path / "chosen" / "thresholds.json").read_text())
    [least] = {*chosen["thresholds"].values()}
    assert chosen["metric"] == "micro_f1" and [*chosen["thresholds"]] == ["f", "g", "r", "s"] and least < 0.4
    assert not (tmp_path / "none" / "thresholds.json").exists()
    scores = [result_of(tmp_path / name)["dev"]["micro_f1"] for name in ("none", "chosen")]
    assert scores[0] < 0.2 < 0.4 < scores[1]
    sure = [{"text": f"{word} w{draw.random()}", "labels": [word] * (word != "sun")} for word in ("frost", "sun") * 150]
    rows = saved(tmp_path / "sure.jsonl", "".join(f"{json.dumps(row)}\n" for row in sure))
    recur.ok("finetune", rows, *options[2:], tmp_path / "sure")
    assert not (tmp_path / "sure" / "thresholds.json").exists()
