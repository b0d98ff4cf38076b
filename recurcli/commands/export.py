"""`recur export`: writes trained classifiers, or their predictions, in a format of another tool."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recurcli.commands.trained_run import data_config, task_of
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.evaluation.inference import AfterBatch, Predictor
from recurcli.export.clue_export import export_clue
from recurcli.export.format import ExportFormat, Texts, TrainedRun
from recurcli.export.onnx import export_onnx
from recurcli.export.quantize import MIN_AGREEMENT
from recurcli.files import MANIFEST, CommittedFolder, OutputKind, check_place, check_writable, read_manifest
from recurcli.log import Log
from recurcli.model.device import Precision
from recurcli.runs.run_directory import RunDirectory, contents_of, open_run

FORMATS: dict[str, ExportFormat] = {
    "clue": ExportFormat(export_clue, OutputKind("a CLUE submission", (".zip",))),
    "onnx": ExportFormat(
        export_onnx, OutputKind("an ONNX export", ()), folder_with="predict.py", reads_data=False, quantized=export_onnx
    ),
}
"""The formats of `recur export` by the value of `--format`; each is a file of `recurcli.export` and a row here."""


def export(
    runs: Sequence[Path],
    log: Log,
    *,
    format: str,
    output: Path,
    data: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
    fast: bool = False,
    quantize: str | None = None,
    min_agreement: float | None = None,
) -> dict[str, Any]:
    """Load every run and write all of them as `format` (see FORMATS).

    `fast` exports the linear part of a sum alone. `quantize` is "int8" or None; `min_agreement` is the share of the dev labels
    that int8 must leave as they are, MIN_AGREEMENT by default. Raises UsageError for an unknown format, for an output that
    exists without `overwrite`, with `fast` for a run whose model has no linear part, and for what cannot be quantised.
    """
    if format not in FORMATS:
        raise UsageError(f"--format: unknown format '{escaped(format)}'; known: {', '.join(FORMATS)}")
    write = _writer(format, quantize, min_agreement)
    if data is not None and not FORMATS[format].reads_data:
        raise UsageError(f"--data: {FORMATS[format].kind.title} needs no rows of the task; leave it out")
    if FORMATS[format].folder_with:
        _check_folder(output, FORMATS[format], overwrite=overwrite)
    else:
        read = [file for run in runs for file in contents_of(run)]
        check_writable(output, FORMATS[format].kind, overwrite=overwrite, inputs=read)
    opened = [open_run(run) for run in runs]
    predictors = [
        Predictor.load(run, device=device, precision=precision, batch_size=batch_size, fast=fast) for run in opened
    ]
    for folder in opened:
        RunDirectory(folder).note_if_unfinished(log)
    for run in (run for run, predictor in zip(runs, predictors, strict=True) if predictor.is_linear_part):
        log.note(f"{run}: the linear model predicts alone, as --fast asks; no encoder needs to run")
    loaded = [
        _trained_run(run, predictor, data, FORMATS[format]) for run, predictor in zip(opened, predictors, strict=True)
    ]
    facts = write(loaded, output, log)
    return {"output": str(output), "format": format, **facts}


def _writer(
    format: str, quantize: str | None, min_agreement: float | None
) -> Callable[[Sequence[TrainedRun], Path, Log], dict[str, Any]]:
    """Return the function that writes the runs. Raises UsageError for what `quantize` and `min_agreement` cannot be."""
    known = FORMATS[format]
    if quantize is None:
        if min_agreement is not None:
            raise UsageError("--min-agreement compares int8 with fp32; add --quantize int8")
        return known.export
    if quantize != "int8":
        raise UsageError(f"--quantize: unknown '{escaped(quantize)}'; known: int8")
    if known.quantized is None:
        raise UsageError(f"--quantize: {known.kind.title} has no weights; add --format onnx")
    least = MIN_AGREEMENT if min_agreement is None else min_agreement
    if not 0 <= least <= 1:
        raise UsageError(f"--min-agreement: {least:g} is no share; give a number from 0 to 1")
    quantized = known.quantized
    return lambda runs, output, log: quantized(runs, output, log, least)


def _trained_run(run: CommittedFolder, predictor: Predictor, data: Path | None, format: ExportFormat) -> TrainedRun:
    def predict(texts: Texts, after_batch: AfterBatch) -> list[str]:
        logits = predictor.logits_of_pairs(texts, after_batch)
        return [predictor.labels[index] for index in logits.argmax(axis=1)]

    config = data_config(run, data) if format.reads_data else RunDirectory(run).read_data_config()
    task = task_of(run, predictor)
    return TrainedRun(
        folder=run,
        task=task,
        data=config,
        model=predictor.model,
        tokenizer=predictor.tokenizer,
        ensemble=predictor.ensemble,
        is_linear_part=predictor.is_linear_part,
        temperature=predictor.temperature,
        predict=predict,
    )


def _check_folder(output: Path, format: ExportFormat, *, overwrite: bool) -> None:
    """Raise UsageError if no folder can be written to `output`, StorageError as `check_place` does.

    A folder is replaced only if all its files are those of an earlier export.
    """
    if not output.is_dir() and os.path.lexists(output):
        raise UsageError(f"{output}: is a file, but {format.kind.title} is a folder; choose another --output")
    if output.is_dir() and (os.path.ismount(output) or output.name in ("", "..") or output.samefile(Path.cwd())):
        place = "a mount point" if os.path.ismount(output) else "the working folder or one above it"
        raise UsageError(f"{output}: is {place}, which cannot be replaced; give a folder inside it to --output")
    if output.is_dir() and any(output.iterdir()):
        if not _is_earlier_export(output, format):
            raise UsageError(f"{output}: is not empty and is not an earlier export; choose another --output")
        if not overwrite:
            raise UsageError(f"{output}: exists already; replace it with --overwrite")
    check_place(output, "--output")


def _is_earlier_export(folder: Path, format: ExportFormat) -> bool:
    with contextlib.suppress(ModelError):
        listed = read_manifest(folder).keys()
        return format.folder_with in listed and {path.name for path in folder.iterdir()} <= {*listed, MANIFEST}
    return False
