"""`recur predict` over the table in dirty_files.py: one row out for each row in, or the whole file refused by name."""

import time
from pathlib import Path

import pytest
from cases import slow_but
from dirty_files import CASES, Case, write
from predicting import Recur, as_stdin, jsonl

MAX_SECONDS = 20
"""CPU time that no file may take."""
PREDICTED = (
    *(("x.tsv", case) for case in ("an empty file", "a header only", "only blank lines", "a blank line in the middle")),
    *(
        ("x.tsv", case)
        for case in ("CR alone as line end", "UTF-16", "a bad byte", "NUL", "two stray quotes far apart")
    ),
    *(("x.tsv", case) for case in ("an extra TAB", "a missing field", "another delimiter", "no header", "a gzip file")),
    *(("x.tsv", case) for case in ("nearly the same name twice", "a header's name twice", "a line of 1 MB")),
    *(("x.tsv", case) for case in ("words that look like missing values", "an empty and a blank text")),
    *(("x.csv", case) for case in ("commas, quotes and lines in a text", "a quote that is never closed")),
    *(("x.csv", case) for case in ("a quote that a stray one closes", "another delimiter", "text after a quote")),
    *(("x.jsonl", case) for case in ("only blank lines", "a bad first row", "a cut last line", "null for a text")),
    *(
        ("x.jsonl", case)
        for case in ("a missing key", "a list of strings", "an array instead of lines", "an escaped NUL")
    ),
    *(("x.parquet", case) for case in ("no rows", "strings", "a null", "no numbers", "no text", "an empty file")),
)
"""What the default run predicts: a file for each thing that a prediction decides. Training reads the whole table."""
PACKED = (("x.tsv", "a bad byte"), ("x.csv", "CRLF"), ("x.jsonl", "a bad byte"), ("x.tsv", "UTF-16"))
"""What a gzipped file is tried with: a file of each format, and one that is refused."""
PIPED = (
    *("an empty file", "a header only", "only blank lines", "a BOM at the start", "UTF-16", "CR alone as line end"),
    *("a gzip file", "a Parquet file", "a bad first row", "an array instead of lines", "a cut last line", "a bad byte"),
    *("no line end at the end", "a blank line in the middle"),
)
"""What a pipe is tried with: what is decided by the first bytes or at the end, and a row that cannot be read."""
UNKNOWN = ("x.jsonl", "only blank lines")
"""A pipe has no name: what begins with no brace is TSV."""
WRITTEN_AS_TSV = (
    *(("x.tsv", case) for case in ("only blank lines", "a bad byte", "a lone CR in a text", "other line separators")),
    *(("x.tsv", "an extra TAB"), ("x.csv", "commas, quotes and lines in a text"), ("x.jsonl", "a line end in a text")),
    *(("x.jsonl", "a list of strings"), ("x.jsonl", "a number for a text")),
    *(("x.parquet", case) for case in ("strings", "objects", "no numbers", "no rows")),
)
"""Rows that a TSV must alter to keep each of them on its line, or cannot hold."""


def check(case: Case, code: int, out: str, err: str, name: str) -> None:
    """Each row of the output against its expectation."""
    if isinstance(case.prediction, str):
        assert (code, out) == (3, ""), err
        assert case.prediction in err
        assert err.startswith(f"recur: error: {name}")
        return
    assert code == 0, err
    found = jsonl(out)
    reasons = [str(row.get("reason", "")) for row in found]
    assert len(found) == len(case.prediction)
    for reason, wanted in zip(reasons, case.prediction, strict=True):
        assert wanted in reason and bool(wanted) == bool(reason)
    assert all(row["prediction"].isdigit() and 0 < row["score"] <= 1 for row in found)


@pytest.mark.parametrize("key", slow_but(PREDICTED, CASES), ids=" with ".join)
def test_every_row_of_a_file_comes_out_in_its_place(
    key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    case = CASES[key]
    path = write(case, tmp_path / key[0])
    started = time.process_time()
    result = recur("predict", trained, path, "--format", "jsonl")
    assert time.process_time() - started < MAX_SECONDS
    check(case, *result, name=str(path))
    rows = jsonl(result[1])
    if isinstance(case.training, list) and len(rows) == len(case.training) and not any(case.prediction):
        name = next(name for name in ("text", " Text", "1") if name in rows[0])
        texts = [" ".join(row[name]) if isinstance(row[name], list) else row[name] for row in rows]
        assert texts == case.training


@pytest.mark.parametrize("key", PACKED, ids=" with ".join)
def test_a_gzipped_file_gives_the_rows_of_the_file(
    key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    path = write(CASES[key], tmp_path / f"{key[0]}.gz")
    check(CASES[key], *recur("predict", trained, path, "--format", "jsonl"), name=str(path))


@pytest.mark.parametrize(
    "key",
    [key for key in CASES if key[0] in ("x.tsv", "x.jsonl") and key[1] in PIPED and key != UNKNOWN],
    ids=" with ".join,
)
def test_a_pipe_gives_the_rows_of_the_file(
    key: tuple[str, str], recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[key]
    assert isinstance(case.content, bytes)
    as_stdin(monkeypatch, case.content)
    check(case, *recur("predict", trained, "--format", "jsonl"), name="standard input")


UNFIT_FOR_TSV = (
    ("x.csv", "commas, quotes and lines in a text"),
    ("x.jsonl", "a line end in a text"),
    ("x.parquet", "strings"),
)
"""Files with a TAB or a line end in a text."""


@pytest.mark.parametrize("key", WRITTEN_AS_TSV, ids=" with ".join)
def test_a_row_is_a_line_of_the_tsv_that_is_written(
    key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    path = write(CASES[key], tmp_path / key[0])
    code, _, err = recur("predict", trained, path, "--format", "tsv", "--output", tmp_path / "out.tsv")
    if key in UNFIT_FOR_TSV:
        assert (code, "which no TSV can hold" in err, (tmp_path / "out.tsv").exists()) == (3, True, False)
        return
    assert code == 0, err
    lines = (tmp_path / "out.tsv").read_bytes().split(b"\n")[:-1]
    head = bool(lines) and b"prediction\tscore" in lines[0]
    assert len(lines) - head == len(CASES[key].prediction)
    assert len({line.count(b"\t") for line in lines}) <= 1
