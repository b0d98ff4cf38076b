"""`recur export --format clue` from the command line: a zip that the leaderboard takes, or a reason and no zip."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from running import Recur
from small_runs import copy_of
from tiny_task import rows, tiny, write_rows

import recurcli
from recurcli.cli import run
from recurcli.commands.export import FORMATS
from recurcli.export.clue import validate
from recurcli.export.format import ExportFormat, TrainedRun
from recurcli.files import OutputKind, write_atomically
from recurcli.log import Log


@pytest.fixture(scope="session")
def full_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test files of TNEWS of their official 10,000 rows."""
    folder = tmp_path_factory.mktemp("full")
    write_rows(folder / "test.json", rows(10_000, seed=6, labelled=False))
    write_rows(folder / "test1.0.json", rows(10_000, seed=7, labelled=False))
    return folder


def labels_of(path: Path, name: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return [json.loads(line)["label"] for line in archive.read(name).decode().splitlines()]


@pytest.fixture(scope="module")
def exported(trained: Path, full_tests: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The submission of both test files."""
    output = tmp_path_factory.mktemp("exported") / "clue.zip"
    assert run(["export", str(trained), "--data", str(full_tests), "--output", str(output), "--quiet"]) == 0
    return output


def test_the_zip_holds_every_test_file_with_the_labels_that_predict_gives(
    recur: Recur, trained: Path, full_tests: Path, exported: Path, tmp_path: Path
) -> None:
    assert zipfile.ZipFile(exported).namelist() == ["tnews10_predict.json", "tnews11_predict.json"]
    assert not [finding for finding in validate(exported) if finding.level != "information"]
    lines = (full_tests / "test.json").read_text(encoding="utf-8").splitlines(keepends=True)[-500:]
    (tmp_path / "last.json").write_text("".join(lines), encoding="utf-8")
    predicted = recur("predict", trained, tmp_path / "last.json", "--quiet")[1]
    labels = [json.loads(line)["prediction"] for line in predicted.splitlines()]
    assert labels_of(exported, "tnews11_predict.json")[-500:] == labels


@pytest.mark.slow
def test_a_zip_is_the_same_bytes(recur: Recur, trained: Path, full_tests: Path, exported: Path, tmp_path: Path) -> None:
    output = tmp_path / "clue.zip"
    output.write_bytes(b"an older one")
    more = ("--overwrite", "--batch-size", 33, "--json")
    out, _ = recur.ok("export", trained, "--data", full_tests, "--output", output, *more)
    assert output.read_bytes() == exported.read_bytes()
    assert [(file["name"], file["rows"], file["from"]) for file in json.loads(out)["files"]] == [
        ("tnews10_predict.json", 10_000, "test1.0.json"),
        ("tnews11_predict.json", 10_000, "test.json"),
    ]


def test_a_single_file_answers_its_submission(recur: Recur, trained: Path, full_tests: Path, tmp_path: Path) -> None:
    output = tmp_path / "clue.zip"
    out, err = recur.ok("export", trained, "--data", full_tests / "test1.0.json", "--output", output)
    assert ["tnews10_predict.json", "10,000", "test1.0.json"] in [line.split()[:3] for line in out.splitlines()]
    assert zipfile.ZipFile(output).namelist() == ["tnews10_predict.json"]
    assert "recur: warning: tnews11_predict.json is left out: test.json is missing\n" in err


GOOD = '{"sentence": "鼠"}\n' * 10_000


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"test.json": GOOD.replace("\n", "", 1)}, "test.json:1: "),
        ({"test.json": GOOD[: -len(GOOD) // 10_000]}, "test.json: has 9,999 rows; test.json of CLUE has 10,000"),
        ({"test.json": GOOD + '{"sentence": 7}\n'}, "test.json:10001: 'sentence' is a number"),
        ({"test.json": ""}, "test.json: has no rows"),
        ({"test.json": GOOD, "test1.0.json": "{\n"}, "test1.0.json"),
        ({}, "has no test rows (looked for test.json"),
    ],
)
def test_bad_rows_make_no_zip(files: dict[str, str], reason: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    recur.refused(3, reason, "export", trained, "--data", tmp_path, "--output", tmp_path / "clue.zip")
    assert not (tmp_path / "clue.zip").exists()


def test_two_runs_of_one_task_are_refused(recur: Recur, trained: Path, full_tests: Path, tmp_path: Path) -> None:
    again = copy_of(trained, tmp_path / "again")
    line = ("export", trained, again, "--data", full_tests, "--output", tmp_path / "clue.zip")
    recur.refused(2, f"{again}: is of the task tnews, as is {trained}", *line)


def test_a_task_that_is_not_clues_is_refused(recur: Recur, tmp_path: Path) -> None:
    output = tmp_path / "listops"
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n[MAX 1 2]\t2\n[MIN 1 2]\t1\n")
    options = ["--preset", "rezero-listops-mini", "--data", str(tmp_path), "--output", str(output), "--quiet"]
    assert run(["finetune", *options, *tiny("tokenizer.kind=char", "finetuning.max_steps=1")]) == 0
    line = ("export", output, "--format", "clue", "--output", tmp_path / "clue.zip")
    recur.refused(2, "listops-mini is not a task of CLUE", *line)


def test_a_damaged_model_ends_it_before_anything(recur: Recur, trained: Path, full_tests: Path, tmp_path: Path) -> None:
    damaged = copy_of(trained, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"")
    line = ("export", trained, damaged, "--data", full_tests, "--output", tmp_path / "clue.zip")
    recur.refused(4, f"{damaged / 'model.safetensors'}: is damaged", *line)
    assert not (tmp_path / "clue.zip").exists()


def export_vocabulary(runs: Sequence[TrainedRun], output: Path, log: Log) -> dict[str, Any]:
    """A format of the test: the label of a text, and the tokens of the vocabulary, a line each."""
    [run] = runs
    assert run.predictor.encoder is not None
    [prediction] = run.predictor.predict(["鼠"])
    tokens = run.predictor.encoder.tokenizer.tokens
    write_atomically(output, "".join(f"{line}\n" for line in (prediction.label, *tokens)))
    file = {"name": output.name, "rows": len(tokens), "from": run.task.name, "run": str(run.path)}
    return {"files": [file]}


def test_a_format_is_a_function(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "vocabulary", ExportFormat(export_vocabulary, OutputKind("a vocabulary", (".txt",))))
    options = ["--format", "vocabulary", "--output"]
    out, _ = recur.ok("export", trained, *options, tmp_path / "x.txt", "--json")
    label, *tokens = (tmp_path / "x.txt").read_text().split("\n")
    assert label in recurcli.load(trained).labels
    assert tokens[:4] == ["[PAD]", "[UNK]", "[SEP]", "[MASK]"]
    assert json.loads(out)["files"][0]["rows"] == len(tokens) - 1
    recur.refused(2, "x.zip: a vocabulary ends in .txt", "export", trained, *options, tmp_path / "x.zip")


def test_a_format_that_is_unknown_is_refused_with_those_there_are(recur: Recur, trained: Path) -> None:
    recur.refused(2, "unknown format 'pickle'", "export", trained, "--format", "pickle", "--output", "x.zip")
