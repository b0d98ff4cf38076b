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

ROWS: list[tuple[bytes, str, str]] = [
    (b"a\rb", "a\rb", ""),
    (b"\xef\xbb\xbfb", "\ufeffb", ""),
    (b"", "", "its text is empty"),
    (b"\xffb", "\ufffdb", "is not UTF-8 at byte 1 (0xff)"),
    (b"b\0c", "b\0c", "holds a NUL at character 2"),
    ("a\u2028b\x85c\x0bd\x0ce".encode(), "a\u2028b\x85c\x0bd\x0ce", ""),
    (b'a"b', 'a"b', ""),
    (b'"a', '"a', ""),
    (b"b\tc", "b", "has 2 fields, not 1"),
    (b'c"', 'c"', ""),
    (b"a,b", "a,b", ""),
    *((word.encode(), word, "") for word in ("NA", "null", "None", "001")),
    (b" ", " ", "its text is empty"),
    (b"\xe3\x80\x80", "\u3000", "its text is empty"),
    (b"\x01\x02\x7f", "\x01\x02\x7f", ""),
    (b"[CLS] [SEP] [PAD]", "[CLS] [SEP] [PAD]", ""),
    (b"[red]a[/] \x1b[31mb", "[red]a[/] \x1b[31mb", ""),
    (b"ab" * 500_000, "ab" * 500_000, ""),
    (b"twice", "twice", ""),
    (b"twice", "twice", ""),
]
"""A line, its text in the output, and why it could not be read."""
FILES: dict[str, tuple[bytes, list[tuple[str, str]]]] = {
    "rows of every kind": (
        b"first\n" + b"".join(line + b"\n" for line, _, _ in ROWS),
        [("first", ""), *((text, reason) for _, text, reason in ROWS)],
    ),
    "an empty file": (b"", []),
    "only blank lines": (b"\n\n\r\n", [("", "its text is empty")] * 3),
    "mixed line ends": (b"a\r\nb\nc\r\n", [("a", ""), ("b", ""), ("c", "")]),
    "a BOM at the start": (b"\xef\xbb\xbfa\nb\n", [("a", ""), ("b", "")]),
}
"""Files without a header: the text and the reason of each row of the output."""


@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("name", FILES)
def test_every_row_of_a_tsv_comes_out_in_its_place(
    name: str, piped: bool, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, expected = FILES[name]
    (tmp_path / "x.tsv").write_bytes(content)
    as_stdin(monkeypatch, content)
    source = ["--format", "tsv"] if piped else [tmp_path / "x.tsv"]
    recur.ok("predict", trained, *source, "--no-header", "--output", tmp_path / "out")
    found = tsv((tmp_path / "out").read_bytes().decode())
    assert [row[0] for row in found] == [text for text, _ in expected]
    with_reason = piped or any(reason for _, reason in expected)
    assert [row[3:] for row in found] == [[reason] if with_reason else [] for _, reason in expected]
    assert all(row[1].isdigit() and 0 < float(row[2]) <= 1 for row in found)


def test_rows_with_too_few_or_too_many_fields_keep_their_place(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = saved(tmp_path / "x.tsv", "id\tsentence\n1\t鼠\n\n2\n3\t牛\t虎\n4\t\n5\t兔\n")
    out, _ = recur.ok("predict", trained, source)
    head, *found = tsv(out)
    assert head == ["id", "sentence", "prediction", "score", "reason"]
    assert [(row[0], row[1], row[4]) for row in found] == [
        ("1", "鼠", ""),
        ("", "", "is blank"),
        ("2", "", "has 1 field, not 2"),
        ("3", "牛", "has 3 fields, not 2"),
        ("4", "", "its text is empty"),
        ("5", "兔", ""),
    ]


ANY = ""
"""A row that may be read or not: it depends on how deep Python's stack is already."""
JSON_ROWS: list[tuple[bytes, str | None]] = [
    (b'{"sentence": "a"}', None),
    (b"", "is blank"),
    (b'{"sentence": 7}', "is a number"),
    (b'{"sentence": null}', "is null"),
    (b'{"sentence": ["a", 1]}', "is a list"),
    (b"[1]", "holds a list"),
    (b'"a"', "holds a string"),
    (b'{"text": "b"}', "has no 'sentence'"),
    (b'{"sentence": "b", "sentence": "c"}', "twice"),
    (b'{"sentence": "b", "x": NaN}', "NaN"),
    (b'{"sentence": "a", "x": 1e999}', "cannot be written as JSON"),
    (b'{"sentence": "\\ud800"}', "surrogate"),
    (b'{"sentence": "\\u0000"}', "NUL"),
    (b'{"sentence": "\xff"}', "is not UTF-8"),
    (b"[" * 100_000, "nested"),
    *(
        (b'{"sentence": "a", "x": ' + b"[" * depth + b"]" * depth + b"}", reason)
        for depth, reason in ((400, None), (900, ANY), (2000, "nested"))
    ),
    (b'{"sentence": "a\\nb\\tc\\r"}', None),
]
JSON_FILES: dict[str, tuple[bytes, list[str | None]]] = {
    "rows of every kind": (b"\n".join(row for row, _ in JSON_ROWS) + b"\n", [reason for _, reason in JSON_ROWS]),
    "an empty file": (b"", []),
}


@pytest.mark.parametrize("format", ["jsonl", "csv", "clue"])
@pytest.mark.parametrize("name", JSON_FILES)
def test_every_row_of_json_keeps_its_place(name: str, format: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    content, expected = JSON_FILES[name]
    out, _ = recur.ok("predict", trained, saved(tmp_path / "x.jsonl", content), "--format", format)
    if format == "jsonl":
        for line, reason in zip(jsonl(out), expected, strict=True):
            assert reason == ANY or bool(line.get("reason")) == bool(reason)
            assert (reason or "") in str(line.get("reason", ""))
            assert str(line["prediction"]).isdigit()
    else:
        lines = list(csv.reader(io.StringIO(out, newline=""))) if format == "csv" else out.splitlines()
        assert len(lines) - (format == "csv") == len(expected)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.tsv", b"a\rb\rc\r", "CR alone"),
        ("x.tsv.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-9], "compressed file"),
        ("x.tsv.gz", b"a\n", "compressed file"),
        ("x.json", b'[{"sentence": "a"}]', "array"),
        ("x.xlsx", b"a,b\n", ".xlsx files are not read"),
    ],
)
def test_a_file_that_is_something_else_is_refused_by_name(
    name: str, content: bytes, reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    err = recur.refused(3, reason, "predict", trained, tmp_path / name, "--output", tmp_path / "out", "--quiet")
    assert err.startswith(f"recur: error: {tmp_path / name}: ")
    assert not (tmp_path / "out").exists()


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
