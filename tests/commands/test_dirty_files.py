"""Check, training and prediction take or refuse each file of the table in dirty_files.py: nothing is lost in silence."""

import time
from pathlib import Path

import pytest
from dirty_files import CASES, HEAD, TWO, Case, write
from predicting import Recur, as_stdin, jsonl
from tiny_task import tiny

from recurcli.config import DataConfig
from recurcli.data.splits import load_split, with_labels_of
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

MAX_SECONDS = 20
"""CPU time that no file may take; one word of a million characters once took minutes."""
TRAINED_ON = (("x.csv", "commas, quotes and lines in a text"), ("x.jsonl", "a bad first row"))
"""What goes through `recur finetune` as a whole, which reads its rows with `load_split`."""
PACKED = (("x.tsv", "a bad byte"), ("x.csv", "CRLF"), ("x.jsonl", "a cut last line"), ("x.tsv", "UTF-16"))
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


def check_prediction(case: Case, code: int, out: str, err: str, name: str) -> None:
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


def check_training(case: Case, name: str, path: Path) -> None:
    """The texts and labels of the training rows in `path`, or the refusal, are those of the case with the file `name`."""
    (path.parent / "dev.tsv").write_bytes(HEAD + TWO)
    config = DataConfig(path=str(path.parent))
    if isinstance(case.training, str):
        with pytest.raises(DataError) as refused:
            with_labels_of(TASKS["custom"], load_split(TASKS["custom"], "train", config), config)
        assert case.training.replace(name, path.name) in str(refused.value)
        assert str(refused.value).startswith(str(path))
    else:
        split = load_split(TASKS["custom"], "train", config)
        with_labels_of(TASKS["custom"], split, config)
        assert [example.text for example in split.examples] == case.training


@pytest.mark.parametrize("key", CASES, ids=" with ".join)
def test_check_training_and_prediction_read_every_row_or_name_the_first_bad_one(
    key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    name, case = key[0], CASES[key]
    folder = tmp_path / "data"
    folder.mkdir()
    rows_to_train = write(case, folder / name.replace("x", "train"))
    path = write(case, tmp_path / name)
    started = time.process_time()
    check_training(case, name, rows_to_train)
    code, _, err = recur("check", path, "--dev", folder / "dev.tsv", "--no-lengths")
    assert code == (3 if isinstance(case.training, str) else 0), err
    result = recur("predict", trained, path, "--format", "jsonl")
    assert time.process_time() - started < MAX_SECONDS
    check_prediction(case, *result, name=str(path))
    rows = jsonl(result[1])
    if isinstance(case.training, list) and len(rows) == len(case.training) and not any(case.prediction):
        column = next(column for column in ("text", " Text", "1") if column in rows[0])
        texts = [" ".join(row[column]) if isinstance(row[column], list) else row[column] for row in rows]
        assert texts == case.training


@pytest.mark.parametrize("key", TRAINED_ON, ids=" with ".join)
def test_finetune_takes_or_refuses_the_file(key: tuple[str, str], recur: Recur, tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    write(case, tmp_path / name.replace("x", "train"))
    (tmp_path / "dev.tsv").write_bytes(HEAD + TWO)
    options = ["--preset", "starsaber-custom", "--data", tmp_path, "--output", tmp_path / "run"]
    line = ("finetune", *options, *tiny(), "--dry-run")
    if isinstance(case.training, str):
        recur.refused(3, case.training.replace(name, name.replace("x", "train")), *line)
    else:
        assert recur.json(*line)["data"]["train"]["rows"] == len(case.training)


@pytest.mark.parametrize("key", PACKED, ids=" with ".join)
def test_a_gzipped_file_gives_its_rows(key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    check_training(case, name, write(case, tmp_path / f"{name.replace('x', 'train')}.gz"))
    path = write(case, tmp_path / f"{name}.gz")
    check_prediction(case, *recur("predict", trained, path, "--format", "jsonl"), name=str(path))


@pytest.mark.parametrize(
    "key",
    [key for key in CASES if key[0] in ("x.tsv", "x.jsonl") and key[1] in PIPED and key != UNKNOWN],
    ids=" with ".join,
)
def test_a_pipe_gives_rows(key: tuple[str, str], recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[key]
    assert isinstance(case.content, bytes)
    as_stdin(monkeypatch, case.content)
    check_prediction(case, *recur("predict", trained, "--format", "jsonl"), name="standard input")


UNFIT_FOR_TSV = (
    ("x.csv", "commas, quotes and lines in a text"),
    ("x.jsonl", "a line end in a text"),
    ("x.parquet", "strings"),
)
"""Files with a TAB or a line end in a text."""


@pytest.mark.parametrize("key", WRITTEN_AS_TSV, ids=" with ".join)
def test_a_row_is_a_line_of_the_written_tsv(key: tuple[str, str], recur: Recur, trained: Path, tmp_path: Path) -> None:
    path = write(CASES[key], tmp_path / key[0])
    line = ("predict", trained, path, "--format", "tsv", "--output", tmp_path / "out.tsv")
    if key in UNFIT_FOR_TSV:
        recur.refused(3, "which no TSV can hold", *line)
        assert not (tmp_path / "out.tsv").exists()
        return
    recur.ok(*line)
    lines = (tmp_path / "out.tsv").read_bytes().split(b"\n")[:-1]
    head = bool(lines) and b"prediction\tscore" in lines[0]
    assert len(lines) - head == len(CASES[key].prediction)
    assert len({line.count(b"\t") for line in lines}) <= 1
