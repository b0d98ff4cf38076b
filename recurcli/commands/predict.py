"""`recur predict`: labels the rows of a file or a pipe. One row out per row in, in order, in constant memory."""

import contextlib
import gc
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from recurcli.commands.prediction.output import (
    OutputStream,
    PredictionProgress,
    check_prediction_output,
    has_ending,
    is_terminal,
    open_output,
)
from recurcli.commands.prediction.rows import (
    WINDOW_CHARACTERS,
    Input,
    InputFormat,
    OutputFormat,
    RowWriter,
    check_holdable,
    named_format,
    open_input,
    output_kind,
    scan,
    skip,
    windows,
)
from recurcli.commands.trained_run import training_rows
from recurcli.data.columns import (
    ID_NAMES,
    ColumnOptions,
    ColumnSchema,
    InputColumns,
    find_input_columns,
    trained_delimiter,
)
from recurcli.data.readers import format_of, recognised_delimiter, recognised_in_words
from recurcli.data.rows import QUOTE, UTF8, Format, Record, Records, canonical_encoding
from recurcli.data.values import folded
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError, escaped, pluralize
from recurcli.evaluation.inference import WINDOW, Predictor
from recurcli.facts import Facts
from recurcli.files import CommittedFolder
from recurcli.linear.explain import explain
from recurcli.log import Log
from recurcli.model.device import Precision, choose_precision
from recurcli.runs.run_directory import RunDirectory, open_run


@dataclass(frozen=True)
class PredictRequest:
    """The options of `recur predict`."""

    run: Path
    source: Path = Path("-")
    output: Path = Path("-")
    format: OutputFormat | None = None
    """None: the format that the ending of `output` names, else that of the input."""
    input_format: InputFormat | None = None
    """None: that of the file's name, else of the training rows if their delimiter is taken, else of the first byte."""
    delimiter: str | None = None
    """Field delimiter; None: that of the training rows if it is the input's too, else TAB for TSV, a comma for CSV."""
    quote: str | None = None
    """The quote character of a CSV; None: that of the training file."""
    encoding: str | None = None
    """Encoding of the input; None means UTF-8, with a note if the training data had another encoding."""
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    probabilities: bool = False
    top_k: int | None = None
    threshold: float | None = None
    """The score below which a row has no prediction. None if every row has one."""
    strict: bool = False
    unbuffered: bool = False
    fast: bool = False
    """Whether the linear part of a sum predicts alone."""
    explain: bool = False
    """Whether each row has the parts of its text that spoke most for its label."""
    resume: bool = False
    overwrite: bool = False
    device: str = "auto"
    precision: Precision = "fp32"
    batch_size: int = 64


def predict(request: PredictRequest, log: Log) -> None:
    """Label the rows of `request.source`.

    Raises DataError if the input cannot be read, and with `strict` for the first bad row.
    """
    ranks = current()
    if not ranks.is_main:  # the main process reads the input and writes the output
        _load(request, open_run(request.run)).serve()
        return
    input = Input(
        request.source, request.input_format, request.delimiter, request.encoding or UTF8, request.quote or QUOTE
    )
    input.check()
    kind = output_kind(request.format)
    check_prediction_output(request.output, request.source, kind, overwrite=request.overwrite, resume=request.resume)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(open_output(request.output, resume=request.resume, overwrite=request.overwrite))
        run = open_run(request.run)
        predictor = _load(request, run)
        if request.explain and (predictor.ensemble is None or not predictor.ensemble.linear_weight):
            raise UsageError(
                f"{request.run}: the model is the encoder alone, and --explain shows n-grams; leave it out"
            )
        RunDirectory(run).note_if_unfinished(log)
        trained = training_rows(run, predictor)
        input = _with_delimiter(input._replace(quote=request.quote or trained.quote), request, trained)
        gc.freeze()  # the collector need not look through torch and the model with every few windows
        stack.callback(gc.unfreeze)
        _note_on_encoding(request, run, log)
        rows = _open_rows(request, input, trained, stack, log, at_once=_answers_at_once(request, output))
        writer = _row_writer(request, rows, predictor)
        progress = output.begin(**_facts(request, run, predictor, writer, rows.records.delimiter))
        for note in output.notes:
            log.warn(note)
        if output.complete:
            _check_nothing_new(request, rows, progress)
            predictor.dismiss()
            log.note(f"{request.output}: is complete; --overwrite writes it again")
            return
        _label(request, rows, predictor, writer, output, progress, log)
    predictor.dismiss()
    _summary(request, rows.records, predictor, progress, log)


@dataclass(frozen=True)
class _Rows:
    """The opened input: its records, and what its first rows, and a first pass over a file, tell about them."""

    records: Records
    unread: Iterator[Record]
    """All records but the header."""
    waits: Callable[[int], bool] | None
    """See `open_input`."""
    columns: InputColumns
    format: OutputFormat
    delimiter: str | None
    """The separator of the output's fields; None: the usual one."""
    counted: PredictionProgress | None
    """The rows and faults of a file. None for a pipe."""


def _with_delimiter(input: Input, request: PredictRequest, trained: ColumnSchema) -> Input:
    """Return `input` with the delimiter and format of the training rows, or a delimiter that its rows show, or an option."""
    if request.delimiter is None and trained.delimiter is not None:
        is_table = format_of(str(request.source)) in ("tsv", "csv")
        return input._replace(delimiter=trained_delimiter(trained, is_table=is_table))
    if request.delimiter is None and request.columns.header is not False:
        mark = recognised_delimiter(request.source, input.encoding, request.input_format, input.quote)
        return input._replace(
            delimiter=trained_delimiter(trained._replace(delimiter=mark, format=None), is_table=False)
        )
    return input


def _open_rows(
    request: PredictRequest,
    input: Input,
    trained: ColumnSchema,
    stack: contextlib.ExitStack,
    log: Log,
    *,
    at_once: bool,
) -> _Rows:
    """Open the input, find its columns in the first window, and count the rows of a file.

    Raises DataError for a row that the output cannot hold, and with `strict` for the first bad row of a file.
    """
    records, waits = open_input(input, stack, at_once=at_once)
    if records.name == "standard input" and sys.stdin.isatty():
        log.note("reading texts from the terminal, a line each; Ctrl-D ends them")
    sample = next(windows(records, waits), [])
    if records.delimiter and request.delimiter is None and trained.delimiter is None:
        log.note(f"{records.name}: {recognised_in_words(records.delimiter)}")
    columns = find_input_columns(records, sample, trained, request.columns)
    log.add(*columns.notes)
    if columns.header:
        del sample[:1]
    format = request.format or (has_ending(request.output) and named_format(request.output)) or _same(records.format)
    _note_on_ids(format, columns, sample, records.name, log)
    delimiter = records.delimiter if format == records.format else None
    holdable = partial(check_holdable, columns=columns, format=format, name=records.name, delimiter=delimiter)
    counted, columns = scan(input, columns, separated=format in ("tsv", "csv"), require=holdable)
    if request.strict and counted and counted.first_fault:
        raise DataError(f"{counted.first_fault}{counted.hint}")
    return _Rows(records, chain(sample, records), waits, columns, format, delimiter, counted)


def _row_writer(request: PredictRequest, rows: _Rows, predictor: Predictor) -> RowWriter:
    return RowWriter(
        rows.format,
        rows.columns,
        predictor.labels,
        name=rows.records.name,
        delimiter=rows.delimiter,
        quote=rows.records.quote if rows.format == rows.records.format else QUOTE,
        probabilities=request.probabilities,
        top_k=request.top_k,
        threshold=request.threshold,
        explains=request.explain,
        with_reason=rows.counted is None or rows.counted.faults > 0 or request.threshold is not None,
    )


def _check_nothing_new(request: PredictRequest, rows: _Rows, progress: PredictionProgress) -> None:
    """Raise DataError if the input is not that of the complete output."""
    digest = hashlib.sha256()
    unread = windows(rows.unread, rows.waits, digest)
    skip(unread, digest, progress, rows.records.name)
    if next(unread, None):
        raise DataError(
            f"{rows.records.name}: has grown since {request.output} was complete; --overwrite writes it again"
        )


def _label(
    request: PredictRequest,
    rows: _Rows,
    predictor: Predictor,
    writer: RowWriter,
    output: OutputStream,
    progress: PredictionProgress,
    log: Log,
) -> None:
    """Label the rows after those that `progress` counts, a window at a time."""
    records, digest = rows.records, hashlib.sha256()
    unread = windows(rows.unread, rows.waits, digest if output.resumable else None)
    if progress.rows:
        skip(unread, digest, progress, records.name)
        predictor.truncated = progress.truncated
        log.note(f"{request.output}: going on after row {progress.rows:,}")
    else:
        output.write(writer.head())
    total = rows.counted.rows if rows.counted else None
    log.rows(progress.rows, total=total)
    for window in unread:
        before, texts = progress.rows, [rows.columns.texts.read_for_label(record) for record in window]
        for record, text in zip(window, texts, strict=True):
            progress.count(records.name, record, text.fault)
        if request.strict and progress.first_fault:
            raise DataError(f"{progress.first_fault}{records.hint}")
        pairs = [(text.text, text.pair) for text in texts]
        logits = predictor.logits_of_pairs(pairs, partial(log.rows, before=before, total=total))
        predictions = list(predictor.predictions(logits))
        explanations: list[Sequence[str] | None] = [None] * len(window)
        if request.explain:
            assert predictor.ensemble is not None
            linear, best = predictor.ensemble.linear, logits.argmax(axis=1).tolist()
            explanations = [explain(linear, pair, label) for pair, label in zip(pairs, best, strict=True)]
        answered = enumerate(zip(window, predictions, texts, explanations, strict=True), before)
        output.write(b"".join(writer.row(n, row, made, text.fault, why) for n, (row, made, text, why) in answered))
        progress.unlabelled += sum(map(writer.is_unsure, predictions))
        progress.truncated, progress.input_sha256 = predictor.truncated, digest.hexdigest()
        output.save(progress)


def _summary(
    request: PredictRequest, records: Records, predictor: Predictor, progress: PredictionProgress, log: Log
) -> None:
    """Log notes on all rows: what labelled them, faults, and rows without a prediction or cut."""
    by_linear_model = predictor.ensemble is not None and not predictor.ensemble.encoder_weight
    if predictor.is_linear_part:
        log.note("labelled by the linear model alone, as --fast asks; the encoder did not run")
    elif by_linear_model and not predictor.model.config.is_linear and RunDirectory(request.run).is_finished:
        log.note("labelled by the linear model alone, which was kept by the dev rows; the encoder did not run")
    if not progress.rows:
        log.warn(f"{records.name}: the input has no rows")
    if progress.faults:
        rest = f" (and {progress.faults - 1:,} more)" if progress.faults > 1 else ""
        log.warn(f"{progress.first_fault}{rest}; labelled from the readable part{records.hint}")
    if records.doubt:
        log.warn(records.doubt)
    if progress.unlabelled:
        log.note(
            f"{pluralize(progress.unlabelled, 'row', 'have')} no prediction: the score is below {request.threshold:g}"
        )
    if predictor.truncated:
        log.note(f"{pluralize(predictor.truncated, 'row', 'were')} cut to the {predictor.cut_to} tokens")


def _load(request: PredictRequest, run: CommittedFolder) -> Predictor:
    return Predictor.load(
        run,
        device=request.device,
        precision=request.precision,
        batch_size=request.batch_size,
        fast=request.fast,
        ranks=current(),
    )


def _note_on_encoding(request: PredictRequest, run: CommittedFolder, log: Log) -> None:
    """Log a note if the input is read as UTF-8, although the run was trained on files of another encoding."""
    with contextlib.suppress(ModelError):  # a prediction needs no preset
        trained = RunDirectory(run).read_data_config().encoding
        if request.encoding is None and canonical_encoding(trained) != UTF8:
            log.note(f"the input is read as UTF-8; the training data were {trained} (--encoding {trained})")


def _note_on_ids(format: OutputFormat, columns: InputColumns, rows: Sequence[Record], name: str, log: Log) -> None:
    """Warn if CLUE's ids will be row numbers, although a column of ids in the first `rows` has others."""
    if format != "clue" or columns.id is not None:
        return
    for column, key in zip(columns.names, columns.keys, strict=True):
        ids = [str(record.fields.get(key, "")) for record in rows]
        if folded(column) in ID_NAMES and ids != [str(number) for number in range(len(rows))]:
            shown = escaped(column)
            what = f"the ids are row numbers from 0, not those in the column '{shown}'"
            log.warn(f"{name}: {what}; --id {shown} takes those")
            return


def _same(format: Format) -> OutputFormat:
    return "csv" if format == "csv" else "tsv" if format == "tsv" else "jsonl"


def _answers_at_once(request: PredictRequest, output: OutputStream) -> bool:
    """Whether a row is answered as soon as no other row is waiting, instead of with a whole window.

    The batches, and with them the last digit of a score, then depend on the timing of the input. So this is on only for a
    terminal or with --unbuffered, never for an output file.
    """
    if output.resumable:
        return False
    typed = str(request.source) == "-" and sys.stdin is not None and sys.stdin.isatty()
    return request.unbuffered or is_terminal(request.output) or typed


def _facts(
    request: PredictRequest, run: CommittedFolder, predictor: Predictor, writer: RowWriter, delimiter: str | None
) -> dict[str, Facts]:
    """Return the facts that a resume must match (options, input) and those that it should match (machine)."""
    columns, config = writer.columns, predictor.config
    on_gpu = config.device.type == "cuda"
    return {
        "options": {
            "the model": run.sha256,
            "--format": writer.format,
            "--delimiter": delimiter,
            "--quote": writer.quote,
            "--encoding": canonical_encoding(request.encoding or UTF8),
            "--text": " + ".join(columns.texts.text),
            "--pair": " + ".join(columns.texts.pair) or None,
            "--id": columns.id,
            "--header": columns.header,
            "--probabilities": request.probabilities,
            "--top-k": request.top_k,
            "--threshold": request.threshold,
            "--strict": request.strict,
            **({"--fast": True} if predictor.is_linear_part else {}),
            **({"--explain": True} if request.explain else {}),
            "--device": config.device.type,
            "--precision": choose_precision(config.precision, config.device),
            "--batch-size": config.batch_size,
            "the window": [WINDOW, WINDOW_CHARACTERS],
        },
        "input": {"columns": columns.names, "JSON": columns.typed, "a column of reasons": writer.with_reason},
        "machine": {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(config.device) if on_gpu else "cpu",
        },
    }
