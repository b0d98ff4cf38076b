"""`recur check`: reports errors in data files and CLUE submissions before training or upload."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recurcli.data.columns import ColumnSchema
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
from recurcli.inspection.rows import (
    LISTED,
    Numbers,
    SplitRows,
    find_files,
    note_repeated_ids,
    prepare_tokens,
    read_rows,
    repeated_texts,
    shared_texts,
    summarize_lengths,
    text_numbers,
)
from recurcli.inspection.rules import find_split_issues, find_task_issues
from recurcli.log import Log, RowsDone
from recurcli.preset import Preset, compose
from recurcli.tokens.texts import is_text_file
from recurcli.tokens.tokenizer import choose_max_length

if TYPE_CHECKING:
    from recurcli.commands.label_check import LabelCheck

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


def check(
    paths: Sequence[Path],
    log: Log,
    *,
    task: str | None = None,
    preset: str | None = None,
    columns: Mapping[str, object] | None = None,
    files: Mapping[str, str] | None = None,
    lengths: bool = True,
    labels: "LabelCheck | None" = None,
) -> dict[str, Any]:
    """Check each path. Yields notes, the number of rows read, and finally `{"reports": […], "errors": n, "warnings": n}`.

    `files` maps splits (train, dev, test) to the absolute paths of files that are compared with each other. `columns` has the
    options `text`, `pair`, `label`, `id`, `header`, `delimiter`, `quote` and `encoding`; None: the option was not given.
    `labels` names files that are written about the labels of the training rows of one data set.
    Raises UsageError without a path and files. Raises DataError or StorageError if a single path cannot be read. With several
    paths, the report of that path says so.
    """
    if not paths and not files:
        raise UsageError("name a PATH, or files that belong together with --train, --dev and --test")
    columns, reason = columns or {}, "from --task"
    settings = None if preset is None else compose(preset).preset
    if task is not None:
        task = task_named(task).name
    elif settings is not None:
        task, reason = settings.task, "from the preset"
    reports: list[dict[str, Any]] = []
    checked: list[tuple[Task, DataConfig]] = []
    if labels:
        labels.check_writable([*paths, *(Path(file) for file in (files or {}).values())])
    named = [Path(file) for file in (files or {}).values()][:1]
    for number, path in enumerate([*named, *paths]):
        try:
            together = files if number < len(named) else None
            if not together and columns.get("text") is None and is_submission(path):
                reports.append(_report("submission", path, validate(path)))
                continue
            datasets = find_datasets(path, task, reason)
            if len(datasets) > 1:
                log.note(f"{path}: a folder of tasks: {', '.join(dataset.task for dataset in datasets)}")
            for dataset in datasets:
                used = settings or _preset_of(dataset.task)
                config = with_options(used.data, dataset.path, columns)
                if together:
                    config = replace(config, path=None, files={**together})
                roles = {*(files or ()), *(split_named(TASKS[CUSTOM], other) for other in paths if other != path)}
                counted = used.tokenizer if lengths else None
                facts, findings = inspect(dataset, config, counted, log, without_dev=roles <= {"test"})
                reports.append(_report("data", dataset.path, findings, facts))
                checked.append((task_named(dataset.task), config))
        except (DataError, StorageError) as error:
            if len(named) + len(paths) == 1:
                raise
            reports.append(_report("unreadable", path, [Finding("error", escaped(error, limit=4000))]))
    counts = {level: sum(report[level] for report in reports) for level in ("errors", "warnings")}
    written: dict[str, Any] = {}
    if labels:
        if len(checked) != 1:
            raise UsageError(
                f"--out-of-fold and --suspects are for one data set, not {len(checked)}; name one file or folder"
            )
        written = labels.write(*checked[0], log)
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
    tokens, count_tokens, no_tokens = None, None, None
    if tokenizer is not None:
        try:
            tokens, count_tokens = prepare_tokens(files, task, config, tokenizer, log)
        except DataError as error:
            no_tokens = Finding("warning", escaped(f"no tokens were counted: {error}", limit=1000))
    label_numbers: dict[str, int] = {}
    splits: list[SplitRows] = []
    trained = None
    for file in files:
        done = sum(rows.read for rows in splits)
        by_name = {split: SplitRows(split, file, label_numbers) for split in file.splits}
        for number in read_rows(file, task, config, by_name, count_tokens, trained):
            log.progress(RowsDone(done + number))
        first = next(iter(by_name.values()))
        if trained is None and first.format is not None:
            trained = ColumnSchema(str(file.source.path), first.columns.texts, is_run=False)
        splits += by_name.values()
    faults = dict.fromkeys(rows.fault for rows in splits if rows.fault is not None)
    if faults and len(files) == 1 and is_one_file(dataset.path):
        raise DataError(*faults)
    findings = [Finding("error", escaped(fault, limit=2000)) for fault in faults]
    train = next((rows for rows in splits if rows.split == "train"), splits[0])
    if tokens is not None and tokens["max_length"] == "auto":
        tokens["max_length"] = choose_max_length(np.array(train.lengths))
    reports = []
    numbers = text_numbers(splits)
    for rows, row_numbers in zip(splits, numbers, strict=True):
        note_repeated_ids(rows)
        reports.append(_facts(rows, row_numbers, task, tokens))
        if rows.fault is None:
            findings += find_split_issues(rows, reports[-1], task, config, without_dev=without_dev)
    overlaps = shared_texts(splits, numbers)
    findings += find_task_issues(splits, overlaps, task)
    if dataset.path.is_dir() and not is_one_file(dataset.path) and not config.named_files:
        missing = task.files.keys() - {rows.split for rows in splits}
        what = "there are no {} rows (no {})".format
        findings += [Finding("information", what(split, task.files[split])) for split in sorted(missing)]
    if no_tokens is not None and not faults and len(train):  # else no text is the reason, which is told
        findings.append(no_tokens)
    report = {"task": task.name, "task_reason": dataset.reason, "tokens": tokens}
    return {**report, "splits": reports, "overlaps": overlaps}, findings


def _facts(rows: SplitRows, numbers: Numbers, task: Task, tokens: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    columns = rows.columns
    labels = dict(sorted(rows.label_counts.items(), key=lambda item: (-item[1], item[0])))
    return {
        "split": rows.split,
        "path": str(rows.path),
        "format": rows.format,
        "columns": rows.format and {**columns.texts.to_json(), "label": columns.label, "id": columns.id},
        "fault": rows.fault,
        "read": rows.read,
        "rows": len(rows),
        "official": None if rows.drawn else task.rows.get(rows.split),
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "dev_rows": rows.dev_rows if rows.alone else None,
        "extra_rows": rows.extra_rows,
        "bad": rows.bad,
        "bad_rows": rows.first_bad,
        "labels": labels,
        "majority": max(labels.values()) / sum(labels.values()) if labels else None,
        "repeated": repeated_texts(rows, numbers),
        "lengths": None if tokens is None else summarize_lengths(rows.lengths, tokens["max_length"]),
        "issues": {
            issue: {"rows": len(lines), "first_lines": [*lines[:LISTED]]} for issue, lines in rows.issues.items()
        },
    }
