"""`recur export`: writes trained classifiers, or their predictions, in a format of another tool."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from recurcli.commands.page_model import page_model
from recurcli.commands.trained_run import data_config, known_task, note_on_fast, task_of
from recurcli.commands.training.report import model_card
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.evaluation.predictor import Predictor
from recurcli.export.clue_export import export_clue
from recurcli.export.format import MIN_AGREEMENT, ExportFormat, TrainedRun
from recurcli.export.html import MAX_SIZE, export_html
from recurcli.export.onnx import export_onnx
from recurcli.files import MANIFEST, OutputKind, check_place, check_writable, commit_directory, read_manifest, to_json
from recurcli.log import Log
from recurcli.requests.export import ExportRequest
from recurcli.runs.hub import check_names, local_run, push
from recurcli.runs.predictions import read_current_result
from recurcli.runs.run_directory import (
    LEFT_BEHIND,
    MODEL_CARD,
    PRESET,
    RESULT,
    THRESHOLDS,
    RunDirectory,
    contents_of,
    open_run,
)

_WITH_PATHS = {"path", "files", "extra_rows", "label_files", "vocabulary", "vectors", "embedding_vectors", "teacher"}
_WITH_PATHS |= {"teacher_run", "init", "name"}
"""The keys of a preset, config.json and result.json below which paths are."""


def export_run(runs: Sequence[TrainedRun], output: Path, log: Log) -> dict[str, Any]:
    """Write the folder `output` with the files of a run, and its card; return name and size of each.

    Predictions, which have the texts of dev and test rows, are left out; and the folders of paths, and the command line.
    Raises UsageError for a run that is not finished.
    """
    run = runs[0].folder
    if not run.is_finished:
        raise UsageError(f"{run}: its training is not finished; --resume continues it")
    names = [name for name in (*run.listed, THRESHOLDS) if run.has(name) and name not in LEFT_BEHIND]
    result = _without_folders(read_current_result(run) | {"holds": names, "command_line": []})
    texts = {
        "config.json": to_json(_without_folders(json.loads(run["config.json"].read()))),
        RESULT: to_json(result),
        MODEL_CARD: model_card(result),
    }
    writers: dict[str, Callable[[Path], object]] = {
        **{name: partial(Path.write_bytes, data=run.file(name).content) for name in names},
        **{name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in texts.items()},
    }
    preset, command = _without_folders(run.read_preset()), str(run.read_command())
    writers[PRESET] = lambda path: RunDirectory(path.parent).write_preset(preset, command)
    commit_directory(output, writers, replace=True)
    if left_out := [name for name in LEFT_BEHIND if name in run]:
        log.note(f"{', '.join(left_out)}: left out; predictions have the texts of rows")
    return {"files": [{"name": name, "bytes": (output / name).stat().st_size} for name in writers]}


def _without_folders(value: Any, key: str = "") -> Any:
    """Return a value of JSON in which absolute paths, below the keys that have paths, are the names of files."""
    if isinstance(value, dict):
        return {own: _without_folders(each, key if key in _WITH_PATHS else own) for own, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each, key) for each in value]
    return Path(value).name if key in _WITH_PATHS and isinstance(value, str) and Path(value).is_absolute() else value


FORMATS: dict[str, ExportFormat] = {
    "clue": ExportFormat(export_clue, OutputKind("a CLUE submission", (".zip",))),
    "html": ExportFormat(export_html, OutputKind("a page", (".html",))),
    "onnx": ExportFormat(export_onnx, OutputKind("an ONNX export", ()), is_folder=True),
    "run": ExportFormat(export_run, OutputKind("a copy of a run", ()), is_folder=True),
}
"""The formats of `recur export` by the value of `--format`; each is a function and a row here."""


def export(request: ExportRequest, log: Log) -> dict[str, Any]:
    """Load every run and write all of them in one format, and push a folder to the Hub (`runs.hub.push`).

    Raises UsageError for an unknown format, for an output that exists without `overwrite`, with `fast` for a run whose model
    has no linear model, and for what cannot be quantised or pushed.
    """
    request = replace(request, runs=[local_run(run, log) for run in request.runs])
    if request.push is None:
        if request.output is None or request.public or request.license is not None:
            raise UsageError(
                "--output is missing; or name a repository with --push, which --public and --license are for"
            )
        return _export(request, request.output, log)
    check_names(request.push, request.license)
    with tempfile.TemporaryDirectory() as place:
        output = request.output or Path(place) / "export"
        result = _export(replace(request, format=request.format or "run"), output, log)
        return {**result, **push(output, request.push, log, public=request.public, license=request.license)}


def _export(request: ExportRequest, output: Path, log: Log) -> dict[str, Any]:
    """Write the runs to `output`."""
    name = request.format
    if name is None:
        check_place(output, "--output")
        tasks = [known_task(run, str(run.read_preset().get("task"))) for run in map(open_run, request.runs)]
        name = "clue" if all(task.submissions for task in tasks) else "onnx"
    if name not in FORMATS:
        raise UsageError(f"--format: unknown format '{escaped(name)}'; known: {', '.join(FORMATS)}")
    format, is_page = FORMATS[name], name == "html"
    if request.push is not None and not format.is_folder:
        raise UsageError(f"--push: {format.kind.title} is not pushed; add --format run or --format onnx")
    if request.fast and name == "run":
        raise UsageError("--fast: a copy of a run has all of its model; add --format onnx")
    if request.quantize is None and request.min_agreement is not None and not is_page:
        raise UsageError("--min-agreement compares int8 with fp32; add --quantize int8")
    if request.quantize is not None and name != "onnx":
        raise UsageError(f"--quantize: {format.kind.title} has no choice of weights; add --format onnx")
    if name != "clue" and len(request.runs) != 1:
        raise UsageError(f"--format {name} writes one run; give one RUN and call it again for the others")
    if request.max_size is not None and not is_page:
        raise UsageError(f"--max-size: {format.kind.title} has no largest size; add --format html")
    if request.data is not None and format.is_folder:
        raise UsageError(f"--data: {format.kind.title} needs no rows of the task; leave it out")
    if format.is_folder:
        if output.is_dir() and any(run.is_dir() and output.samefile(run) for run in request.runs):
            raise UsageError(f"{output}: is the run itself; choose another --output")
        _check_folder(output, format, overwrite=request.overwrite)
    else:
        read = [file for run in request.runs for file in contents_of(run)]
        check_writable(output, format.kind, overwrite=request.overwrite, inputs=read)
    loaded = []
    for run in request.runs:
        folder = open_run(run)
        predictor = Predictor.load(folder, **asdict(request.inference), fast=request.fast)
        folder.note_if_unfinished(log)
        note_on_fast(folder, predictor, log)
        reads_rows = not format.is_folder and not is_page
        read_here = data_config(folder, request.data) if reads_rows else folder.read_data_config()
        loaded.append(TrainedRun(folder, predictor, task_of(folder, predictor), read_here))
    more: dict[str, Any] = {}
    if is_page:
        more = {"model": page_model(loaded[0], request.data, log), "min_agreement": request.min_agreement}
        more["max_size"] = request.max_size or MAX_SIZE
    elif request.quantize is not None:
        more["min_agreement"] = MIN_AGREEMENT if request.min_agreement is None else request.min_agreement
    return {"output": str(output), "format": name, **format.export(loaded, output, log, **more)}


def _check_folder(output: Path, format: ExportFormat, *, overwrite: bool) -> None:
    """Raise UsageError if no folder can be written to `output`, StorageError as `check_place` does.

    A folder is replaced only if its manifest lists all its files, the card too, which that of a training does not.
    """
    if output.suffix.lower() == ".zip":
        raise UsageError(f"{output}: {format.kind.title} is a folder, and a zip is for CLUE's tasks; leave out .zip")
    if not output.is_dir() and os.path.lexists(output):
        raise UsageError(f"{output}: is a file, but {format.kind.title} is a folder; choose another --output")
    if output.is_dir() and (os.path.ismount(output) or output.name in ("", "..") or output.samefile(Path.cwd())):
        place = "a mount point, the working folder or one above it"
        raise UsageError(f"{output}: is {place}, which cannot be replaced; give a folder inside it to --output")
    if output.is_dir() and any(output.iterdir()):
        listed: set[str] = set()
        with contextlib.suppress(ModelError):
            listed = {*read_manifest(output), MANIFEST}
        if MODEL_CARD not in listed or not {path.name for path in output.iterdir()} <= listed:
            raise UsageError(f"{output}: is not empty and is not an earlier export; choose another --output")
        if not overwrite:
            raise UsageError(f"{output}: exists already; replace it with --overwrite")
    check_place(output, "--output")
