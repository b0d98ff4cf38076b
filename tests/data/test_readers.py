"""Each row of a file becomes a record, and a fault concerns its row alone; see dirty_files.py for more cases."""

import contextlib
import io
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing import PACK, zipped
from sources import like

from recurcli.config import DataConfig
from recurcli.data.columns import TextColumns
from recurcli.data.readers import read_records, recognised_delimiter
from recurcli.data.rows import Format, Record
from recurcli.data.source import find_source
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

CUSTOM = TASKS["custom"]


def records(data: bytes, format: Format | None = None, *, header: bool = True) -> list[Record]:
    found = read_records(io.BytesIO(data), format, name="x")
    if header and found.delimiter is not None:
        found.take_header()
    return list(found)


def faults(data: bytes, format: Format | None = None) -> list[str | None]:
    return [record.fault for record in records(data, format)]


def test_a_record_knows_its_line() -> None:
    assert [record.line for record in records(b"text\n a\nb\n")] == [2, 3]
    assert [record.line for record in records(b"a\nb\n", header=False)] == [1, 2]
    assert [record.line for record in records(b'{"a": 1}\n\n{"a": 2}\n')] == [1, 2, 3]


def test_a_faulty_tsv_row_still_shows_what_could_be_read() -> None:
    assert [r.fields for r in records(b"text\tlabel\na\xff\n")] == [{"text": "a\ufffd", "label": ""}]


def test_a_header_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(DataError, match="x:1: is not UTF-8"):
        records(b"text\xff\n", "tsv")


NAMES = tuple(f"column {number}" for number in range(60_000))
SECONDS = 5.0


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Fail if the block takes longer than SECONDS; a comparison of all columns with all takes a minute."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SECONDS


def test_a_repeated_name_is_found_among_60_000() -> None:
    twice = [*NAMES, "column 59998"]
    row = "{" + ",".join(f'"{name}":1' for name in twice) + "}\n"
    with in_time():
        assert faults(row.encode()) == ["has the key 'column 59998' twice"]
        with pytest.raises(DataError, match="x:1: has the column 'column 59998' twice"):
            records((",".join(twice) + "\n").encode(), "csv")


def test_columns_are_found_among_60_000(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join([*NAMES, "text", "label"]) + ("\n" + "," * 60_000 + "a,p") * 3 + "\n")
    with in_time():
        source, found = find_source(path, CUSTOM, DataConfig(), labelled=True)
        with found:
            assert [source.columns.read(record).text for record in found] == ["a", "a", "a"]
    with in_time():
        source, found = find_source(path, CUSTOM, DataConfig(), like=like(), is_input=True)
    with found:
        assert source.columns.text == ("60001",)


def test_a_missing_column_is_told_beside_60_000() -> None:
    """Each bad row is told the nearest of its keys."""
    fields = dict.fromkeys(NAMES, "x")
    with in_time():
        assert all("did you mean" in str(TextColumns(("column 7x",)).read(Record(1, fields)).fault) for _ in range(20))


def test_empty_names_of_columns_may_repeat() -> None:
    found = read_records(io.BytesIO(b"text,label,,\na,b,,\n"), "csv")
    found.take_header()
    assert found.columns == ("text", "label", "", "")


def test_without_a_header_columns_are_numbered_and_the_first_row_is_data() -> None:
    found = read_records(io.BytesIO(b"a\tb\nc\td\n"))
    assert found.columns == ("1", "2")
    assert [record.fields for record in found] == [{"1": "a", "2": "b"}, {"1": "c", "2": "d"}]
    assert records(b"", header=False) == []
    assert records(b"a\n\nb\n", header=False)[1] == Record(2, {"1": ""}, None), "an empty text"


def test_json_values_keep_their_types_and_escapes() -> None:
    row = rb'{"text": "\u4f60\ud83d\ude00\\u0000", "n": 1, "x": null, "list": ["a"]}'
    assert records(row)[0].fields == {"text": "你😀\\u0000", "n": 1, "x": None, "list": ["a"]}


@pytest.mark.parametrize(
    ("name", "data", "format"),
    [
        ("x.tsv", b"{a\n", "tsv"),
        ("x.json", b'{"a": 1}\n', "jsonl"),
        ("x.jsonl", b"a\tb\n", "jsonl"),
        ("x.JSONL", b'{"a": 1}\n', "jsonl"),
        ("x", b'{"a": 1}\n', "jsonl"),
        ("x", b"[MAX 1 2 ]\n", "tsv"),
        ("x.txt", b"a\n", "tsv"),
    ],
)
def test_the_name_says_the_format_or_else_the_first_byte(tmp_path: Path, name: str, data: bytes, format: str) -> None:
    contents = {tmp_path / f"{name}{ending}": pack(data) for ending, pack in PACK.items()}
    for path, content in {tmp_path / name: data, tmp_path / "an archive.zip": zipped(data, name), **contents}.items():
        path.write_bytes(content)
        with read_records(path) as found:
            assert found.format == format


def test_a_format_that_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.feather").write_text("a,b\n")
    with pytest.raises(
        DataError, match=r"x\.feather: \.feather files are not read; write TSV, CSV, JSON lines or Parquet"
    ):
        read_records(tmp_path / "x.feather")


@pytest.mark.parametrize(
    ("name", "data", "mark"),
    [
        ("x.csv", 'text;label\n"a;\nb";c\nd, e;f\n', ";"),
        ("x.tsv", "text,label\na,b\n", ","),
        ("x.csv", "text\tlabel\na, b\tc\n", "\t"),
        ("x.tsv", "text|label\na;b|c\n", "|"),
        ("x.csv", "text,label\na;b,c\n", None),
        ("x.csv", "text;label\na;b\nc;d;e\n", None),
        ("x.csv", "text;label\na;b\n\n", None),
        ("x.csv", "a;b|c\nd;e|f\n", None),
        ("x.tsv", 'text,label\n"a",b\n', None),
        ("x.csv", "text\na\n", None),
        ("x.jsonl", '{"a": ";"}\n', None),
        ("x.csv", "", None),
    ],
)
def test_a_delimiter_is_recognised_where_every_row_splits_alike(
    name: str, data: str, mark: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(data)
    assert recognised_delimiter(tmp_path / name, "utf-8") == mark
    assert recognised_delimiter(tmp_path / "absent.csv", "utf-8") is None


def test_a_stream_is_left_open_and_a_file_is_closed(tmp_path: Path) -> None:
    stream = io.BytesIO(b"a\nb\n")
    with read_records(stream) as found:
        next(found)
    assert not stream.closed
    (tmp_path / "x.tsv").write_bytes(b"a\nb\n")
    with read_records(tmp_path / "x.tsv") as found:
        next(found)  # left before the end: an open file would be a warning, hence an error


class Long(io.RawIOBase):
    """A stream of 20 MB that nobody holds."""

    chunks = 320

    def read(self, size: int = -1) -> bytes:
        self.chunks -= 1
        return (b"x" * 1000 + b"\ty\n") * 65 if self.chunks >= 0 else b""


def test_a_long_stream_takes_no_more_memory_than_a_short_one() -> None:
    tracemalloc.start()
    count = 0
    for record in read_records(Long(), "tsv"):  # type: ignore[arg-type]
        count = record.line
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 320 * 65
    assert peak < 2_000_000


rows = st.lists(st.binary(max_size=12).map(lambda row: row.replace(b"\n", b"").replace(b"\0", b"")), max_size=12)


@given(rows=rows)
def test_there_are_as_many_records_as_rows(rows: list[bytes]) -> None:
    body = b"".join(row + b"\n" for row in rows)
    # The é says that the file is UTF-8; without it two rows of chance could pass for GBK.
    assert len(records("té\tlabel\n".encode() + body)) == len(rows)
    assert len(records("té\n".encode() + body, header=False)) == len(rows) + 1
    assert len(records('{"é": 1}\n'.encode() + body, "jsonl")) == len(rows) + 1


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"))] * 2), max_size=10))
def test_what_is_written_as_tsv_is_read_back(pairs: list[tuple[str, str]]) -> None:
    data = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs)
    assert [tuple(record.fields.values()) for record in records(data.encode())] == pairs
