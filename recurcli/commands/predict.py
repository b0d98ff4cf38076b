"""`recur predict`: labels the rows of a file or a pipe. One row out per row in, in order, in constant memory."""

import contextlib
import gc
import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import chain, islice

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
    Read,
    RowWriter,
    is_file,
    named_format,
    open_input,
    output_kind,
    rows_of_part,
    scan,
    skip,
    windows,
)
from recurcli.commands.trained_run import note_on_fast, training_rows
from recurcli.config import QUOTE, UTF8, DataConfig, canonical_encoding
from recurcli.data.columns import ColumnSchema, TextColumns, delimiter_of_input, find_input_columns
from recurcli.data.readers import Separation, format_of, read_records, recognised_delimiter, recognised_in_words
from recurcli.data.rows import Records
from recurcli.device import choose_precision
from recurcli.distributed.group import current
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.evaluation.inference import WINDOW, Predictor
from recurcli.linear.explain import explain
from recurcli.log import Log
from recurcli.requests.predict import PredictRequest
from recurcli.runs.run_directory import Facts, Run, open_run


def predict(request: PredictRequest, log: Log) -> None:
    """Label the rows of `request.source`, a window of them at a time; a resume goes on after the last window that was kept.

    Raises DataError if the input cannot be read, and with `strict` for the first bad row.
    """
    options = {**asdict(request.inference), "fast": request.fast, "ranks": current()}
    if not current().is_main:  # the main process reads the input and writes the output
        Predictor.load(open_run(request.run), **options).worker_loop()
        return
    try:
        form = request.columns
        DataConfig(delimiter=form.delimiter, quote=form.quote or QUOTE, encoding=form.encoding or UTF8)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    if request.shard is not None and not is_file(request.source):
        raise UsageError(f"--shard takes a part of a file, and {request.source} is a pipe; write it to a file")
    kind = output_kind(request.format)
    check_prediction_output(request.output, request.source, kind, overwrite=request.overwrite, resume=request.resume)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(
            open_output(request.output, log, resume=request.resume, overwrite=request.overwrite)
        )
        log.stage(f"reading {request.run}")
        run = open_run(request.run)
        predictor = Predictor.load(run, **options)
        if request.explain and (predictor.ensemble is None or not predictor.ensemble.linear_weight):
            raise UsageError(
                f"{request.run}: the model is the encoder alone, and --explain shows n-grams; leave it out"
            )
        run.note_if_unfinished(log)
        note_on_fast(run, predictor, log)
        gc.freeze()  # the collector need not look through torch and the model with every few windows
        stack.callback(gc.unfreeze)
        rows = _open_rows(request, training_rows(run, predictor), output, stack, log)
        writer = RowWriter(request, rows, predictor.labels)
        progress = output.begin(_facts(request, run, predictor, rows, writer))
        digest = hashlib.sha256()
        own = rows_of_part(rows.counted.rows, request.part) if rows.counted and request.shard else None
        part = rows.unread if own is None else islice(rows.unread, own.start, own.stop)
        unread = windows(part, digest if output.resumable else None, at_once=rows.at_once)
        skip(unread, digest, progress, rows.records.name)
        if progress.rows:
            predictor.truncated, predictor.answered = progress.truncated, progress.answered
            log.note(f"{request.output}: going on after row {progress.rows:,}")
        elif request.part[0] == 1:
            output.write(writer.head())
        total, first = rows.counted.rows if rows.counted else None, 0
        if own is not None:
            which = f"{own.start + 1:,} to {own.stop:,} of {total:,}"
            if not own:
                which = f"are divided at multiples of {WINDOW:,}, and none of the {total:,} is in this part"
            log.note(f"part {request.shard}: rows {which}")
            total, first = len(own), own.start
        log.stage("labelling the rows")
        log.rows(progress.rows, total=total)
        for window in unread:
            before, texts = progress.rows, [rows.columns.texts.read_for_label(record) for record in window]
            for record, text in zip(window, texts, strict=True):
                progress.count(rows.records.name, record, text.fault)
            if request.strict and progress.first_fault:
                raise DataError(f"{progress.first_fault}{rows.records.hint}")
            pairs = [(text.text, text.pair) for text in texts]
            logits = predictor.logits_of_pairs(pairs, partial(log.rows, before=before, total=total))
            lines = []
            for place, prediction in enumerate(predictor.predictions(logits)):
                why = None
                if request.explain and predictor.ensemble is not None:
                    why = explain(predictor.ensemble.linear, pairs[place], predictor.labels.index(prediction.label))
                lines.append(writer.row(first + before + place, window[place], prediction, texts[place].fault, why))
                label = "" if writer.is_unsure(prediction) else prediction.label
                progress.labels[label] = progress.labels.get(label, 0) + 1
            output.write(b"".join(lines))
            progress.truncated, progress.answered = predictor.truncated, predictor.answered
            progress.input_sha256 = digest.hexdigest()
            output.save(progress)
    predictor.stop_workers()
    _summary(request, rows.records, predictor, progress, log)


def _open_rows(
    request: PredictRequest, trained: ColumnSchema, output: OutputStream, stack: contextlib.ExitStack, log: Log
) -> Input:
    """Open the input, find its columns in the first window, and count the rows of a file.

    Raises DataError for a row that the output cannot hold, and with `strict` for the first bad row of a file.
    """
    read = _reader(request, trained)
    typed = str(request.source) == "-" and sys.stdin is not None and sys.stdin.isatty()
    is_live = request.unbuffered or is_terminal(request.output) or typed
    at_once = is_live and not output.resumable and not is_file(request.source)
    records = open_input(request.source, read, stack)
    if typed:
        log.note("reading texts from the terminal, a line each; Ctrl-D ends them")
    sample = next(windows(records, at_once=at_once), [])
    if records.delimiter and request.columns.delimiter is None and trained.delimiter is None:
        log.note(f"{records.name}: {recognised_in_words(records.delimiter)}")
    explicit = TextColumns(tuple(request.columns.text or ()), tuple(request.columns.pair or ()))
    columns = find_input_columns(records, sample, trained, log, explicit, request.columns.header)
    if columns.header:
        del sample[:1]
    like_input = records.format if records.format in ("tsv", "csv") else "jsonl"
    format = request.format or (has_ending(request.output) and named_format(request.output)) or like_input
    counted = None
    if is_file(request.source):
        with contextlib.ExitStack() as again:
            delimiter = records.delimiter if format == records.format else None
            counted, columns = scan(
                open_input(request.source, read, again), columns, format, delimiter, strict=request.strict
            )
    return Input(records, chain(sample, records), columns, format, at_once, counted)


def _reader(request: PredictRequest, trained: ColumnSchema) -> Read:
    """Return the reader of the input, with the quote and delimiter of the options, else those of the training rows if they are
    its own too, else a delimiter that its rows show."""
    encoding, quote = request.columns.encoding or UTF8, request.columns.quote or trained.quote
    delimiter: str | Callable[[str], Separation] | None = request.columns.delimiter
    named, mark = request.input_format or format_of(str(request.source)), trained.delimiter
    if mark is None and request.columns.header is not False:
        mark = recognised_delimiter(request.source, encoding, request.input_format, quote)
        mark = mark or ("," if named is None and trained.format == "csv" else None)
    if delimiter is None and mark is not None:
        is_table = trained.delimiter is not None and named in ("tsv", "csv")
        delimiter = delimiter_of_input(trained, mark, is_table=is_table)
    form = request.input_format
    return partial(read_records, format=form, header=False, delimiter=delimiter, encoding=encoding, quote=quote)


def _summary(
    request: PredictRequest, records: Records, predictor: Predictor, progress: PredictionProgress, log: Log
) -> None:
    """Log how many rows could not be read and how many were truncated, then how many have each label."""
    if not progress.rows and request.part[1] == 1:
        log.warn(f"{records.name}: the input has no rows")
    if progress.faults:
        rest = f" (and {progress.faults - 1:,} more)" if progress.faults > 1 else ""
        log.warn(f"{progress.first_fault}{rest}; labelled from the readable part{records.hint}")
    if records.doubt:
        log.warn(records.doubt)
    predictor.note_on_cuts(progress.rows, log)
    if progress.answered:
        read = progress.rows - progress.answered
        log.note(f"the encoder read {read:,} of {progress.rows:,} rows; the linear model alone answered the others")
    if progress.rows:
        place = "" if str(request.output) == "-" else f"{request.output}: "
        log.note(f"{place}{pluralize(progress.rows, 'row')} ({_labels_in_words(progress.labels)})")


def _labels_in_words(counts: Mapping[str, int]) -> str:
    """Return how many rows have each label, of many labels the most frequent; those without one are below the threshold."""
    labels = sorted(filter(None, counts), key=lambda label: -counts[label])
    named = ", ".join(f"{escaped(label)} {counts[label]:,}" for label in labels[:MAX_LABELS])
    named += f" and {pluralize(len(labels) - MAX_LABELS, 'other')}" if len(labels) > MAX_LABELS else ""
    return "; ".join(filter(None, [named, f"{counts['']:,} below the threshold" if "" in counts else ""]))


MAX_LABELS = 5
"""Labels that the last line names."""
_RESOLVED = ("format", "input_format", "columns", "fast", "inference")
"""Options that a resume compares by what they were resolved to."""
_FREE_AT_RESUME = ("run", "source", "output", "unbuffered", "resume", "overwrite")
"""Options that a resume may change, or compares by the content of what they name."""


def _facts(request: PredictRequest, run: Run, predictor: Predictor, rows: Input, writer: RowWriter) -> dict[str, Facts]:
    """Return the facts that a resume must match (options, input) and those that it should match (machine)."""
    columns, config = rows.columns, predictor.config
    others = {**vars(request), **vars(request.columns)}  # an option that is added must match too
    for name in (*_RESOLVED, *_FREE_AT_RESUME):
        del others[name]
    return {
        "options": {
            **{f"--{name.replace('_', '-')}": others[name] for name in sorted(others)},
            "the model": run.sha256,
            "--format": rows.format,
            "--delimiter": rows.records.delimiter,
            "--quote": writer.quote,
            "--encoding": canonical_encoding(request.columns.encoding or UTF8),
            "--text": " + ".join(columns.texts.text),
            "--pair": " + ".join(columns.texts.pair) or None,
            "--header": columns.header,
            "--fast": predictor.is_linear,
            "--device": config.device.type,
            "--precision": choose_precision(config.precision, config.device),
            "--batch-size": config.batch_size,
            "the window": [WINDOW, WINDOW_CHARACTERS],
        },
        "input": {"columns": columns.names, "JSON": columns.typed, "a column of reasons": writer.with_reason},
        "machine": {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(config.device) if config.device.type == "cuda" else "cpu",
        },
    }
