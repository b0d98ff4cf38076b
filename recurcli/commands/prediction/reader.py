"""The input of `recur predict`: opens it, counts its rows, and splits them into windows that are predicted together."""

import contextlib
import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from recurcli.commands.prediction.output import PredictionProgress, make_blocking
from recurcli.commands.prediction.writer import JSON_ADDED
from recurcli.data.formats.encodings import UTF8, canonical_encoding
from recurcli.data.formats.readers import read_records
from recurcli.data.formats.rows import Record, Records
from recurcli.data.input_columns import InputColumns
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.evaluation.predictor import WINDOW

InputFormat = Literal["tsv", "csv", "jsonl", "fasttext", "parquet"]
MAX_COLUMNS = 10_000
WINDOW_CHARACTERS = 8 << 20
"""A window ends early at this many characters, so that very long rows do not fill the memory."""


class PollableStream(io.RawIOBase):
    """A pipe or terminal that knows whether its next row can be read without waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the available bytes into `buffer`; waits until there are some."""
        count = os.readv(self._descriptor, [buffer])
        self._rows += bytes(buffer[:count]).count(b"\n")
        return count

    def keeps_waiting(self, line: int) -> bool:
        """Whether reading the row after row `line` (counted from 1) would wait."""
        return line >= self._rows and not select.select([self._descriptor], [], [], 0)[0]


class Input(NamedTuple):
    """The input path and its format options."""

    source: Path
    format: InputFormat | None = None
    """None: detected from the file name or the first byte."""
    delimiter: str | Callable[[str], str | None] | None = None
    """Field delimiter, or a function of the first row that returns it; None: TAB for TSV, a comma for CSV."""
    encoding: str = UTF8

    def check(self) -> None:
        """Raise UsageError if the delimiter or the encoding is invalid."""
        try:
            canonical_encoding(self.encoding)
        except ValueError as error:
            raise UsageError(f"--{error}") from None
        if isinstance(self.delimiter, str) and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise UsageError(f"--delimiter: one character, no quote and no line end, not '{escaped(self.delimiter)}'")


def open_input(
    input: Input, stack: contextlib.ExitStack, *, at_once: bool = False
) -> tuple[Records, Callable[[int], bool] | None]:
    """Open the input and return its records, including a header.

    With `at_once`, the second value for a stream is a function of n: whether reading the record after line n would wait.
    Otherwise it is None.
    """
    source, waits = input.source, None
    opened: Path | BinaryIO = source
    if str(source) == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        make_blocking(sys.stdin)
        opened = sys.stdin.buffer
    elif is_fifo(source):
        opened = stack.enter_context(source.open("rb"))
    if at_once and not isinstance(opened, Path):
        pollable = PollableStream(opened.fileno())
        opened, waits = cast(BinaryIO, pollable), pollable.keeps_waiting
    name = "standard input" if str(source) == "-" else str(source)
    records = read_records(
        opened, input.format, header=False, name=name, delimiter=input.delimiter, encoding=input.encoding
    )
    return stack.enter_context(records), waits


def is_fifo(source: Path) -> bool:
    """Whether `source` is a FIFO, which can be read only once."""
    try:
        return stat.S_ISFIFO(source.stat().st_mode)
    except (OSError, ValueError):
        return False  # read_records raises the error


def windows(
    records: Iterator[Record], waits: Callable[[int], bool] | None = None, digest: Any = None
) -> Iterator[list[Record]]:
    """Yield the records in lists of at most WINDOW rows and about WINDOW_CHARACTERS characters.

    A list ends early after line n if `waits(n)` is true. `digest`, a hashlib object, is updated with the content of each row.
    """
    window: list[Record] = []
    characters = 0
    for record in records:
        content = _content(record)
        window.append(record)
        characters += len(content)
        if digest is not None:
            digest.update(f"{content}\n".encode())
        if len(window) == WINDOW or characters >= WINDOW_CHARACTERS or (waits is not None and waits(record.line)):
            yield window
            window, characters = [], 0
    if window:
        yield window


def skip(rows: Iterator[list[Record]], digest: Any, earlier: PredictionProgress, name: str) -> None:
    """Skip the `rows` of an earlier run, which update `digest`.

    Raises DataError if the input `name` now starts with different rows.
    """
    left = earlier.rows
    while left > 0 and (window := next(rows, None)):
        left -= len(window)
    if left or digest.hexdigest() != earlier.input_sha256:
        raise DataError(
            f"{escaped(name)}: differs from the input of the earlier run in its first {pluralize(earlier.rows, 'row')}; "
            "give the same input, or start again with --overwrite"
        )


def _content(record: Record) -> str:
    """Return the content of a record as a unique string."""
    try:
        return repr((record.fields, record.fault))
    except RecursionError:
        return f"line {record.line}, nested deeply"


def scan(
    input: Input, columns: InputColumns, *, separated: bool, require: Callable[[Record], None]
) -> tuple[PredictionProgress | None, InputColumns]:
    """Count the rows and faults of a file before any output is written. The count is None for a pipe.

    `require` raises DataError for a record that the output cannot hold.

    For JSON input, the returned `columns` have the keys of all rows as names if the output is TSV or CSV (`separated`);
    otherwise only the keys that the output adds, too. Raises DataError for more than MAX_COLUMNS keys.
    """
    source = input.source
    if str(source) == "-" or is_fifo(source):
        return None, columns
    progress = PredictionProgress()
    names: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        records, _ = open_input(input, stack)
        if columns.header:
            next(records, None)
        for record in records:
            require(record)
            progress.count(records.name, record, columns.texts.read(record).fault)
            if columns.typed:
                names.update(dict.fromkeys(key for key in record.fields if separated or key in JSON_ADDED))
                if len(names) > MAX_COLUMNS:
                    raise DataError(f"{source}: has more than {MAX_COLUMNS:,} different keys; use --format jsonl")
        progress.hint = records.hint
    return progress, replace(columns, names=tuple(names), keys=tuple(names)) if columns.typed else columns
