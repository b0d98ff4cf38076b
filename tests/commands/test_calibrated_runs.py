"""The temperature of a run without an ensemble, and `recur predict --threshold`."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path

import pytest
from class_numbers import probabilities
from running import Recur
from tiny_task import tiny

import recurcli
from recurcli.cli import run
from recurcli.commands.prediction.output import PredictionFile, PredictionProgress
from recurcli.files import extend_manifest, read_manifest


@pytest.fixture(scope="module")
def plain(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without an ensemble."""
    path = tmp_path_factory.mktemp("plain") / "run"
    settings = tiny("ensemble=null", "finetuning.linear_baseline=false", "finetuning.epochs=1")
    source = ["--preset", "starsaber-tnews", "--data", str(tiny_tnews), "--output", str(path), "--quiet"]
    assert run(["finetune", *source, *settings]) == 0
    return path


def test_a_run_stores_its_temperature_and_the_probabilities_have_it(recur: Recur, plain: Path, trained: Path) -> None:
    assert json.loads((trained / "result.json").read_text())["calibration"]["temperature"] == 1, "an ensemble has none"
    stored = json.loads((plain / "kept.json").read_text())
    assert stored["rows"] == 24
    assert "kept.json" in read_manifest(plain)
    result = json.loads((plain / "result.json").read_text())
    assert result["calibration"]["temperature"] == stored["temperature"] != 1
    predictor = recurcli.load(plain)
    rows = [json.loads(line) for line in (plain / "predictions.dev.jsonl").read_text().splitlines()]
    logits = predictor.logits([row["text"] for row in rows])
    expected = probabilities(logits, stored["temperature"], rows=24)
    assert [list(row["probabilities"].values()) for row in rows] == pytest.approx(expected, abs=1e-6)
    predicted = predictor.predict([row["text"] for row in rows])
    assert [one.score for one in predicted] == pytest.approx(expected.max(axis=1), abs=1e-6)
    found = recur.json("eval", plain)
    assert found["calibration"]["ece"] == pytest.approx(result["calibration"]["ece"], abs=1e-6)
    assert found["metrics"]["loss"] == pytest.approx(result["dev"]["loss"], abs=1e-6), "the loss is that of the logits"


def test_a_damaged_temperature_is_an_error(recur: Recur, plain: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(plain, tmp_path / "run")
    kept = json.loads((plain / "kept.json").read_text())
    damaged: list[object] = [{**kept, "temperature": other} for other in (-1, math.nan, "x")]
    for content in (*damaged, {}, []):
        (copy / "kept.json").write_text(json.dumps(content))
        extend_manifest(copy, "kept.json")
        recur.refused(4, "kept.json: is damaged", "eval", copy)


def test_rows_below_the_threshold_have_no_prediction_but_a_reason(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("sentence\n鼠牛虎兔鼠牛\n鼠龙猴\n龙蛇马羊\n\n", encoding="utf-8")
    rows = [line.split("\t") for line in recur("predict", trained, source)[1].splitlines()]
    threshold = sorted(float(row[2]) for row in rows[1:])[1] + 1e-6
    out, err = recur.ok("predict", trained, source, "--threshold", threshold)
    labels = Counter(row[1] for row in rows[1:] if float(row[2]) >= threshold)
    counted = ", ".join(f"{label} {count}" for label, count in labels.most_common())
    assert err.splitlines()[-1] == f"recur: 4 rows ({counted}; 2 below the threshold)"
    head, *found = (line.split("\t") for line in out.splitlines())
    assert head == ["sentence", "prediction", "score", "reason"]
    for before, now in zip(rows[1:], found, strict=True):
        unsure = float(before[2]) < threshold
        assert now[:3] == [before[0], "" if unsure else before[1], before[2]]
        assert (f"the score is below {threshold:g}" in now[3]) == unsure
    _, out, _ = recur("predict", trained, source, "--threshold", threshold, "--format", "jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["prediction"] for line in lines] == [row[1] or None for row in found]
    assert ["reason" in line for line in lines] == [bool(row[3]) for row in found]


def test_a_threshold_has_no_meaning_for_a_leaderboard(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("sentence\n鼠\n", encoding="utf-8")
    recur.refused(2, "--threshold", "predict", trained, tmp_path / "x.tsv", "--format", "clue", "--threshold", 0.5)
    recur.refused(2, "--threshold", "predict", trained, tmp_path / "x.tsv", "--threshold", 1.5)


def test_the_number_of_rows_below_survives_a_resume(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "x.tsv", tmp_path / "out.tsv"
    source.write_text("sentence\n" + "鼠牛虎兔\n鼠龙猴\n" * 6, encoding="utf-8")
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    line = ("predict", trained, source, "--threshold", 0.95)
    whole = recur(*line, "--output", tmp_path / "whole.tsv")[2]
    saved, calls = PredictionFile.save, [0]

    def save_twice(output: PredictionFile, progress: PredictionProgress) -> None:
        saved(output, progress)
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PredictionFile, "save", save_twice)
        assert recur(*line, "--output", output)[0] == 130
    _, err = recur.ok(*line, "--output", output, "--resume")
    assert "going on after row" in err
    assert output.read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    told = whole.splitlines()[-1].replace("whole.tsv", "out.tsv")
    assert " below the threshold)" in told and told == err.splitlines()[-1]
