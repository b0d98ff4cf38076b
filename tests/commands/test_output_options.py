"""Every option that names a file to write refuses, before anything is computed, what it cannot or must not write."""

from pathlib import Path
from typing import Any

import pytest
from running import Recur
from small_runs import copy_of

ENDINGS = {
    ("eval", "--report"): ".html",
    ("eval", "--errors"): ".tsv",
    ("compare", "--output"): ".md",
    ("compare", "--report"): ".html",
    ("predict", "--output"): ".csv",
    ("export", "--output"): ".zip",
}
"""The option of each command that writes a file, and an ending that it takes."""
Lines = dict[str, list[Any]]
OPTIONS = pytest.mark.parametrize(("command", "option"), ENDINGS)


@pytest.fixture
def arguments(trained: Path, tmp_path: Path) -> Lines:
    """What each command reads of `inputs/`."""
    inputs = tmp_path / "inputs"
    copy_of(trained, inputs / "run")
    (inputs / "x.jsonl").write_text('{"sentence": "鼠", "label": "100"}\n')
    return {
        "eval": ["eval", inputs / "run", "--data", inputs / "x.jsonl", "--diagnose"],
        "compare": ["compare", inputs / "run"],
        "predict": ["predict", inputs / "run", inputs / "x.jsonl"],
        "export": ["export", inputs / "run"],
    }


@OPTIONS
def test_only_overwrite_replaces_a_file_or_a_link(
    command: str, option: str, recur: Recur, arguments: Lines, tmp_path: Path
) -> None:
    path, link = (tmp_path / f"{name}{ENDINGS[command, option]}" for name in ("there", "link"))
    path.write_text("precious")
    for target in (path, tmp_path / "nowhere"):
        link.symlink_to(target)
        for output in (path, link):
            recur.refused(2, f"{output}: exists already", *arguments[command], option, output)
        link.unlink()
    assert path.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["inputs", path.name], "nothing is left"


@OPTIONS
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_what_cannot_be_written_is_refused(
    command: str, option: str, overwrite: list[str], recur: Recur, arguments: Lines, tmp_path: Path
) -> None:
    ending = ENDINGS[command, option]
    (tmp_path / f"folder{ending}").mkdir()
    for path, code, reason in (
        (tmp_path / f"folder{ending}", 2, f"is a folder; name a file with {option}"),
        (tmp_path / "no" / f"x{ending}", 2, f"no: no such folder; make it first, or choose another {option}"),
        (tmp_path / "x.xlsx", 2, "x.xlsx: a"),
        (tmp_path / f"x{ending}.xlsx", 2, " ends in "),
        (Path(f"/proc/x{ending}"), 5, "cannot be written"),
    ):
        recur.refused(code, reason, *arguments[command], option, path, *overwrite)


@OPTIONS
def test_an_input_is_never_replaced(command: str, option: str, recur: Recur, arguments: Lines, tmp_path: Path) -> None:
    read = tmp_path / "inputs" / ("x.jsonl" if command in ("eval", "predict") else "run/result.json")
    before = read.read_bytes()
    for kind in (Path.symlink_to, Path.hardlink_to):
        output = tmp_path / f"{kind.__name__}{ENDINGS[command, option]}"
        kind(output, read)
        recur.refused(2, f"{output}: is an input as well", *arguments[command], option, output, "--overwrite")
    assert read.read_bytes() == before


def test_the_files_of_a_run_are_inputs(recur: Recur, arguments: Lines, tmp_path: Path) -> None:
    line, run = [*arguments["compare"], "--output"], tmp_path / "inputs" / "run"
    recur.refused(2, "is an input as well", *line, run / "result.json", "--overwrite")
    recur.ok(*line, run / "table.json")
    recur.ok(*line, run / "table.json", "--overwrite")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("x.jsonl", ["--format", "csv"]),
        ("x.csv", ["--format", "clue"]),
        ("x.json", []),
        ("x.csv.zip", []),
        ("x.gz", []),
        ("x.txt", ["--format", "tsv"]),
    ],
)
def test_an_ending_that_is_no_format_or_another_is_refused(
    name: str, more: list[str], recur: Recur, arguments: Lines, tmp_path: Path
) -> None:
    said = f"an output of --format {more[1]}" if more else "an output"
    reason = f"{tmp_path / name}: {said} ends in one of ."
    recur.refused(2, reason, *arguments["predict"], "--output", tmp_path / name, *more)
