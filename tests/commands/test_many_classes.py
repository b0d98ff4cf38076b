"""Files and times with many classes: a confusion of cells, and the largest probabilities."""

import time
from pathlib import Path

import numpy as np
import pytest
from running import Recur, lines_of
from tiny_task import tiny

from recurcli.data.labels import check_labels
from recurcli.errors import DataError
from recurcli.files import to_json, write_manifest
from recurcli.runs.model_files import write_predictions
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import PREDICTIONS, Run
from recurcli.significance import intervals
from recurcli.targets import SeveralLabels
from recurcli.targets.target import MAX_LABELS


@pytest.mark.parametrize("classes", [100, 101])
def test_predictions_are_read_whatever_the_number_of_classes(classes: int, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(classes)]
    shares = np.random.default_rng(0).dirichlet(np.ones(classes), size=3)
    encoder = shares[:, ::-1].copy()
    (tmp_path / "config.json").write_text(to_json({"target": {"kind": "one"}, "id2label": dict(enumerate(names))}))
    write_manifest(tmp_path, ["config.json"])
    both = {"probabilities": shares, "encoder_probabilities": encoder}
    write_predictions(
        tmp_path / PREDICTIONS,
        ["1", "2", "3"],
        names[:3],
        names,
        both,
        [names[place] for place in both["probabilities"].argmax(axis=1)],
        [("a", None)] * 3,
    )
    lines = lines_of(tmp_path / "predictions.dev.jsonl")
    for line, row in zip(lines, shares, strict=True):
        assert len(line["probabilities"]) == (10 if classes > 100 else 100)
        assert sum(line["probabilities"].values()) + line.get("other_probabilities", 0) == pytest.approx(1)
        assert line["probabilities"][line["prediction"]] == row.max()
    for part, wanted in (("model", shares), ("encoder", encoder)):
        found = read_predictions(Run(tmp_path), part)  # type: ignore[arg-type]
        assert (found.target.labels, found.labels) == (tuple(names), names[:3])
        assert found.predictions == [names[place] for place in wanted.argmax(axis=1)]


def test_all_labels_of_a_row_are_read_of_many(tmp_path: Path) -> None:
    target = SeveralLabels(tuple(f"c{number}" for number in range(120)), ",")
    shares = np.where(np.arange(120) < 15, 0.6, 0.1)[None]
    [decided] = target.decode(target.decide(shares))
    (tmp_path / "config.json").write_text(
        to_json({"target": target.to_json(), "id2label": dict(enumerate(target.labels))})
    )
    write_manifest(tmp_path, ["config.json"])
    both = {"probabilities": shares, "encoder_probabilities": shares - 0.2}
    write_predictions(tmp_path / PREDICTIONS, ["1"], [decided], target.labels, both, [decided], least=np.full(120, 0.3))
    [line] = lines_of(tmp_path / "predictions.dev.jsonl")
    assert len(line["probabilities"]) == len(line["encoder_probabilities"]) == 15
    both["encoder_probabilities"] = shares
    write_predictions(tmp_path / PREDICTIONS, ["1"], [decided], target.labels, both, [decided])
    assert read_predictions(Run(tmp_path), "encoder").predictions == [decided]


def test_more_labels_than_are_tested_are_refused() -> None:
    labels = [str(number) for number in range(MAX_LABELS + 1)]
    with pytest.raises(DataError, match=rf"at most {MAX_LABELS:,} classes"):
        check_labels(labels, 10 * len(labels), "x.csv: column 'label'")
    check_labels(labels[1:], 10 * len(labels), "x.csv: column 'label'")


@pytest.mark.slow
def test_the_intervals_of_many_classes_take_seconds() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(6000) % 500
    predictions = np.where(draw.random(6000) < 0.6, labels, draw.integers(500, size=6000))
    started = time.process_time()
    found = intervals(labels, predictions, [*map(str, range(500))])
    assert time.process_time() - started < 4 and found["macro_f1"] is not None


@pytest.mark.slow
def test_the_largest_number_of_classes_is_trained_and_evaluated(recur: Recur, tmp_path: Path) -> None:
    for name, copies in (("train", 3), ("dev", 1)):
        rows = [f"w{c % 97} v{c // 97},c{c}\n" for c in range(MAX_LABELS) for _ in range(copies)]
        rows = rows if name == "train" else rows[:1500]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(rows))
    data = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--output", tmp_path / "run"]
    settings = tiny("finetuning.epochs=1", "finetuning.batch_size=128", "ensemble=linear")
    recur.ok("finetune", "--preset", "starsaber-custom", *data, *settings)
    assert (tmp_path / "run" / "result.json").stat().st_size < 4e6
    assert (tmp_path / "run" / "predictions.dev.jsonl").stat().st_size < 5e6
    cells = recur.json("eval", tmp_path / "run")["metrics"]["confusion"]
    assert sum(rows for _, _, rows in cells) == 1500
    recur.json("compare", tmp_path / "run")
