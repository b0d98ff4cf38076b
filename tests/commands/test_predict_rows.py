"""`recur predict`: one row out for each row in, in order, whatever a row holds."""

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import Kept
from predicting import Recur, as_stdin, jsonl, tsv
from pyarrow import parquet
from running import saved

from recurcli.cli import run
from recurcli.commands.predict import predict
from recurcli.errors import DataError
from recurcli.requests.predict import PredictRequest


def test_what_cannot_be_opened_is_named(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "is a folder"), ("/dev/null", "device")):
        recur.refused(3, reason, "predict", trained, path)


line = st.binary(max_size=12).map(lambda row: row.replace(b"\n", b""))


@settings(max_examples=12, deadline=None)
@given(lines=st.lists(line, max_size=8))
def test_no_bytes_lose_or_add_a_row(lines: list[bytes], trained: Path) -> None:
    content = b"".join(row + b"\n" for row in lines)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "x.tsv", Path(folder) / "out.jsonl"
        source.write_bytes(content)
        code = run(["predict", str(trained), str(source), "--no-header", "--quiet", "--output", str(output)])
        if code == 0:
            assert output.read_bytes().count(b"\n") == len(lines)
        else:
            assert code == 3, "the whole file is refused, as UTF-16 or something else"


TEXTS = ["鼠", 'a "b", c', "", "null", '"', "NA", "x,y", "\u2028", "'", "牛", "001"]
"""Texts that every format holds, more than two windows of them."""
INPUTS = ("x.tsv", "x.csv", "x.jsonl", "x.parquet", "x.tsv.gz", "x.csv.gz", "x.jsonl.gz", "standard input")


def content_of(name: str, texts: list[str]) -> bytes:
    """Return a file of the format that its name tells, with the texts and their numbers."""
    if ".parquet" in name:
        buffer = io.BytesIO()
        parquet.write_table(pyarrow.table({"key": [*map(str, range(len(texts)))], "sentence": texts}), buffer)
        return buffer.getvalue()
    content = io.StringIO(newline="")
    if ".jsonl" in name:
        content.writelines(f"{json.dumps({'key': str(n), 'sentence': text})}\n" for n, text in enumerate(texts))
    elif ".csv" in name:
        csv.writer(content, lineterminator="\n").writerows([("key", "sentence"), *enumerate(texts)])
    else:
        content.writelines(["key\tsentence\n", *(f"{n}\t{text}\n" for n, text in enumerate(texts))])
    encoded = content.getvalue().encode()
    return gzip.compress(encoded, mtime=0) if name.endswith(".gz") else encoded


def texts_of(output: Path) -> list[str]:
    """Return the texts of an output, and check that its rows are in order."""
    content = gzip.decompress(output.read_bytes()) if output.suffix == ".gz" else output.read_bytes()
    if output.suffix == ".parquet":
        found = parquet.read_table(output).to_pylist()
    elif ".jsonl" in output.name:
        found = jsonl(content.decode())
    else:
        head, *rows = (
            csv.reader(io.StringIO(content.decode(), newline="")) if ".csv" in output.name else tsv(content.decode())
        )
        found = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["key"] for row in found] == [str(number) for number in range(len(found))]
    return [row["sentence"] for row in found]


@pytest.mark.parametrize("name", INPUTS)
def test_rows_out_are_the_rows_counted_in_every_format(
    name: str, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    source = saved(tmp_path / name, content_of(name, TEXTS))
    for ending in ("tsv", "csv", "jsonl", "parquet", "csv.gz"):
        as_stdin(monkeypatch, source.read_bytes())
        output = tmp_path / f"out.{ending}"
        _, err = recur.ok("predict", trained, "-" if name == "standard input" else source, "--output", output)
        assert texts_of(output) == TEXTS
        assert f"{len(TEXTS)} rows (" in err


CHANGES: dict[str, Callable[[list[str]], list[str]]] = {
    "cut": lambda texts: texts[:9],
    "cut within its first part": lambda texts: texts[:2],
    "cut within its last row": lambda texts: [*texts[:-1], texts[-1][:1]],
    "grown": lambda texts: [*texts, "虎"],
    "emptied": lambda texts: [],
}


@pytest.mark.parametrize(
    ("name", "shard"), [("x.tsv", None), ("x.tsv", "2/2"), ("x.jsonl.gz", None), ("x.parquet", "2/2")]
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_after_the_counting_leaves_no_output(
    change: str, name: str, shard: str | None, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    source = saved(tmp_path / name, content_of(name, TEXTS))
    changed = content_of(name, CHANGES[change](TEXTS))
    request = PredictRequest(run=trained, inputs=[source], output=tmp_path / "out.csv", shard=shard)
    with pytest.raises(DataError, match=f"{name}: the file was changed while it was read"):
        predict(request, Kept(lambda state: state.done or source.write_bytes(changed)))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_empty_file_that_grows_after_the_counting_is_refused(trained: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "x.tsv", "")
    request = PredictRequest(run=trained, inputs=[source], output=tmp_path / "out.tsv")
    with pytest.raises(DataError, match="the file was changed while it was read"):
        predict(request, Kept(lambda state: source.write_text("鼠\n")))
    assert not (tmp_path / "out.tsv").exists()
