"""The rows that come into `recur predict`: opened, looked through, and cut into windows that are predicted at a time."""

import contextlib
import hashlib
import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from recurcli.commands.prediction.columns import Columns, Text
from recurcli.commands.prediction.journal import PredictionProgress
from recurcli.commands.prediction.writer import JSON_ADDED
from recurcli.data.formats.readers import Record, Records, read_records
from recurcli.errors import DataError, UsageError, escaped
from recurcli.evaluation.predictor import WINDOW

InputFormat = Literal["tsv", "csv", "jsonl", "parquet"]
MOST_COLUMNS = 10_000
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
        arriving = PollableStream(stream.fileno())
        stream, waits = cast(BinaryIO, arriving), arriving.keeps_waiting
    name = "standard input" if str(source) == "-" else str(source)
    return stack.enter_context(input.records(stream, name)), waits


def is_fifo(source: Path) -> bool:
    """Whether `source` can be read once only."""
    try:
        return stat.S_ISFIFO(source.stat().st_mode)
    except (OSError, ValueError):
        return False  # read_records says what is wrong with it


def windows(rows: Iterator[Record], waits: Callable[[int], bool] | None = None) -> Iterator[list[Record]]:
    """The rows in runs of WINDOW at most, of about WINDOW_CHARACTERS at most, and of what is there before it `waits`."""
    window: list[Record] = []
    characters = 0
    for record in rows:
        window.append(record)
        characters += len(written(record))
        if len(window) == WINDOW or characters >= WINDOW_CHARACTERS or (waits and waits(record.line)):
            yield window
            window, characters = [], 0
    if window:
        yield window


def written(record: Record) -> str:
    """All that a record holds as one string, different for different records."""
    try:
        return repr((record.fields, record.fault))
    except RecursionError:
        return f"line {record.line}, nested deeply"


@dataclass
class InputSummary:
    """What is known of the rows as a whole: all of a file's, or none of a pipe's."""

    rows: int | None = None
    first_fault: str | None = None
    faults: int = 0
    names: tuple[str, ...] = ()
    """Keys of JSON rows that the output must know, in the order in which they first appear."""


def summarise(input: Input, columns: Columns, *, separated: bool) -> InputSummary:
    """Look through a file before anything is written: a pipe can be read once only.

    A TSV or CSV (`separated`) needs a column for each key of JSON rows; else only keys that the output adds are of interest.
    """
    source = input.source
    if str(source) == "-" or is_fifo(source):
        return InputSummary()
    found = InputSummary(rows=0)
    names: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        records, _ = open_input(input, stack)
        if columns.header:
            next(records, None)
        for count, record in enumerate(records, 1):
            found.rows = count
            if fault := columns.text_of(record).fault:
                found.faults += 1
                found.first_fault = found.first_fault or f"{escaped(source, limit=4000)}:{record.line}: {fault}"
            if columns.typed:
                names.update(dict.fromkeys(key for key in record.fields if separated or key in JSON_ADDED))
                if len(names) > MOST_COLUMNS:
                    raise DataError(f"{source}: has more than {MOST_COLUMNS:,} different keys; use --format jsonl")
    found.names = tuple(names)
    return found


@dataclass
class RowCounter:
    """An account of the rows that were read; `proved` says that their contents go into it, for a resume to compare."""

    name: str
    total: int | None
    proved: bool
    rows: int = 0
    faults: int = 0
    first_fault: str | None = None
    _digest: Any = field(default_factory=hashlib.sha256)

    def read(self, window: Sequence[Record]) -> None:
        """Count the rows of a window."""
        self.rows += len(window)
        if self.proved:
            self._digest.update("\n".join(map(written, window)).encode())

    def judge(self, window: Sequence[Record], texts: Sequence[Text]) -> None:
        """Count the faults of a window."""
        for record, text in zip(window, texts, strict=True):
            if text.fault:
                self.faults += 1
                self.first_fault = self.first_fault or f"{escaped(self.name, limit=4000)}:{record.line}: {text.fault}"

    def skip(self, read: Iterator[list[Record]], earlier: PredictionProgress) -> None:
        """Read what an earlier run has done, and be where it was; DataError if these are not the rows that it read."""
        while self.rows < earlier.rows and (window := next(read, None)):
            self.read(window)
        if (self.rows, self._digest.hexdigest()) != (earlier.rows, earlier.input_sha256):
            raise DataError(
                f"{escaped(self.name)}: its first {earlier.rows:,} rows are not those of the earlier run; "
                "give them again, or start anew with --overwrite"
            )
        self.faults, self.first_fault = earlier.faults, earlier.first_fault

    def reached(self, *, truncated: int) -> PredictionProgress:
        """This account for the journal, which adds its own of the output."""
        return PredictionProgress(
            rows=self.rows,
            input_sha256=self._digest.hexdigest(),
            faults=self.faults,
            first_fault=self.first_fault,
            truncated=truncated,
        )
