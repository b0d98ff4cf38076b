"""Records of a TSV or JSON-lines file, one for each of its rows and in their order, whatever the row holds.

TSV fields are what stands between TABs: no quoting, no types, no NA words. A row that cannot be read is a record with
a `fault`, not an exception, so that a prediction can be written for it; a file that is something else is a DataError.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, BinaryIO, Literal, NamedTuple, Self

from recurcli.data.rows import LONGEST_ROW, Row, open_file, rows_of
from recurcli.errors import DataError, did_you_mean, visible

NUL = "\0"

Format = Literal["tsv", "jsonl"]
_FORMATS: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_NOT_READ = {".csv", ".parquet", ".arrow", ".xlsx", ".xls", ".zip", ".xz", ".bz2", ".zst", ".feather"}


class Record(NamedTuple):
    """One row: its number in the file from 1 (a header counts), what it holds, and why it cannot be used."""

    line: int
    fields: dict[str, Any]
    """TSV: column to string, as far as the row could be read. JSON: key to value."""
    fault: str | None = None


class Records(Iterator[Record]):
    """The records of an open file, once; a context manager that closes what `read_records` opened.

    `columns` are TSV's columns – the header's names, or "1", "2", … without a header – or the keys of the first JSON row.
    """

    def __init__(self, stream: BinaryIO, name: str, format: Format | None, *, header: bool, owned: bool) -> None:
        self.name = name
        self._stream = stream if owned else None
        self._rows = enumerate(rows_of(stream, name), 1)
        try:
            self._first = next(self._rows, None)
            self.format: Format = format or self._guessed()
            self.columns = self._header() if self.format == "tsv" and header else self._first_columns()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._stream is not None:
            self._stream.close()

    def __next__(self) -> Record:
        line, row = self._first or next(self._rows)
        self._first = None
        return _tsv_record(line, row, self.columns) if self.format == "tsv" else _json_record(line, row)

    def column(self, wanted: str) -> str:
        """The TSV column that `wanted` means: its name, or its number from 1; of JSON rows, each has its own keys.

        Raises DataError, with the nearest name, if there is none.
        """
        if self.format == "jsonl" or wanted in self.columns:
            return wanted
        if wanted.isascii() and wanted.isdigit() and 0 < int(wanted) <= len(self.columns):
            return self.columns[int(wanted) - 1]
        hint = did_you_mean(wanted, self.columns)
        if len(self.columns) == 1 and (mark := next((mark for mark in ",;|" if mark in self.columns[0]), None)):
            hint = f"; its fields seem to be separated by '{mark}', not by TAB"
        raise DataError(f"{self.name}:1: has no column '{visible(wanted)}'{visible(hint, limit=400)}")

    def _guessed(self) -> Format:
        suffixes = [suffix.lower() for suffix in PurePath(self.name).suffixes if suffix.lower() != ".gz"]
        if suffixes and suffixes[-1] in _NOT_READ:
            raise DataError(f"{self.name}: {suffixes[-1]} files are not read; write TSV or JSON lines")
        if suffixes and suffixes[-1] in _FORMATS:
            return _FORMATS[suffixes[-1]]
        content = self._first[1].content.lstrip() if self._first else b""
        return "jsonl" if content.startswith((b"{", b"[{")) else "tsv"

    def _header(self) -> tuple[str, ...]:
        if self._first is None:
            raise DataError(f"{self.name}: is empty; a header is wanted")
        text, fault = _decoded(self._first[1])
        if fault or not text.strip():
            raise DataError(f"{self.name}:1: {fault or 'is blank; a header is wanted'}")
        names = text.split("\t")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DataError(f"{self.name}:1: has the column '{visible(twice)}' twice")
        self._first = None
        return tuple(names)

    def _first_columns(self) -> tuple[str, ...]:
        if self._first is None:
            return ()
        line, row = self._first
        if self.format == "tsv":
            return tuple(str(number + 1) for number in range(row.content.count(b"\t") + 1))
        start = row.content.strip()
        if start.startswith(b"["):
            raise DataError(f"{self.name}: holds one JSON array; one object a line is wanted: jq -c '.[]'")
        if start == b"{":
            raise DataError(f"{self.name}: holds JSON spread over lines; one object a line is wanted: jq -c .")
        return tuple(_json_record(line, row).fields)


def read_records(
    source: str | Path | BinaryIO, format: Format | None = None, *, header: bool = True, name: str = "standard input"
) -> Records:
    """The records of a file (.tsv, .jsonl, .ndjson, a .json that holds lines, each also .gz) or of a binary stream.

    Without `format` the name's ending says what it is, else the first byte. `header` is for TSV: whether the first row
    names the columns. `name` stands for a stream in messages. Raises DataError if there is no such file, if it is something
    else (compressed, UTF-16, a JSON array, …), or if the header cannot be used; later, if it cannot be read to its end.
    """
    if isinstance(source, str | Path):
        return Records(open_file(Path(source)), str(source), format, header=header, owned=True)
    return Records(source, name, format, header=header, owned=False)


def _decoded(row: Row) -> tuple[str, str | None]:
    """The row as text, and its fault if the bytes are not all text (then undecodable ones are U+FFFD)."""
    if not row.whole:
        return "", f"is longer than {LONGEST_ROW >> 20} MiB"
    try:
        text = row.content.decode()
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 at byte {error.start + 1} (0x{row.content[error.start]:02x})"
        return row.content.decode(errors="replace"), fault
    return text, f"holds a NUL at character {text.index(NUL) + 1}" if NUL in text else None


def _tsv_record(line: int, row: Row, columns: Sequence[str]) -> Record:
    text, fault = _decoded(row)
    values = text.split("\t")
    if fault is None and len(values) != len(columns):
        fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
        fault = f"has {fields}, not {len(columns)}" if text else "is blank"
    values += [""] * (len(columns) - len(values))
    return Record(line, dict(zip(columns, values, strict=False)), fault)


class _BadJson(Exception):
    """What json itself would let pass."""


def _json_record(line: int, row: Row) -> Record:
    text, fault = _decoded(row)
    if fault is None and not text.strip():
        fault = "is blank"
    if fault is not None:
        return Record(line, {}, fault)
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
        if not isinstance(value, dict):
            raise _BadJson(f"holds {kind_of(value)}, not an object")
        if "\\u" in text:
            _check_strings(value)
    except _BadJson as error:
        return Record(line, {}, str(error))
    except json.JSONDecodeError as error:
        cut = " (it seems to be cut)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        return Record(line, {}, f"is not JSON: {error.msg} at character {error.pos + 1}{cut}")
    except RecursionError:
        return Record(line, {}, "is nested too deeply")
    except ValueError:
        return Record(line, {}, "holds a number with too many digits")
    return Record(line, value)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _BadJson(f"has the key '{visible(next(key for key in keys if keys.count(key) > 1))}' twice")
    return found


def _no_number(word: str) -> float:
    raise _BadJson(f"holds {word}, which is no number of JSON")


def _check_strings(value: Any) -> None:
    """Refuse what only an escape can bring into a JSON string and no UTF-8 text holds: NUL and lone surrogates."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_strings(key)
            _check_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_strings(inner)
    elif isinstance(value, str):
        if NUL in value:
            raise _BadJson("holds an escaped NUL")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise _BadJson("holds a lone surrogate, half of a character")


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return words.get(type(value), "an object")
