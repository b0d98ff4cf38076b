"""Every option that names a file to write refuses, before anything is computed, what it cannot or must not write."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Recur = Callable[..., tuple[int, str, str]]
ENDINGS = {
    ("eval", "--report"): ".html",
    ("eval", "--errors"): ".tsv",
    ("compare", "--output"): ".md",
    ("compare", "--report"): ".html",
    ("predict", "--output"): ".csv",
    ("export", "--output"): ".zip",
}
"""The option of each command that writes a file, and an ending that it takes."""
OPTIONS = pytest.mark.parametrize(("command", "option"), ENDINGS)


@pytest.fixture
def write(recur: Recur, trained: Path, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run a command that reads `inputs/` with an output option; what is refused is refused within a moment."""
    inputs = tmp_path / "inputs"
    shutil.copytree(trained, inputs / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (inputs / "x.jsonl").write_text('{"sentence": "鼠", "label": "100"}\n')
    arguments: dict[str, list[object]] = {
        "eval": [inputs / "run", "--data", inputs / "x.jsonl", "--diagnose"],
        "compare": [inputs / "run"],
        "predict": [inputs / "run", inputs / "x.jsonl"],
        "export": [inputs / "run"],
    }
    return lambda command, option, path, *more: recur(command, *arguments[command], option, path, *more)


@OPTIONS
def test_only_overwrite_replaces_a_file_or_a_link(command: str, option: str, write: Recur, tmp_path: Path) -> None:
    path, link = (tmp_path / f"{name}{ENDINGS[command, option]}" for name in ("there", "link"))
    path.write_text("precious")
    for target in (path, tmp_path / "nowhere"):
        link.symlink_to(target)
        for output in (path, link):
            code, out, err = write(command, option, output)
            assert (code, out) == (2, "")
            assert err == f"recur: error: {output}: exists already; replace it with --overwrite\n"
        link.unlink()
    assert path.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["inputs", path.name], "nothing is left"


@OPTIONS
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_what_cannot_be_written_is_refused(
    command: str, option: str, overwrite: list[str], write: Recur, tmp_path: Path
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
        found, out, err = write(command, option, path, *overwrite)
        assert (found, out, err.count("\n")) == (code, "", 1), err
        assert reason in err


@OPTIONS
def test_an_input_is_never_replaced(command: str, option: str, write: Recur, tmp_path: Path) -> None:
    read = tmp_path / "inputs" / ("x.jsonl" if command in ("eval", "predict") else "run/result.json")
    before = read.read_bytes()
    for kind in (Path.symlink_to, Path.hardlink_to):
        output = tmp_path / f"{kind.__name__}{ENDINGS[command, option]}"
        kind(output, read)
        code, out, err = write(command, option, output, "--overwrite")
        assert (code, out, err) == (
            2,
            "",
            f"recur: error: {output}: is an input as well; choose another {option}\n",
        )
    assert read.read_bytes() == before


def test_the_files_of_a_run_are_inputs(write: Recur, tmp_path: Path) -> None:
    output = tmp_path / "inputs" / "run" / "result.json"
    code, _, err = write("compare", "--output", output, "--overwrite")
    assert (code, "is an input as well" in err) == (2, True)
    assert write("compare", "--output", output.with_name("table.json"), "--quiet")[0] == 0
    assert write("compare", "--output", output.with_name("table.json"), "--quiet", "--overwrite")[0] == 0


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
    name: str, more: list[str], write: Recur, tmp_path: Path
) -> None:
    code, out, err = write("predict", "--output", tmp_path / name, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    said = f"an output of --format {more[1]}" if more else "an output"
    assert err.startswith(f"recur: error: {tmp_path / name}: {said} ends in one of .")
