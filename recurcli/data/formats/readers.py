"""Records of a data file – TSV, CSV, JSON lines, Parquet, or a folder of texts – one for each of its rows.

No types are guessed and no words mean "missing": a text is a string. A row that cannot be read is a record with a `fault`,
not an exception, so that a prediction can be written for it; a file that is something else is a DataError.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import BinaryIO

from recurcli.data.formats.json_lines import json_record
from recurcli.data.formats.label_folders import LabelFolders
from recurcli.data.formats.parquet import ParquetRecords
from recurcli.data.formats.records import Format, Record, Records, kind_of
from recurcli.data.formats.rows import open_file, rows_of
from recurcli.data.formats.separated import Fields, comma_separated, tab_separated
from recurcli.errors import DataError, escaped

__all__ = ["FORMATS", "Format", "Record", "Records", "format_of", "kind_of", "read_records"]

FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
"""What the ending of a file's name says of it; all but Parquet may end in .gz besides."""
ROWS_FOR_KEYS = 100
"""JSON rows that are looked at for one that can be read, whose keys are then the columns."""
_NOT_READ = {".arrow", ".xlsx", ".xls", ".zip", ".xz", ".bz2", ".zst", ".feather"}


def format_of(name: str) -> Format | None:
    """What the ending of `name` says of the file; None if nothing."""
    suffixes = [suffix.lower() for suffix in PurePath(name).suffixes if suffix.lower() != ".gz"]
    if suffixes and suffixes[-1] in _NOT_READ:
        raise DataError(f"{name}: {suffixes[-1]} files are not read; write TSV, CSV, JSON lines or Parquet")
    return FORMATS.get(suffixes[-1]) if suffixes else None


def read_records(
    source: str | Path | BinaryIO,
    format: Format | None = None,
    *,
    header: bool = True,
    name: str = "standard input",
    delimiter: str | None = None,
    labels: Sequence[str] = (),
) -> Records:
    """The records of a file (see FORMATS), of a folder of folders named by label (`format` "folders"), or of a stream.

    Without `format` the name's ending says what it is, else the first byte. `header` is for TSV and CSV: whether the first
    row names the columns; so is `delimiter`, where it is not TAB or a comma. `labels`: those of folders. `name` stands for a
    stream in messages. Raises DataError if there is no such file, if it is something else (compressed, UTF-16, a JSON array,
    …), or if the header cannot be used; later, if it cannot be read to its end.
    """
    if not isinstance(source, str | Path):
        return TextRecords(source, name, format, header=header, owned=False, delimiter=delimiter)
    path = Path(source)
    if format == "folders":
        return LabelFolders(path, labels)
    if (format or format_of(str(path))) == "parquet":
        open_file(path).close()
        return ParquetRecords(path)
    return TextRecords(open_file(path), str(path), format, header=header, owned=True, delimiter=delimiter)


class TextRecords(Records):
    """The records of an open TSV, CSV or JSON-lines file."""

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        format: Format | None,
        *,
        header: bool,
        owned: bool,
        delimiter: str | None = None,
    ) -> None:
        super().__init__(name)
        self._stream = stream if owned else None
        try:
            rows = rows_of(stream, name)
            first = next(rows, None)
            self.format = format or format_of(name) or _guessed(b"" if first is None else first.content)
            if self.format not in ("tsv", "csv", "jsonl"):
                raise DataError(f"{name}: {self.format} cannot be read from a pipe; name the file")
            whole = rows if first is None else chain([first], rows)
            if self.format == "jsonl":
                if first is not None:
                    _refuse_a_single_value(first.content.strip(), name)
                self.columns, self._records = _keys(json_record(line, row) for line, row in enumerate(whole, 1))
            else:
                fields = tab_separated(whole, delimiter or "\t")
                if self.format == "csv":
                    fields = comma_separated(whole, delimiter or ",")
                self.columns, fields = _columns(fields, name, header=header)
                self._records = (_record(found, self.columns) for found in fields)
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Record:
        return next(self._records)

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._stream is not None:
            self._stream.close()


def _guessed(first: bytes) -> Format:
    return "jsonl" if first.lstrip().startswith((b"{", b"[{")) else "tsv"


def _columns(fields: Iterator[Fields], name: str, *, header: bool) -> tuple[tuple[str, ...], Iterator[Fields]]:
    """The names of the columns, and the rows that are left when the header has been read."""
    first = next(fields, None)
    if not header:
        if first is None:
            return (), fields
        return tuple(str(number + 1) for number in range(len(first.values))), chain([first], fields)
    if first is None:
        raise DataError(f"{name}: is empty; a header is wanted")
    if first.fault or not any(value.strip() for value in first.values):
        raise DataError(f"{name}:1: {first.fault or 'is blank; a header is wanted'}")
    if twice := next((value for value in first.values if first.values.count(value) > 1), None):
        raise DataError(f"{name}:1: has the column '{escaped(twice)}' twice")
    return tuple(first.values), fields


def _record(found: Fields, columns: Sequence[str]) -> Record:
    line, values, fault = found
    if fault is None and len(values) != len(columns):
        fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
        fault = "is blank" if values == [""] else f"has {fields}, not {len(columns)}"
    values = values + [""] * (len(columns) - len(values))
    return Record(line, dict(zip(columns, values, strict=False)), fault)


def _refuse_a_single_value(start: bytes, name: str) -> None:
    """Raise DataError if the first row shows that the file has one JSON value and not one a line."""
    if start.startswith(b"["):
        raise DataError(f"{name}: holds one JSON array; one object a line is wanted: jq -c '.[]'")
    if start == b"{":
        raise DataError(f"{name}: holds JSON spread over lines; one object a line is wanted: jq -c .")


def _keys(records: Iterator[Record]) -> tuple[tuple[str, ...], Iterator[Record]]:
    """The keys of the first JSON row that can be read, and all the rows."""
    seen: list[Record] = []
    for record in islice(records, ROWS_FOR_KEYS):
        seen.append(record)
        if record.fault is None:
            return tuple(record.fields), chain(seen, records)
    return (), chain(seen, records)
