"""`recur finetune --teacher`: the soft labels of another model on rows, with and without a label of their own."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from class_numbers import fit_model, search_hyperparameters
from running import Recur
from tiny_task import tiny, write_rows

from recurcli.config import DataConfig, LinearConfig
from recurcli.data.splits import hashes_of, split_in_memory
from recurcli.data.tasks import task_named
from recurcli.data.teacher import read_teacher
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngram_hashes import NgramConfig
from recurcli.log import Log
from recurcli.targets import OneLabel

GOLD = [(f"{'good' if n % 2 else 'bad'} film {n}", "y" if n % 2 else "n") for n in range(60)]
DEV = [("good dev film", "y"), ("bad dev film", "n")]


LINEAR = ("finetune", "--preset", "linear-custom", "--quiet")


@pytest.fixture
def data(tmp_path: Path) -> tuple[str | Path, ...]:
    for name, rows in (("train", GOLD), ("dev", DEV)):
        lines = [f"{text},{label}\n" for text, label in rows]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    return ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--output", tmp_path / "run")


def write_tsv(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header.split(), *rows]))
    return path


SOFT = "text probability_n probability_y"
SOFT_LABELS = [
    ("good film 1", "y", 0.1, 0.9),  # a training row
    ("good film 1", "y", 0.1004, 0.8996),  # the same text, and the same soft label but for rounding
    ("Good  FILM 1", "n", 0.6, 0.4),  # a nearly equal text, which is a row of its own
    ("unscored test film", "y", 0.1, 0.9),  # a test row
    ("Bad dev film", "n", 0.8, 0.2),  # a dev row
    ("superb play", "y", 0.2, 0.8),  # a row of its own
    ("dreadful play", "n", 0.7, 0.3),
    ("who knows", "", 0.5, 0.5),  # below a threshold
]


def test_soft_labels_are_on_rows_or_add_rows(recur: Recur, data: tuple[str | Path, ...], tmp_path: Path) -> None:
    lines = [
        {"text": text, "label": 7, "prediction": label or None, "probabilities": {"n": n, "y": y}}
        for text, label, n, y in SOFT_LABELS
    ]
    write_rows(tmp_path / "soft.jsonl", lines)
    (tmp_path / "test.csv").write_text("text,label\nunscored test film,y\n")
    unscored = ("--test", tmp_path / "test.csv", "--set", "finetuning.score_test=false")
    expected = {"training_rows": 1, "added": 3, "left_out": 2, "without_soft_label": 1}
    two = [row[:2] for row in SOFT_LABELS]
    soft = write_tsv(tmp_path / "soft.tsv", "text prediction probability_n probability_y", SOFT_LABELS)
    for file, column in (
        (soft, "probability_LABEL"),
        (write_tsv(tmp_path / "hard.tsv", "text prediction", two), "prediction"),
        (write_tsv(tmp_path / "labels.tsv", "text label", two), "label"),
        (tmp_path / "soft.jsonl", "probabilities"),
    ):
        result = recur.json(*LINEAR, *data, *unscored, "--teacher", file, "--overwrite")
        assert result["teacher"].items() >= {"column": column, **expected}.items()
        assert result["linear_baseline"]["rows"] == 63


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_outputs_of_predict_can_teach(ending: str, recur: Recur, data: tuple[str | Path, ...], tmp_path: Path) -> None:
    recur.ok(*LINEAR, *data)
    (tmp_path / "x.txt").write_text("superb good play\ngood film 1\nBad dev film\n")
    soft = tmp_path / f"soft.{ending}"
    line = (tmp_path / "run", tmp_path / "x.txt", "--no-header", "--probabilities", "--output", soft)
    recur.ok("predict", *line)
    if ending == "tsv":
        assert soft.read_text().splitlines()[0] == "text\tprediction\tscore\tprobability_n\tprobability_y"
    _, err = recur.ok(*LINEAR[:3], *data[:-1], tmp_path / "student", "--teacher", soft)
    assert "soft labels for 1 training row, 1 row more to train on, 1 dev or test row left out" in err


def test_students_learn_from_teachers_and_resume(recur: Recur, data: tuple[str | Path, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    rows = [(f"{'zig' if n % 2 else 'zag'} {n}", 0.95 - 0.9 * (n % 2), 0.05 + 0.9 * (n % 2)) for n in range(80)]
    soft = write_tsv(tmp_path / "soft.tsv", "text probability_n probability_y", rows)
    settings = tiny("finetuning.epochs=4", "encoder.num_layers=1", "ensemble=null")
    command = ("finetune", "--preset", "starsaber-custom", *data, *settings, "--keep-checkpoints")
    recur.ok(*command, "--teacher", soft)
    (tmp_path / "x.txt").write_text("zig 500\nzag 501\nzig 502\nzag 503\n")
    out, _ = recur.ok("predict", run, tmp_path / "x.txt", "--no-header")
    assert [line.split("\t")[1] for line in out.splitlines()] == ["y", "n", "y", "n"]
    before = (run / "model.safetensors").read_bytes()
    moved = soft.rename(tmp_path / "moved.tsv")  # the file is known by its content
    (run / "result.json").unlink()
    shutil.rmtree(max((run / "checkpoints").glob("step-*")))
    recur.ok(*command, "--teacher", moved, "--resume")
    assert (run / "model.safetensors").read_bytes() == before
    assert "already finished" in recur.ok(*command, "--teacher", moved, "--resume")[1]
    other = write_tsv(tmp_path / "other.tsv", "text probability_n probability_y", rows[:60])
    for teacher in (["--teacher", other], []):
        recur.refused(2, "teacher sha256 was", *command, *teacher, "--resume")


@pytest.mark.parametrize(
    ("header", "rows", "reason"),
    [
        ("text", [("a",)], "has none of the columns probability_LABEL, probabilities, prediction and label"),
        ("text prediction", [("a", "yes")], "f.tsv:2: 'yes' is not a label of the training rows"),
        ("text probability_y probability_z", [("a", 0.5, 0.5)], "f.tsv:2: 'z' is not a label of the training rows"),
        (SOFT, [("a", 0.5, 0.5), ("b", 0.5, 0.4)], "f.tsv:3: the probabilities must have the sum 1"),
        (SOFT, [("a", "nan", 1)], "f.tsv:2: the probabilities must have the sum 1"),
        (SOFT, [("a", -0.5, 1.5)], "f.tsv:2: the probability of 'n' is below 0: -0.5"),
        (SOFT, [("a", "x", 1)], "f.tsv:2: the probability of 'n' is not a number: 'x'"),
        (SOFT, [("e\u0301", 0.2, 0.8), ("\xe9 ", 0.22, 0.78)], "f.tsv:3: has another soft label"),
        ("text prediction", [("a", "y"), ("b", "n"), ("a", "n"), ("b", "y")], "f.tsv:4: has another soft label"),
        ("text prediction", [("good dev film", "y"), ("a", "")], "none of its rows can teach: 1 are dev or test rows"),
        ("word prediction", [("a", "y")], "column"),
    ],
)
def test_a_file_that_cannot_teach_is_refused_in_one_line(
    header: str, rows: list[tuple[object, ...]], reason: str, recur: Recur, data: tuple[str | Path, ...], tmp_path: Path
) -> None:
    recur.refused(3, reason, *LINEAR, *data, "--teacher", write_tsv(tmp_path / "f.tsv", header, rows))
    assert not (tmp_path / "run").exists()


def test_json_rows_with_other_keys_are_refused(recur: Recur, data: tuple[str | Path, ...], tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    write_rows(file, [{"text": "a", "label": "y"}, {"text": "b", "probabilities": {"n": 0.5, "y": 0.5}}])
    reason = "f.jsonl:2: has probabilities, which the first row has not"
    recur.refused(3, reason, *LINEAR, *data, "--teacher", file)


def test_training_rows_of_the_teacher_are_counted(recur: Recur, data: tuple[str | Path, ...], tmp_path: Path) -> None:
    files = ("--train", tmp_path / "dev.csv", "--dev", tmp_path / "train.csv", "--output", tmp_path / "big")
    recur.ok(*LINEAR, *files)
    file = write_tsv(tmp_path / "f.tsv", "text prediction", [("a", "y"), ("", "n")])
    out, _ = recur.ok(*LINEAR[:3], "--json", *data, "--teacher", file)
    assert json.loads(out)["teacher"]["without_soft_label"] == 1  # the row without a text
    named = ("--teacher", file, "--set", f"finetuning.teacher_run={tmp_path / 'big'}", "--overwrite")
    _, err = recur.ok(*LINEAR, *data, *named)
    assert "has no effect" not in err
    assert f"dev: 2 of 2 rows are in the training rows of {tmp_path / 'big'} (equal or nearly equal texts)" in err
    write_tsv(file, "text prediction", [(GOLD[0][0], "y")])
    _, err = recur.ok(*LINEAR, *data, "--teacher", file, "--overwrite")
    assert "f.tsv: has no effect; the linear model reads the soft labels of rows without a label" in err


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("finetuning.loss=hinge", "teacher: must be null with loss hinge"),
        ("finetuning.teacher_weight=0", "teacher_weight: 0 should"),
        ("finetuning.teacher_temperature=0", "teacher_temperature: 0 should"),
    ],
)
def test_settings_that_a_teacher_cannot_have(
    setting: str, reason: str, recur: Recur, data: tuple[str | Path, ...], tmp_path: Path
) -> None:
    file = write_tsv(tmp_path / "f.tsv", "text prediction", [("a", "y")])
    recur.refused(2, reason, "finetune", "--preset", "rezero-custom", *data, "--teacher", file, "--set", setting)


def test_weights_stay_with_their_rows() -> None:
    draw = np.random.default_rng(0)
    is_good = draw.integers(0, 2, 600).astype(bool)
    texts = [(f"{'good' if good else 'bad'} w{n}", None) for n, good in enumerate(is_good)]
    is_wrong = draw.random(600) < 0.6  # most labels are wrong, and do not count
    targets = (is_good ^ is_wrong).astype(int).tolist()
    weights = np.where(is_wrong, 0.0, 1.0)
    for solver in ("LinearSVC", "SGD"):
        fitted = fit_model(texts, targets, 2, Hyperparameters(NgramConfig(words=(1, 1)), 0.5, solver), weights)
        assert ((fitted.logits(texts).argmax(axis=1) == 1) == is_good).all()
    found = search_hyperparameters(texts, targets, 2, LinearConfig(), weights)
    assert found.score == pytest.approx(1 - is_wrong.mean())


def test_rounded_probabilities_are_soft_labels(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "t.tsv", SOFT, [("a", 0.4, 0.592), ("b", 0.2, 0.8), ("b", 0.208, 0.792)])
    train = split_in_memory([("x", None, "y"), ("z", None, "n")])
    found = read_teacher(
        path,
        train,
        [],
        replace(task_named("custom"), labels=("n", "y"), target=OneLabel(("n", "y"))),
        DataConfig(),
        Log(),
    )[0]
    np.testing.assert_allclose(found.probabilities[2:].sum(axis=1), 1, rtol=1e-6)


def test_a_soft_label_is_on_the_row_of_the_same_text_and_every_other_is_a_row_of_its_own(tmp_path: Path) -> None:
    others = ["ハス", "कुल", "not able", "A FILM", "a  film", "ｆilm", "a film\u200c"]
    path = write_tsv(tmp_path / "t.tsv", SOFT, [(" Cafe\u0301 ", 0.2, 0.8), *((text, 0.9, 0.1) for text in others)])
    texts = ["Caf\xe9", "バス", "कल", "notable", "a film", "film", "Caf\xe9 "]
    train = split_in_memory([(text, None, "y") for text in texts])
    task = replace(task_named("custom"), labels=("n", "y"), target=OneLabel(("n", "y")))
    teacher, rows = read_teacher(path, train, [], task, DataConfig(), Log())
    expected = [[0.2, 0.8], *[[np.nan, np.nan]] * 5, [0.2, 0.8], *[[0.9, 0.1]] * len(others)]
    assert teacher.probabilities.tolist() == pytest.approx(np.array(expected), abs=1e-6, nan_ok=True)
    assert [example.text for example in rows.examples] == [*texts, *others]
    assert [example.label for example in rows.examples] == ["y"] * 7 + ["n"] * len(others)
    assert rows.hashes.tolist() == hashes_of(rows.texts).tolist()
    assert teacher.row_weights(0.3).tolist() == [1] * 7 + [0.3] * len(others)


def test_pairs_with_the_first_texts_of_drawn_dev_rows_are_left_out(recur: Recur, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).choice(["n", "y"], 60)
    lines = [f"{n},first text {n},second {n} {m},{labels[n]}" for n in range(60) for m in range(3)]
    (tmp_path / "pairs.csv").write_text("id,text,pair,label\n" + "\n".join(lines) + "\n")
    opinions = [(f"first text {n}", f"another second {n}", labels[n]) for n in range(60)]
    teacher = write_tsv(tmp_path / "t.tsv", "text pair label", opinions)
    line = ("--data", tmp_path / "pairs.csv", "--output", tmp_path / "run", "--teacher", teacher)
    result = recur.json(*LINEAR, *line)
    dev = result["data"]["dev"]["rows"] // 3
    assert dev > 2
    assert (result["teacher"]["left_out"], result["teacher"]["added"]) == (dev, 60 - dev)
