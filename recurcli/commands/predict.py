"""`recur predict`: labels for the rows of a file or a pipe, one row out for each row in, in order, in constant memory."""

import contextlib
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from recurcli.commands.events import RowsDone, counted
from recurcli.commands.prediction_columns import Columns, Wishes, find_columns
from recurcli.commands.prediction_output import Sink, open_output, refuse_output
from recurcli.commands.prediction_rows import JSON_ADDED, OutputFormat, RowWriter
from recurcli.data.readers import Record, Records, read_records
from recurcli.errors import DataError, visible
from recurcli.evaluation.predictor import WINDOW, Predictor
from recurcli.model.device import Precision
from recurcli.ranks import current
from recurcli.training.events import Note

MOST_COLUMNS = 10_000
WINDOW_CHARACTERS = 8 << 20
"""A window ends early at this many characters, so that very long rows do not fill the memory."""


@dataclass(frozen=True)
class PredictRequest:
    """What the command line asks for."""

    run: Path
    source: Path = Path("-")
    output: Path = Path("-")
    format: OutputFormat | None = None
    columns: Wishes = field(default_factory=Wishes)
    probabilities: bool = False
    top_k: int | None = None
    strict: bool = False
    overwrite: bool = False
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int = 64


@dataclass
class Survey:
    """What is known of the rows as a whole: all of a file's, or none of a pipe's."""

    rows: int | None = None
    first_fault: str | None = None
    faults: int = 0
    names: tuple[str, ...] = ()
    """Keys of JSON rows that the output must know, in the order in which they first appear."""


def predict(request: PredictRequest) -> Iterator[Note | RowsDone]:
    """Label the rows of `request.source`; yields notes, and the number of rows done after every batch of them.

    Raises DataError for an input that cannot be read at all, and with `strict` for its first bad row.
    """
    ranks = current()
    if ranks.first:
        refuse_output(request.output, request.source, overwrite=request.overwrite)
    predictor = Predictor.load(
        request.run, device=request.device, precision=request.precision, batch_size=request.batch_size, ranks=ranks
    )
    if not ranks.first:  # the input is read, and the output written, by one process
        predictor.serve()
        return
    with contextlib.ExitStack() as stack:
        records = _open(request.source, stack)
        if records.name == "standard input" and sys.stdin.isatty():
            yield Note("reading texts from the terminal, a line each; Ctrl-D ends them")
        sample = next(windows(records), [])
        columns = find_columns(records, sample, predictor.model.config.columns, request.columns)
        if columns.doubt:
            yield Note(f"{records.name}: {columns.doubt}", "warning")
        format = request.format or records.format
        known = _survey(request.source, columns, for_tsv=format == "tsv")
        if request.strict and known.first_fault:
            raise DataError(known.first_fault)
        if columns.typed and known.rows is not None:
            columns = replace(columns, names=known.names, keys=known.names)
        writer = RowWriter(
            format,
            columns,
            predictor.labels,
            name=records.name,
            probabilities=request.probabilities,
            top_k=request.top_k,
            with_reason=known.rows is None or known.faults > 0,
        )
        sink = open_output(request.output, stack)
        sink.write(writer.head())
        rows = chain(sample[1:] if columns.header else sample, records)
        del sample  # or it would stay in memory until the end
        seen = Survey(rows=known.rows)
        yield from _predict_rows(rows, columns, predictor, writer, sink, seen, strict=request.strict)
    predictor.dismiss()
    if seen.faults:
        rest = f" (and {seen.faults - 1:,} more)" if seen.faults > 1 else ""
        yield Note(f"{seen.first_fault}{rest}; labelled by what could be read", "warning")
    if predictor.truncated:
        yield Note(f"{predictor.truncated:,} rows were cut to the model's {predictor.model.config.max_length} tokens")


def _predict_rows(
    rows: Iterator[Record],
    columns: Columns,
    predictor: Predictor,
    writer: RowWriter,
    sink: Sink,
    seen: Survey,
    *,
    strict: bool,
) -> Iterator[RowsDone]:
    for window in windows(rows):
        texts = [columns.text_of(record) for record in window]
        for record, text in zip(window, texts, strict=True):
            if text.fault:
                _note_fault(seen, f"{writer.name}:{record.line}: {text.fault}")
        if strict and seen.first_fault:
            raise DataError(seen.first_fault)
        scores = yield from counted(
            predictor.scoring([(text.text, text.pair) for text in texts]), seen.rows, before=writer.count
        )
        lines = zip(window, predictor.predictions(scores), texts, strict=True)
        sink.write(b"".join(writer.row(record, prediction, text.fault) for record, prediction, text in lines))


def windows(rows: Iterator[Record]) -> Iterator[list[Record]]:
    """The rows in runs of WINDOW at most, and of about WINDOW_CHARACTERS at most."""
    window: list[Record] = []
    characters = 0
    for record in rows:
        window.append(record)
        characters += _size(record.fields)
        if len(window) == WINDOW or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _size(value: Any) -> int:
    """About how many characters a value has; a number counts as eight."""
    size, left = 0, [value]
    while left:  # no recursion: JSON may be as deep as Python's stack
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
        else:
            size += len(value) if isinstance(value, str) else 8
    return size


def _note_fault(survey: Survey, fault: str) -> None:
    survey.faults += 1
    survey.first_fault = survey.first_fault or fault


def _open(source: Path, stack: contextlib.ExitStack) -> Records:
    """The records of the input, its first row among them even where it is a header."""
    if str(source) == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        return stack.enter_context(read_records(sys.stdin.buffer, header=False))
    if _is_fifo(source):
        stream = stack.enter_context(source.open("rb"))
        return stack.enter_context(read_records(stream, header=False, name=str(source)))
    return stack.enter_context(read_records(source, header=False))


def _is_fifo(source: Path) -> bool:
    try:
        return stat.S_ISFIFO(source.stat().st_mode)
    except (OSError, ValueError):
        return False  # read_records says what is wrong with it


def _survey(source: Path, columns: Columns, *, for_tsv: bool) -> Survey:
    """Look through a file before anything is written: a pipe can be read once only.

    A TSV needs a column for each key of JSON rows; else only keys that the output adds itself are of interest.
    """
    if str(source) == "-" or _is_fifo(source):
        return Survey()
    found = Survey(rows=0)
    names: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        records = _open(source, stack)
        if columns.header:
            next(records, None)
        for count, record in enumerate(records, 1):
            found.rows = count
            if fault := columns.text_of(record).fault:
                _note_fault(found, f"{visible(source)}:{record.line}: {fault}")
            if columns.typed:
                names.update(dict.fromkeys(key for key in record.fields if for_tsv or key in JSON_ADDED))
                if len(names) > MOST_COLUMNS:
                    raise DataError(f"{source}: has more than {MOST_COLUMNS:,} different keys; use --format jsonl")
    found.names = tuple(names)
    return found
