"""Reads a data file – TSV, CSV, JSON lines, fastText, Parquet, or a folder of texts – as one record for each row.

No types are guessed and no word means "missing": a text is a string. An unreadable row is a record with a `fault`, so that
`recur predict` can answer it.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, starmap
from pathlib import Path, PurePath
from typing import BinaryIO

from recurcli.data.formats.encodings import UTF8, TextDecoder
from recurcli.data.formats.fasttext import FASTTEXT_COLUMNS, PREFIX, fasttext_record
from recurcli.data.formats.json_lines import json_record
from recurcli.data.formats.label_folders import label_folder_records
from recurcli.data.formats.parquet import parquet_records
from recurcli.data.formats.rows import Doubts, Format, Record, Records, decoded, open_file, rows_of
from recurcli.data.formats.separated import Fields, comma_separated, tab_separated
from recurcli.errors import DataError, escaped

FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".ft": "fasttext",
    ".parquet": "parquet",
}
"""Format by the ending of a file's name; .gz may follow all but .parquet."""
USUAL_DELIMITERS = {"tsv": "\t", "csv": ","}
DELIMITERS = "\t,;|"
"""Marks that may separate the fields of a TSV or CSV, if they stand in the name of its only column."""
ROWS_FOR_KEYS = 100
"""JSON rows among which the first readable one gives the columns."""
_NOT_READ = {".arrow", ".xlsx", ".xls", ".zip", ".xz", ".bz2", ".zst", ".feather"}


def format_of(name: str) -> Format | None:
    """Return the format by the ending of `name`, None if unknown; raises DataError for formats that are not read."""
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
    delimiter: str | Callable[[str], str | None] | None = None,
    labels: Sequence[str] = (),
    encoding: str = UTF8,
) -> Records:
    """Open a file (see FORMATS), a folder of folders named by label (`format` "folders"), or a stream called `name`.

    `format` None means the format of the file's name, else that of its first row. `header` (whether the first row names the
    columns) and `delimiter` (or a function of the first row that returns it; None: TAB or a comma) are for TSV and CSV.
    `labels` is for folders, and `encoding` for all formats but Parquet. A stream stays open. Raises DataError for a missing
    file, another kind of content (compressed, UTF-16, a JSON array, …) and a bad header. The records raise DataError if a
    file cannot be read to its end.
    """
    if not isinstance(source, str | Path):
        return _text_records(source, name, format, TextDecoder(encoding), header=header, delimiter=delimiter)
    path = Path(source)
    if format == "folders":
        return label_folder_records(path, labels, TextDecoder(encoding))
    stream = open_file(path)
    with contextlib.ExitStack() as on_error:
        on_error.callback(stream.close)
        if (format or format_of(str(path))) == "parquet":
            return parquet_records(path)
        decoder = TextDecoder(encoding)
        records = _text_records(stream, str(path), format, decoder, header=header, delimiter=delimiter)
        records.close = on_error.pop_all().close
        return records


def recognised_delimiter(path: Path, encoding: str, format: Format | None = None) -> str | None:
    """Return the mark that separates the fields of a TSV or CSV file if it is not the usual one; None if it cannot be told.

    It is the only mark in the first row, which has one field by the usual delimiter, that splits every row into equally many
    fields, two or more. A TSV whose fields are in quotes has none, since it seems to be a CSV; neither has a file that cannot
    be read.
    """

    def marks_in_first_row() -> Iterator[str]:
        with read_records(path, format, header=False, encoding=encoding) as records:
            if records.format in ("tsv", "csv") and len(records.columns) == 1:
                first = next(records)
                usual = USUAL_DELIMITERS[records.format]
                yield from (mark for mark in DELIMITERS if mark in first.fields["1"] and mark != usual)

    def splits_alike(mark: str) -> bool:
        with read_records(path, format, header=False, encoding=encoding, delimiter=mark) as records:
            sound = (
                record.fault is None
                and not (records.format == "tsv" and any(value.startswith('"') for value in record.fields.values()))
                for record in records
            )
            return len(records.columns) > 1 and all(sound)

    try:
        marks = [mark for mark in marks_in_first_row() if splits_alike(mark)] if path.is_file() else []
    except (DataError, ValueError):  # reading the file says what is wrong with it
        return None
    return marks[0] if len(marks) == 1 else None


def recognised_in_words(mark: str) -> str:
    """Return a note that `mark` was recognised."""
    return f"its fields are separated by {in_words(mark)}, which splits every row alike"


def in_words(mark: str) -> str:
    """Return a delimiter as messages name it."""
    return {"\t": "TAB", ",": "a comma", ";": "a semicolon", "|": "a vertical bar"}.get(mark, f"'{escaped(mark)}'")


def _text_records(
    stream: BinaryIO,
    name: str,
    format: Format | None,
    decoder: TextDecoder,
    *,
    header: bool,
    delimiter: str | Callable[[str], str | None] | None,
) -> Records:
    """Return the records of an open file of text."""
    rows = rows_of(stream, name, decoder)
    first = next(rows, None)
    start = b"" if first is None else first.content.strip()
    format = format or format_of(name) or _format_by_content(start)
    rows = rows if first is None else chain([first], rows)
    if format == "jsonl":
        _check_json_lines(start, name)
        keys, records = _keys(json_record(line, row) for line, row in enumerate(rows, 1))
        return Records(name, format, keys, records, decoder=decoder)
    if format == "fasttext":
        return Records(name, format, FASTTEXT_COLUMNS, starmap(fasttext_record, enumerate(rows, 1)), decoder=decoder)
    if format not in ("tsv", "csv"):
        raise DataError(f"{name}: {format} cannot be read from a pipe; name the file")
    if callable(delimiter):
        delimiter = None if first is None else delimiter(decoded(first)[0])
    doubts = Doubts()
    mark = delimiter or USUAL_DELIMITERS[format]
    fields = comma_separated(rows, mark, doubts) if format == "csv" else tab_separated(rows, mark)
    columns, fields = _columns(fields, name, header=header)
    found = (_record(row, columns) for row in fields)
    return Records(name, format, columns, found, decoder=decoder, doubts=doubts, delimiter=delimiter)


def _format_by_content(start: bytes) -> Format:
    """Return the format of a file whose name does not tell it, by its first row."""
    if start.startswith((b"{", b"[{")):
        return "jsonl"
    return "fasttext" if start.startswith(PREFIX.encode()) else "tsv"


def _columns(fields: Iterator[Fields], name: str, *, header: bool) -> tuple[tuple[str, ...], Iterator[Fields]]:
    """Return the names of the columns and the rows after the header."""
    first = next(fields, None)
    if not header:
        if first is None:
            return (), fields
        return tuple(str(number + 1) for number in range(len(first.values))), chain([first], fields)
    if first is None:
        raise DataError(f"{name}: is empty; expected a header")
    if first.fault or not any(value.strip() for value in first.values):
        raise DataError(f"{name}:1: {first.fault or 'is blank; expected a header'}")
    if twice := next((value for value in first.values if first.values.count(value) > 1), None):
        raise DataError(f"{name}:1: has the column '{escaped(twice)}' twice")
    return tuple(first.values), fields


def _record(row: Fields, columns: Sequence[str]) -> Record:
    line, values, fault = row
    if fault is None and len(values) != len(columns):
        fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
        fault = "is blank" if values == [""] else f"has {fields}, not {len(columns)}"
    values = values + [""] * (len(columns) - len(values))
    return Record(line, dict(zip(columns, values, strict=False)), fault)


def _check_json_lines(start: bytes, name: str) -> None:
    """Raise DataError if the first row shows that the file holds a single JSON value."""
    if start.startswith(b"["):
        raise DataError(f"{name}: holds one JSON array; expected one object a line: jq -c '.[]'")
    if start == b"{":
        raise DataError(f"{name}: holds JSON spread over lines; expected one object a line: jq -c .")


def _keys(records: Iterator[Record]) -> tuple[tuple[str, ...], Iterator[Record]]:
    """Return the keys of the first readable JSON row, and all rows."""
    seen: list[Record] = []
    for record in islice(records, ROWS_FOR_KEYS):
        seen.append(record)
        if record.fault is None:
            return tuple(record.fields), chain(seen, records)
    return (), chain(seen, records)
