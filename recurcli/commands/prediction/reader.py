"""The rows that come into `recur predict`: opened, looked through, and cut into windows that are predicted at a time."""

import contextlib
import hashlib
import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from recurcli.commands.prediction.progress import PredictionProgress
from recurcli.commands.prediction.writer import JSON_ADDED
from recurcli.data.columns.input import InputColumns
from recurcli.data.formats.readers import read_records
from recurcli.data.formats.records import Record, Records
from recurcli.errors import DataError, UsageError, escaped
from recurcli.evaluation.predictor import WINDOW

InputFormat = Literal["tsv", "csv", "jsonl", "parquet"]
MAX_COLUMNS = 10_000
WINDOW_CHARACTERS = 8 << 20
"""A window ends early at this many characters, so that very long rows do not fill the memory."""


class PollableStream(io.RawIOBase):
    """A pipe or a terminal that can tell whether its next row is still to come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with what is there, after waiting for some."""
        count = os.readv(self._descriptor, [buffer])
        self._rows += bytes(buffer[:count]).count(b"\n")
        return count

    def keeps_waiting(self, line: int) -> bool:
        """Whether row `line` + 1, counted from 1, cannot be read at once."""
        return line >= self._rows and not select.select([self._descriptor], [], [], 0)[0]


class Input(NamedTuple):
    """Where the rows come from, and what the command line says of their form."""

    source: Path
    format: InputFormat | None = None
    """None: as the name of the file says, or its first byte."""
    delimiter: str | None = None
    """What separates fields, where it is not TAB (TSV) or a comma (CSV)."""

    def check(self) -> None:
        """Raise UsageError for what cannot separate fields."""
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise UsageError(f"--delimiter: one character, no quote and no line end, not '{escaped(self.delimiter)}'")

    def records(self, stream: BinaryIO | None, name: str) -> Records:
        """The records of the file, or of a stream, their header among them."""
        source = self.source if stream is None else stream
        return read_records(source, self.format, header=False, name=name, delimiter=self.delimiter)


def open_input(
    input: Input, stack: contextlib.ExitStack, *, at_once: bool = False
) -> tuple[Records, Callable[[int], bool] | None]:
    """The records of the input, its first row among them even where it is a header.

    With `at_once` there is also a function for a stream that says whether the record after line n is still to come.
    """
    source = input.source
    stream: BinaryIO | None = None
    if str(source) == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(
                sys.stdin.fileno(), True
            )  # a parent may share a pipe that says "not now" instead of waiting
        stream = sys.stdin.buffer
    elif is_fifo(source):
        stream = stack.enter_context(source.open("rb"))
    if stream is None:
        return stack.enter_context(input.records(None, str(source))), None
    waits = None
    if at_once:
        pollable = PollableStream(stream.fileno())
        stream, waits = cast(BinaryIO, pollable), pollable.keeps_waiting
    name = "standard input" if str(source) == "-" else str(source)
    return stack.enter_context(input.records(stream, name)), waits


def is_fifo(source: Path) -> bool:
    """Whether `source` can be read once only."""
    try:
        return stat.S_ISFIFO(source.stat().st_mode)
    except (OSError, ValueError):
        return False  # read_records says what is wrong with it


class Windows(Iterator[list[Record]]):
    """The records in lists of at most WINDOW rows and about WINDOW_CHARACTERS.

    A list ends early after line n if `waits(n)` says that the next row is still to come. With `hashed` the contents of
    the rows go into `digest`.
    """

    def __init__(
        self, records: Iterator[Record], waits: Callable[[int], bool] | None = None, *, hashed: bool = False
    ) -> None:
        self._records, self._waits, self._hashed = records, waits, hashed
        self.digest = hashlib.sha256()

    def __next__(self) -> list[Record]:
        window: list[Record] = []
        characters = 0
        for record in self._records:
            content = _content(record)
            window.append(record)
            characters += len(content)
            if self._hashed:
                self.digest.update(f"{content}\n".encode())
            if len(window) == WINDOW or characters >= WINDOW_CHARACTERS or (self._waits and self._waits(record.line)):
                break
        if not window:
            raise StopIteration
        return window

    def skip(self, earlier: PredictionProgress, name: str) -> None:
        """Read the rows of an earlier run; DataError if those of the input `name` are others."""
        left = earlier.rows
        while left > 0 and (window := next(self, None)):
            left -= len(window)
        if left or self.digest.hexdigest() != earlier.input_sha256:
            raise DataError(
                f"{escaped(name)}: its first {earlier.rows:,} rows are not those of the earlier run; "
                "give them again, or start anew with --overwrite"
            )


def _content(record: Record) -> str:
    """All that a record holds as one string, different for different records."""
    try:
        return repr((record.fields, record.fault))
    except RecursionError:
        return f"line {record.line}, nested deeply"


def scan(input: Input, columns: InputColumns, *, separated: bool) -> tuple[PredictionProgress | None, InputColumns]:
    """Count the rows and faults of a file before anything is written; None for a pipe, which can be read once only.

    For the columns of a TSV or CSV (`separated`) the keys of all JSON rows are returned with `columns`, else only those
    that the output adds. Raises DataError for more than MAX_COLUMNS keys.
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
            progress.count(records.name, record, columns.texts.read(record).fault)
            if columns.typed:
                names.update(dict.fromkeys(key for key in record.fields if separated or key in JSON_ADDED))
                if len(names) > MAX_COLUMNS:
                    raise DataError(f"{source}: has more than {MAX_COLUMNS:,} different keys; use --format jsonl")
    return progress, replace(columns, names=tuple(names), keys=tuple(names)) if columns.typed else columns
