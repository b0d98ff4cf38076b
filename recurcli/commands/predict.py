"""`recur predict`: labels for the rows of a file or a pipe, one row out for each row in, in order, in constant memory."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal

from recurcli.commands.prediction_rows import RowWriter, TextColumns, find_columns
from recurcli.data.readers import Record, Records, read_records
from recurcli.errors import DataError, UsageError
from recurcli.evaluation.predictor import WINDOW, Predictor
from recurcli.files import replacing
from recurcli.model.device import Precision

OutputFormat = Literal["tsv", "jsonl", "clue"]


@dataclass(frozen=True)
class PredictRequest:
    """What the command line asks for."""

    run: Path
    source: Path = Path("-")
    output: Path = Path("-")
    format: OutputFormat | None = None
    text: str | None = None
    pair: str | None = None
    id: str | None = None
    header: bool | None = None
    probabilities: bool = False
    top_k: int | None = None
    strict: bool = False
    overwrite: bool = False
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int = 64


def predict(request: PredictRequest) -> Iterator[int]:
    """Label the rows of `request.source`; yields the number of rows done, after every window of them.

    Raises DataError for an input that cannot be read at all, and with `strict` for its first bad row.
    """
    _refuse_output(request)
    predictor = Predictor.load(
        request.run, device=request.device, precision=request.precision, batch_size=request.batch_size
    )
    with contextlib.ExitStack() as stack:
        records = stack.enter_context(_open(request.source))
        first = next(records, None)
        columns = find_columns(
            records, first, predictor.model.config.columns, request.text, request.pair, request.header
        )
        rows: Iterator[Record] = records if first is None or columns.header else chain([first], records)
        writer = RowWriter(
            request.format or records.format,
            columns,
            predictor.labels,
            probabilities=request.probabilities,
            top_k=request.top_k,
            with_reason=records.format == "tsv" and _may_have_bad_rows(request.source),
            id_column=request.id,
        )
        stream = _destination(request.output, stack)
        stream.write(writer.head())
        yield from _predict_rows(rows, columns, predictor, writer, stream, records.name, strict=request.strict)
        stream.flush()


def _predict_rows(
    rows: Iterator[Record],
    columns: TextColumns,
    predictor: Predictor,
    writer: RowWriter,
    stream: BinaryIO,
    name: str,
    *,
    strict: bool,
) -> Iterator[int]:
    done = 0
    while window := list(islice(rows, WINDOW)):
        texts = [columns.text_of(record) for record in window]
        if strict and (bad := next((n for n, text in enumerate(texts) if text.fault), None)) is not None:
            raise DataError(f"{name}:{window[bad].line}: {texts[bad].fault}")
        predictions = predictor.predict([(text.text, text.pair) for text in texts])
        for record, text, prediction in zip(window, texts, predictions, strict=True):
            stream.write(writer.row(record, prediction, text.fault))
        done += len(window)
        yield done


def _refuse_output(request: PredictRequest) -> None:
    output, source = request.output, request.source
    if str(output) == "-":
        return
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another --output")
    if output.exists():
        if str(source) != "-" and source.exists() and output.samefile(source):
            raise UsageError(f"{output}: is the input as well; choose another --output")
        if not output.is_file():
            raise UsageError(f"{output}: is no file that could be replaced; choose another --output")
        if not request.overwrite:
            raise UsageError(f"{output}: exists already; replace it with --overwrite")


def _open(source: Path) -> Records:
    """The records of the input, its first row among them even where it is a header."""
    if str(source) == "-":
        return read_records(sys.stdin.buffer, header=False)
    if source.is_fifo():
        return read_records(source.open("rb"), header=False, name=str(source))
    return read_records(source, header=False)


def _may_have_bad_rows(source: Path) -> bool:
    """Whether a TSV's rows need a column for reasons: a file is looked through, a pipe cannot be."""
    if str(source) == "-" or not source.is_file():
        return True
    with _open(source) as records:
        return any(record.fault for record in records)


def _destination(output: Path, stack: contextlib.ExitStack) -> BinaryIO:
    """Where the bytes go: standard output, or a file that appears when all of it is written."""
    if str(output) == "-":
        return sys.stdout.buffer
    return stack.enter_context(stack.enter_context(replacing(output)).open("wb"))
