"""Thresholds of the labels: chosen in a training or by `recur eval --fit-thresholds`, kept in the run, and followed by all."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import Recur, lines_of, result_of, saved
from small_runs import copy_of, weighted

from recurcli.cli import run as run_command
from recurcli.evaluation.inference import Predictor
from recurcli.runs.run_directory import LOCK, RunDirectory, open_run

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


def test_saved_thresholds_hold_in_the_files_of_the_run(plain: Path, moved: Path) -> None:
    stored = json.loads((moved / "thresholds.json").read_text())
    assert {*stored["thresholds"]} == {"spam", "ham"} and stored["folds"] == 5 and stored["rows"] == 240
    before, after = result_of(plain), result_of(moved)
    assert after["thresholds"] == stored
    assert stored["most_probable"] == before["dev"]["per_class"]["spam"]["f1"]
    assert after["dev"]["per_class"]["spam"]["f1"] >= stored["cross_validated"] > stored["most_probable"] + 0.02
    for split in ("dev", "test"):
        rows = lines_of(moved / f"predictions.{split}.jsonl")
        assert [row["prediction"] for row in rows] == [decided(row, stored["thresholds"]["spam"]) for row in rows]
        assert [row["probabilities"] for row in rows] == [
            row["probabilities"] for row in lines_of(plain / f"predictions.{split}.jsonl")
        ]
        right = np.mean([row["prediction"] == row["label"] for row in rows])
        assert after[split]["accuracy"] == pytest.approx(right) and after[split]["loss"] == before[split]["loss"]
    assert "by cross-validation the F1 of spam is " in (moved / "README.md").read_text()
    open_run(moved).verify()


def test_what_is_paired_on_the_test_rows_follows_them(recur: Recur, plain: Path, tmp_path: Path) -> None:
    small = ("encoder.hidden_size=8", "encoder.num_layers=1", "finetuning.max_steps=2")
    settings = [word for setting in (*small, "finetuning.encoder=always") for word in ("--set", setting)]
    files = [word for name in ("train", "dev", "test") for word in (f"--{name}", plain.with_name(f"{name}.csv"))]
    run = tmp_path / "run"
    recur.ok("finetune", "--preset", "bilstm-custom", *files, *settings, "--output", run)
    before = result_of(run)["test"]["paired"]
    recur.ok("eval", run, "--fit-thresholds", "f1:spam", "--save")
    after = result_of(run)["test"]["paired"]
    assert after == recur.json("eval", run, "--split", "test")["paired"] and after != before


def test_predict_eval_load_and_compare_follow_them(recur: Recur, plain: Path, moved: Path, tmp_path: Path) -> None:
    least = json.loads((moved / "thresholds.json").read_text())["thresholds"]["spam"]
    assert recur.json("eval", moved)["metrics"]["per_class"] == result_of(moved)["dev"]["per_class"]
    found = recur.json("compare", moved, "--metric", "f1:spam")["groups"][0]["mean"]
    assert found == result_of(moved)["dev"]["per_class"]["spam"]["f1"]
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
    assert result_of(tmp_path / "run")["test"] == result_of(moved)["test"]
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
        (("--fit-thresholds", "f1:spma"), "metric f1:spma: unknown label 'spma'; did you mean 'spam'?"),
        (("--save",), "--save keeps thresholds; choose them with --fit-thresholds METRIC"),
        (("--fit-thresholds", "mcc", "--split", "test"), "leave out --data and --split"),
    ],
)
def test_what_cannot_be_chosen_is_refused(options: tuple[str, ...], reason: str, recur: Recur, plain: Path) -> None:
    recur.refused(2, reason, "eval", plain, *options)


def test_a_locked_run_and_one_that_is_trained_anew_keep_what_they_have(
    recur: Recur, plain: Path, tmp_path: Path
) -> None:
    run = copy_of(plain, tmp_path / "run")
    save = ["eval", run, "--fit-thresholds", "f1:spam", "--save"]
    with RunDirectory(run).lock():
        recur.refused(5, "another recur is at work here", *save)
    (run / ".next").mkdir()
    shutil.copy(run / "preset.yaml", run / ".next")
    recur.refused(2, "a new training has begun", *save)
    assert not (run / "thresholds.json").exists()
    assert not [path for path in run.glob(".*") if path.name not in (LOCK, ".next")]


def test_an_unfinished_run_keeps_no_thresholds(recur: Recur, plain: Path, tmp_path: Path) -> None:
    run = copy_of(plain, tmp_path / "run")
    (run / "result.json").unlink()
    recur.refused(2, "its training is not finished", "eval", run, "--fit-thresholds", "f1:spam", "--save")


@pytest.mark.parametrize(
    ("value", "reason"), [("roc_auc", "thresholds: must be null or one of accuracy,"), ("f1:spma", "did you mean")]
)
def test_a_training_refuses_thresholds_for_what_does_not_exist(
    value: str, reason: str, recur: Recur, plain: Path, tmp_path: Path
) -> None:
    files = [part for name in ("train", "dev") for part in (f"--{name}", plain.with_name(f"{name}.csv"))]
    setting = ["--set", f"finetuning.thresholds={value}", "--output", tmp_path / "run"]
    recur.refused(2, reason, "finetune", "--preset", "linear-custom", *files, *setting)
