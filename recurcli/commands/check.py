"""`recur check`: reports errors in data files and CLUE submissions before training or upload."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recurcli.data.config import DataConfig, TokenizerConfig, with_options
from recurcli.data.tasks import (
    CUSTOM,
    TASKS,
    Task,
    files_in_words,
    is_one_file,
    split_named,
    task_named,
    task_with_columns,
)
from recurcli.errors import DataError, StorageError, UsageError, escaped
from recurcli.export.clue import is_submission, validate
from recurcli.findings import Finding, sort_by_severity
from recurcli.inspection.counts import (
    LISTED,
    CheckedSplit,
    count_tokens,
    find_files,
    read_splits,
    repeated_texts,
    shared_texts,
    summarize_lengths,
)
from recurcli.inspection.rules import find_split_issues, find_task_issues
from recurcli.log import Log
from recurcli.preset import Preset, compose
from recurcli.requests.check import CheckRequest
from recurcli.requests.options import named_files
from recurcli.tokens.texts import is_text_file
from recurcli.tokens.tokenizer import choose_max_length

BAD_ROWS_LISTED = 100
"""Bad rows whose reasons `--json` lists; all are counted."""
_COMMON_NAME = re.compile(r"(train|dev|validation|test)(\.[a-z]+)?")
"""File names that many tasks share."""

_FOLDERS: dict[str, str] = {}
"""Folder name to task."""
_TYPICAL: dict[str, str | None] = {}
"""Uncommon file name to its task. None if several tasks have it."""
for _task in TASKS.values():
    _FOLDERS.setdefault(_task.folder or _task.name, _task.name)
    _FOLDERS.setdefault(_task.name, _task.name)
    for _file in (_file for _layout in _task.layouts for _file in _layout.files.values()):
        if not _COMMON_NAME.fullmatch(_file):
            _TYPICAL[_file] = _task.name if _TYPICAL.get(_file, _task.name) == _task.name else None


def check(request: CheckRequest, log: Log) -> dict[str, Any]:
    """Check each path. Return `{"reports": […], "errors": n, "warnings": n}`, and facts of the files that were written.

    Raises UsageError without a path and files. Raises DataError or StorageError if a single path cannot be read. With several
    paths, the report of that path says so.
    """
    paths, columns = request.paths or [], request.columns.given()
    given = named_files(None, train=request.train, dev=request.dev, test=request.test)
    files = {split: str(file) for split, file in given.items() if file is not None}
    if not paths and not files:
        raise UsageError("name a PATH, or files that belong together with --train, --dev and --test")
    settings = None if request.preset is None else compose(request.preset).preset
    task, reason = None, "from the preset"
    if request.task is not None:
        task, reason = task_named(request.task).name, "from --task"
    elif settings is not None:
        task = settings.task
    writes = request.out_of_fold is not None or request.suspects is not None
    if writes:
        from recurcli.commands.label_check import check_outputs, write_label_check

        check_outputs(request, [*paths, *map(Path, files.values())])
    reports: list[dict[str, Any]] = []
    checked: list[tuple[Task, DataConfig]] = []
    together = [Path(file) for file in files.values()][:1]
    for number, path in enumerate([*together, *paths]):
        is_together = number < len(together)
        try:
            if not is_together and request.columns.text is None and is_submission(path):
                reports.append(_report("submission", path, validate(path)))
                continue
            datasets = find_datasets(path, task, reason)
            if len(datasets) > 1:
                log.note(f"{path}: a folder of tasks: {', '.join(dataset.task for dataset in datasets)}")
            for dataset in datasets:
                used = settings or _preset_of(dataset.task)
                config = with_options(used.data, dataset.path, columns)
                if is_together:
                    config = replace(config, path=None, files=files)
                roles = {*files, *(split_named(TASKS[CUSTOM], other) for other in paths if other != path)}
                counted = None if request.no_lengths else used.tokenizer
                facts, findings = inspect(dataset, config, counted, log, without_dev=roles <= {"test"})
                reports.append(_report("data", dataset.path, findings, facts))
                checked.append((task_named(dataset.task), config))
        except (DataError, StorageError) as error:
            if len(together) + len(paths) == 1:
                raise
            reports.append(_report("unreadable", path, [Finding("error", escaped(error, limit=4000))]))
    counts = {level: sum(report[level] for report in reports) for level in ("errors", "warnings")}
    written: dict[str, Any] = {}
    if writes:
        if len(checked) != 1:
            raise UsageError(
                f"--out-of-fold and --suspects are for one data set, not {len(checked)}; name one file or folder"
            )
        inputs = [Path(split["path"]) for report in reports for split in report.get("splits", [])]
        check_outputs(request, inputs)
        written = write_label_check(request, *checked[0], log)
    return {"reports": reports, **counts, **written}


def _report(kind: str, path: Path, findings: list[Finding], facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report on one path as `--json` prints it, errors before warnings."""
    levels = [finding.level for finding in findings]
    return {
        "kind": kind,
        "path": str(path),
        **(facts or {}),
        "findings": [finding._asdict() for finding in sort_by_severity(findings)],
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
    }


@cache
def _preset_of(task: str) -> Preset:
    """Return a preset with the data and tokenizer of the task; its encoder is not used."""
    return compose(f"transformer-{task}").preset


class Dataset(NamedTuple):
    """A file or folder with the rows of one task."""

    path: Path
    task: str
    reason: str
    """Where the name of the task comes from."""


def find_datasets(path: Path, task: str | None, reason: str) -> list[Dataset]:
    """Return the data sets at `path`: one of the given `task`, else one or several by the names of files and folders.

    Among the task folders in a folder, those of plain text are left out. Raises DataError if `path` does not exist, is a folder
    without data files, or holds plain text.
    """
    found = _find(path, task, reason)
    if len(found) == 1 and TASKS[found[0].task].plain_text:
        raise _plain_text(path, found[0].task, f"task {found[0].task} ({found[0].reason}) is")
    return found


def _plain_text(path: Path, task: str, what: str) -> DataError:
    preset = f"--preset transformer-{task} --set pretraining.objective=causal"
    return DataError(
        f"{path}: {what} plain text without labels, and recur check reads labelled rows; recur pretrain {preset} --data "
        f"{path} --dry-run counts its lines and tokens; for labelled rows add --task custom"
    )


def _find(path: Path, task: str | None, reason: str) -> list[Dataset]:
    try:
        is_folder = path.is_dir()
        if not is_folder and not path.exists():
            raise DataError(f"{path}: does not exist")
        if task is not None:
            return [Dataset(path, task, reason)]
        if not is_folder:
            return [_named_file(path)]
        names = {entry.name for entry in path.iterdir()}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if (named := _task_of(path)) is not None and _has_files(named, path):
        return [Dataset(path, named, "from the folder's name")]
    for name in sorted(names):
        if (typical := _TYPICAL.get(name)) is not None:
            return [Dataset(path, typical, "from the names of its files")]
    if _has_files(CUSTOM, path):
        return [Dataset(path, CUSTOM, "your own rows")]
    inside = [
        Dataset(path / folder, name, "from the folder's name")
        for folder, name in _FOLDERS.items()
        if folder in names and not TASKS[name].plain_text and _has_files(name, path / folder)
    ]
    if not inside:
        if files := files_in_words(path):
            raise DataError(f"{path}: has no train, dev or test file by its name; {files}")
        if any(is_text_file(Path(name)) for name in names):
            raise _plain_text(path, CUSTOM, "holds")
        raise DataError(
            f"{path}: has no train, dev or test file (.tsv, .csv, .jsonl, .json, .ft, .parquet), no LABEL/* or "
            "train/LABEL/* and no folder named after a task; give the path of the file itself"
        )
    return inside


def _named_file(path: Path) -> Dataset:
    if (named := _task_of(path.absolute().parent)) is not None:
        return Dataset(path, named, "from the folder's name")
    stem = path.name.partition(".")[0].casefold()
    for name in sorted(TASKS, key=len, reverse=True):
        if re.fullmatch(rf"{re.escape(name)}([-_].*)?", stem):
            return Dataset(path, name, "from the file's name")
    return Dataset(path, CUSTOM, "your own rows")


def _task_of(folder: Path) -> str | None:
    """Return the task that a folder is named after."""
    names = (folder.name.casefold(), folder.resolve().name.casefold())
    return next((_FOLDERS[name] for name in names if name in _FOLDERS), None)


def _has_files(task: str, path: Path) -> bool:
    return bool(find_files(TASKS[task], DataConfig(path=str(path))))


def inspect(
    dataset: Dataset, config: DataConfig, tokenizer: TokenizerConfig | None, log: Log, *, without_dev: bool = False
) -> tuple[dict[str, Any], list[Finding]]:
    """Read every file of a data set; return the counts as `--json` prints them, and the findings.

    `tokenizer` None counts no tokens. `without_dev`: see `find_split_issues`. Raises DataError if there is no file, or if
    a single file cannot be read; an unreadable file of a folder is a finding.
    """
    task = task_with_columns(task_named(dataset.task), config)
    files = find_files(task, config)
    if not files:
        names = ", ".join(dict.fromkeys(name for layout in task.layouts for name in layout.files.values()))
        raise DataError(f"{dataset.path}: has no file of {task.name}" + (f" (looked for {names})" if names else ""))
    splits = read_splits(files, task, config, log)
    faults = [split.fault for split in splits if split.fault is not None]
    if faults and len(files) == 1 and is_one_file(dataset.path):
        raise DataError(*faults)
    findings = [Finding("error", escaped(fault, limit=2000)) for fault in faults]
    tokens, lengths = None, [np.empty(0, np.int64)] * len(splits)
    has_rows = any(split.rows.examples for split in splits[:1])
    if tokenizer is not None and has_rows:
        try:
            tokens, lengths = count_tokens(splits, config, tokenizer, log)
        except DataError as error:
            findings.append(Finding("warning", escaped(f"no tokens were counted: {error}", limit=1000)))
    if tokens is not None and tokens["max_length"] == "auto":
        train = next((number for number, split in enumerate(splits) if split.name == "train"), 0)
        tokens["max_length"] = choose_max_length(lengths[train])
    reports = []
    for split, counted in zip(splits, lengths, strict=True):
        summary = None if tokens is None else summarize_lengths(counted, tokens["max_length"])
        reports.append(_facts(split, task, summary))
        if split.fault is None:
            findings += find_split_issues(split, reports[-1], task, config, without_dev=without_dev)
    overlaps = shared_texts(splits)
    findings += find_task_issues(splits, overlaps, task)
    if dataset.path.is_dir() and not is_one_file(dataset.path) and not config.named_files:
        missing = task.files.keys() - {split.name for split in splits}
        what = "there are no {} rows (no {})".format
        findings += [Finding("information", what(split, task.files[split])) for split in sorted(missing)]
    report = {"task": task.name, "task_reason": dataset.reason, "tokens": tokens}
    return {**report, "splits": reports, "overlaps": overlaps}, findings


def _facts(split: CheckedSplit, task: Task, lengths: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    rows, labels = split.rows, dict(sorted(split.labels.items(), key=lambda item: (-item[1], item[0])))
    dev = () if split.alone is None or split.alone.dev is None else split.alone.dev.examples
    return {
        "split": split.name,
        "path": str(split.path),
        "format": rows.format or None,
        "columns": {**rows.columns.to_json(), "label": rows.label, "id": rows.id} if rows.format else None,
        "fault": split.fault,
        "read": rows.read,
        "rows": len(rows.examples),
        "official": None if split.is_drawn else task.rows.get(split.name),
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "dev_rows": None if split.alone is None else len(dev),
        "extra_rows": sum(len(row.extra) for row in (rows if split.alone is None else split.alone).examples),
        "bad": len(rows.bad),
        "bad_rows": rows.bad[:BAD_ROWS_LISTED],
        "labels": labels,
        "majority": max(labels.values()) / sum(labels.values()) if labels else None,
        "repeated": repeated_texts(split),
        "lengths": lengths,
        "issues": {issue: {"rows": len(lines), "first_lines": lines[:LISTED]} for issue, lines in split.issues.items()},
    }
