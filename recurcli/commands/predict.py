"""`recur predict`: labels the rows of files or of a pipe. One row out per row in, in order, in constant memory."""

import contextlib
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

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
    Explanation,
    Input,
    ParquetWriter,
    RowWriter,
    is_file,
    named_format,
    opened,
    output_kind,
    output_names,
    part_of,
    rows_of_part,
    scan,
    skip,
    state_of,
    types_of_all,
    windows,
)
from recurcli.commands.trained_run import note_on_fast, unknown_of_dev, warn_of_unknown_ngrams
from recurcli.config import UTF8, DataConfig, with_options
from recurcli.data.readers import Place, is_table
from recurcli.data.rows import Record
from recurcli.data.source import ROWS_FOR_HEADER, Source, find_source, read_source
from recurcli.data.tasks import CUSTOM, TASKS, task_with_columns
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.evaluation.predictor import WINDOW, Pair, Predictor
from recurcli.linear.explain import explain, explain_direction
from recurcli.log import Log
from recurcli.requests.predict import STDIN, OutputFormat, PredictRequest
from recurcli.runs.hub import local_run
from recurcli.runs.run_directory import Facts, open_run
from recurcli.targets import Cell, Number, Target


def predict(request: PredictRequest, log: Log) -> None:
    """Label the rows of `request.sources`, a window of them at a time; a resume goes on after the last window that was kept.

    Raises DataError if an input cannot be read, and with `strict` for the first bad row.
    """
    options = with_options(DataConfig(), Path(), request.columns.given())
    if request.shard is not None or len(request.sources) > 1:
        for pipe in (each for each in request.sources if not is_file(each)):
            what = "several inputs must be files" if request.shard is None else "--shard takes a part of a file"
            raise UsageError(f"{what}, and {pipe} is a pipe; write it to a file")
    kind = output_kind(request.format)
    check_prediction_output(request.output, request.sources, kind, overwrite=request.overwrite, resume=request.resume)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(
            open_output(request.output, log, resume=request.resume, overwrite=request.overwrite)
        )
        request = replace(request, run=local_run(request.run, log))
        log.stage(f"reading {request.run}")
        predictor, sha256, unknown = _load(request, log)
        if request.explain and predictor.linear is None:
            raise UsageError(
                f"{request.run}: the model is the encoder alone, and --explain shows n-grams; leave it out"
            )
        _check_kind(request, predictor.kept.target)
        if request.threshold is not None and not predictor.kept.target.has_score:
            predictor = replace(predictor, kept=predictor.kept.with_threshold(request.threshold))
        inputs = _open_inputs(request, options, predictor.source, output, stack, log)
        kind_of_writer = ParquetWriter if inputs[0].format == "parquet" else RowWriter
        writers = [kind_of_writer(request, each, predictor.kept.target) for each in inputs]
        progress = output.begin(_facts(request, sha256, predictor, writers[0]))
        counted = inputs[0].counted
        own = _own_rows(inputs, request.part) if counted else None
        if counted and own is not None and request.shard:
            which = f"{own.start + 1:,} to {own.stop:,} of {counted.rows:,}"
            if not own:
                parts = f"at multiples of {WINDOW:,}" if len(inputs) == 1 else "by file"
                which = f"are divided {parts}, and none of the {counted.rows:,} is in this part"
            log.note(f"part {request.shard}: rows {which}")
        digest = hashlib.sha256()
        unread = _windows(writers, own, digest if output.resumable else None)
        skip(unread, digest, progress, _in_words(inputs))
        if progress.rows:
            predictor.truncated = progress.truncated
            log.note(f"{request.output}: going on after row {progress.rows:,}")
        elif request.part[0] == 1 or inputs[0].format == "parquet":
            output.write(writers[0].head())
        total, first = (None, 0) if own is None else (len(own), own.start)
        log.stage("labelling the rows")
        log.rows(progress.rows, total=total)
        for writer, window in unread:
            columns = writer.input.source.columns
            before, texts = progress.rows, [columns.read_for_label(record) for record in window]
            for record, text in zip(window, texts, strict=True):
                progress.count(writer.name, record, text.fault)
            if request.strict and progress.first_fault:
                raise DataError(f"{progress.first_fault}{writer.input.records.hint}")
            pairs = [(text.text, text.pair) for text in texts]
            logits = predictor.logits_of_pairs(pairs, partial(log.rows, before=before, total=total))
            lines = []
            for place, prediction in enumerate(predictor.predictions(logits)):
                why = _explanation(predictor, pairs[place], prediction.label) if request.explain else None
                lines.append(writer.row(first + before + place, window[place], prediction, texts[place].fault, why))
                progress.count_label("" if writer.is_unsure(prediction) else prediction.label)
            output.write(b"".join(lines) + writer.rest())
            progress.truncated = predictor.truncated
            progress.input_sha256 = digest.hexdigest()
            output.save(progress)
    _summary(request, inputs, predictor, progress, log)
    if unknown is not None:
        warn_of_unknown_ngrams(predictor, unknown, _in_words(inputs), log)


def _load(request: PredictRequest, log: Log) -> tuple[Predictor, str, float | None]:
    """Return the model of a run directory or of a page, the sha256 that stands for it, and `unknown_of_dev`."""
    if request.run.is_file():
        from recurcli.export.html import read_page

        return read_page(request.run)
    run = open_run(request.run)
    predictor = Predictor.load(run, **asdict(request.inference), fast=request.fast)
    run.note_if_unfinished(log)
    note_on_fast(run, predictor, log)
    return predictor, run.sha256, unknown_of_dev(run)


def _check_kind(request: PredictRequest, target: Target) -> None:
    """Raise UsageError for an option that the predictions of a target do not have."""
    given = {
        "--threshold": request.threshold is not None,
        "--top-k": request.top_k is not None,
        "--probabilities": request.probabilities,
    }
    options = ", ".join(name for name, is_given in given.items() if is_given)
    if options and not target.has_labels:
        raise UsageError(f"{request.run}: predicts numbers, which have no probabilities; leave out {options}")
    if request.format == "clue" and not target.has_score:
        what = f"{request.run}: does not predict one label a row"
        raise UsageError(f"{what}, which --format clue has; choose another format")


def _explanation(predictor: Predictor, row: Pair, label: Cell) -> Explanation:
    """Return the parts of a row that speak for its label, for each of its labels, or for a number so far from the mean."""
    model, target = predictor.linear, predictor.kept.target
    assert model is not None, "it was checked"
    if isinstance(target, Number):
        return explain_direction(model, row, np.array([np.sign(target.cell_of(label) - target.mean)], np.float32))
    if isinstance(label, tuple):
        classes = {each: np.eye(1, target.width, target.labels.index(each), np.float32)[0] for each in label}
        return {each: explain_direction(model, row, direction) for each, direction in classes.items()}
    return explain(model, row, target.labels.index(label))


def _open_inputs(
    request: PredictRequest,
    options: DataConfig,
    like: Source,
    output: OutputStream,
    stack: contextlib.ExitStack,
    log: Log,
) -> list[Input]:
    """Return the inputs that have rows, or the first one. The columns of JSON are the keys of all. Raises as `_open_input`.

    Raises DataError for an input of another format or with other columns than the first one.
    """
    counted = PredictionProgress()
    inputs: list[Input] = []
    for source in request.sources:
        found = _open_input(request, source, options, like, counted, output, stack, Log() if inputs else log)
        if not inputs or (found.rows and not inputs[0].rows):
            inputs = [found]
        elif found.rows:
            inputs.append(found)
            _check_alike(inputs[0], found)
    own = [each.source for each in inputs[1:] if each.source.encoding != UTF8]
    if own and options.encoding is None:
        which = f"{own[0].name}{f' and {len(own) - 1:,} more' if len(own) > 1 else ''}"
        log.note(f"{which}: read as {own[0].encoding}; --encoding names another")
    names = tuple(dict.fromkeys(name for each in inputs for name in each.names))
    types = types_of_all(inputs) if inputs[0].format == "parquet" else {}
    if inputs[0].typed:
        inputs = [each._replace(names=names, keys=names, types=types) for each in inputs]
    return inputs


def _check_alike(first: Input, other: Input) -> None:
    """Raise DataError for an input that is not read as the first one is."""
    forms = [(each.source.format, each.source.delimiter) for each in (first, other)]
    columns = [(each.names, each.source.header) for each in (first, other)]
    if forms[0] != forms[1] or (not first.typed and columns[0] != columns[1]):
        what = "another format or delimiter" if forms[0] != forms[1] else "other columns"
        raise DataError(f"{other.records.name}: has {what} than {first.records.name}; predict it on its own")


def _open_input(
    request: PredictRequest,
    path: Path,
    options: DataConfig,
    like: Source,
    counted: PredictionProgress,
    output: OutputStream,
    stack: contextlib.ExitStack,
    log: Log,
) -> Input:
    """Open an input and find its columns in its first rows. A file is read once to count its rows, in `counted`.

    Raises DataError for a row that the output cannot hold, and with `strict` for the first bad row of a file.
    """
    state = state_of(path)
    typed = path == STDIN and sys.stdin is not None and sys.stdin.isatty()
    is_live = request.unbuffered or is_terminal(request.output) or typed
    at_once = is_live and not output.resumable and not is_file(path)
    with contextlib.ExitStack() as on_error:
        file, name = opened(path, on_error)
        if typed:
            log.note("reading texts from the terminal, a line each; Ctrl-D ends them")
        source, records = find_source(
            file,
            task_with_columns(TASKS[CUSTOM], options),
            options,
            like=like,
            is_input=True,
            peeked=1 if at_once else ROWS_FOR_HEADER,
            name=name,
            format=request.input_format,
        )
        on_error.enter_context(records)
        log.add(*records.notes)
        like_input: OutputFormat = "tsv" if source.format == "tsv" else "csv" if is_table(source.format) else "jsonl"
        format = request.format or (has_ending(request.output) and named_format(request.output)) or like_input
        names = output_names(source, records.names, like)
        found = Input(
            records, lambda first: islice(records, first, None), source, names, records.columns, format, at_once
        )
        if not is_file(path):
            stack.enter_context(on_error.pop_all())
            return found
        before = counted.rows
        names, places = scan(found, counted, strict=request.strict, all_keys=bool(request.picked))
        keys = names if found.typed else found.keys
    return found._replace(
        unread=partial(_unread, source, places),
        names=names,
        keys=keys,
        counted=counted,
        rows=counted.rows - before,
        state=state,
    )


def _unread(source: Source, places: Mapping[int, Place], first: int) -> Iterator[Record]:
    """Yield the rows of a file from number `first` on, which is opened when the first one is asked for."""
    start = places.get(first)
    with read_source(source, start) as records:
        yield from islice(records, 0 if start else first, None)


def _own_rows(inputs: Sequence[Input], part: tuple[int, int]) -> range:
    """Return the range of row numbers of part I of N. One file is divided by rows, several files are divided by file."""
    if len(inputs) == 1:
        return rows_of_part(inputs[0].rows, part)
    files = part_of(len(inputs), part)
    starts = [0, *accumulate(each.rows for each in inputs)]
    return range(starts[files.start], starts[files.stop])


def _windows(writers: Sequence[RowWriter], own: range | None, digest: Any) -> Iterator[tuple[RowWriter, list[Record]]]:
    """Yield each window of rows with the writer of its input. `own` is the range of row numbers to read; None reads a pipe."""
    start = 0
    for writer in writers:
        each, stop = writer.input, start + writer.input.rows
        first, last = (0, None) if own is None else (max(own.start, start) - start, min(own.stop, stop) - start)
        if last is None or first < last or not each.rows:
            for window in windows(islice(each.unread(first), last and last - first), digest, at_once=each.at_once):
                yield writer, window
            if each.state is not None and each.state != state_of(Path(each.records.name)):
                name = each.records.name
                raise DataError(f"{name}: the file was changed while it was read; start again when it is complete")
        start = stop


def _in_words(inputs: Sequence[Input]) -> str:
    """Return the name of the only input, or how many there are."""
    return inputs[0].records.name if len(inputs) == 1 else pluralize(len(inputs), "file")


def _summary(
    request: PredictRequest, inputs: Sequence[Input], predictor: Predictor, progress: PredictionProgress, log: Log
) -> None:
    """Log how many rows could not be read and how many were truncated, then how many have each label."""
    if not progress.rows and request.part[1] == 1:
        log.warn(f"{_in_words(inputs)}: the input has no rows")
    if progress.faults:
        rest = f" (and {progress.faults - 1:,} more)" if progress.faults > 1 else ""
        hint = next((each.records.hint for each in inputs if each.records.hint), "")
        log.warn(f"{progress.first_fault}{rest}; labelled from the readable part{hint}")
    for doubt in (each.records.doubt for each in inputs if each.records.doubt):
        log.warn(doubt)
    predictor.note_on_cuts(progress.rows, log)
    if progress.rows:
        place = "" if str(request.output) == "-" else f"{request.output}: "
        without = "below the threshold" if predictor.kept.target.has_score else "without a label"
        found = _labels_in_words(progress.labels, without)
        if progress.ends:
            found = "numbers from {:.6g} to {:.6g}".format(*progress.ends)
        log.note(f"{place}{pluralize(progress.rows, 'row')} ({found})")


def _labels_in_words(counts: Mapping[str, int], without: str) -> str:
    """Return how many rows have each label, of many labels the most frequent, and how many are `without` one."""
    labels = sorted(filter(None, counts), key=lambda label: -counts[label])
    named = ", ".join(f"{escaped(label)} {counts[label]:,}" for label in labels[:MAX_LABELS])
    named += f" and {pluralize(len(labels) - MAX_LABELS, 'other')}" if len(labels) > MAX_LABELS else ""
    return "; ".join(filter(None, [named, f"{counts['']:,} {without}" if "" in counts else ""]))


MAX_LABELS = 5
"""Labels that the last line names."""
_RESOLVED = ("format", "input_format", "columns", "output_columns", "fast", "inference")
"""Options that a resume compares by what they were resolved to."""
_FREE_AT_RESUME = ("run", "inputs", "output", "unbuffered", "resume", "overwrite")
"""Options that a resume may change, or compares by the content of what they name."""


def _facts(request: PredictRequest, sha256: str, predictor: Predictor, writer: RowWriter) -> dict[str, Facts]:
    """Return the facts that a resume must match (options, input) and those that it should match (machine)."""
    rows, inference = writer.input, None if predictor.encoder is None else predictor.encoder.inference
    others = {**vars(request), **vars(request.columns)}  # an option that is added must match too
    for name in (*_RESOLVED, *_FREE_AT_RESUME):
        del others[name]
    return {
        "options": {
            **{f"--{name.replace('_', '-')}": others[name] for name in sorted(others)},
            "the model": sha256,
            "--columns": request.output_columns,
            "--format": rows.format,
            "--delimiter": rows.source.delimiter,
            "--quote": writer.quote,
            "--encoding": rows.source.encoding,
            "--text": " + ".join(rows.source.columns.text),
            "--pair": " + ".join(rows.source.columns.pair) or None,
            "--header": rows.source.header,
            "--fast": predictor.kept.name == "linear model",
            **({"--device": "cpu", "--precision": "fp32"} if inference is None else inference.options()),
            "--batch-size": request.inference.batch_size,
            "the window": [WINDOW, WINDOW_CHARACTERS],
        },
        "input": {
            "columns": rows.names,
            "types": {name: str(type) for name, type in rows.types.items()},
            "JSON": rows.typed,
            "a column of reasons": writer.with_reason,
        },
        "machine": {
            **{package: version(package) for package in ("numpy", "scipy", "tokenizers")},
            **({} if inference is None else inference.machine()),
        },
    }
