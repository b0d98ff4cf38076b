"""Finds the data at a PATH of `recur check`: a CLUE submission, one task's file or folder, or a folder of task folders."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from recurcli.data.config import DataConfig
from recurcli.data.formats.rows import BOM
from recurcli.data.sources import Source, adapted, find_source, split_named, splits_of
from recurcli.data.tasks import CUSTOM, TASKS, Task
from recurcli.errors import DataError, UsageError

UNNAMED = "rows"
"""The split of a single file whose name names no split."""
_HEAD = 1 << 16
_COMMON_NAME = re.compile(r"(train|dev|validation|test)(\.[a-z]+)?")
"""File names that many tasks share."""

_FOLDERS: dict[str, str] = {}
"""Folder name to task."""
_TYPICAL: dict[str, str | None] = {}
"""Uncommon file name to its task; None if several tasks have it."""
for _task in TASKS.values():
    _FOLDERS.setdefault(_task.folder or _task.name, _task.name)
    _FOLDERS.setdefault(_task.name, _task.name)
    for _file in (_file for _layout in _task.layouts for _file in _layout.files.values()):
        if not _COMMON_NAME.fullmatch(_file):
            _TYPICAL[_file] = _task.name if _TYPICAL.get(_file, _task.name) == _task.name else None


class Dataset(NamedTuple):
    """A file or folder with the rows of one task."""

    path: Path
    task: str
    reason: str
    """Where the name of the task comes from."""


class DataFile(NamedTuple):
    """A file (or a folder of label folders) and the splits in it: one split, or train and dev."""

    source: Source
    splits: tuple[str, ...]


def is_submission(path: Path) -> bool:
    """Return whether the file is named like CLUE predictions or a zip, or its rows have only `id` and `label`."""
    name = path.name.lower()
    if name.endswith(".zip") or re.search(r"_predict\.jsonl?$", name):
        return True
    if not name.endswith((".json", ".jsonl", ".ndjson")) or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).removeprefix(BOM).decode(errors="replace")
        value, _ = json.JSONDecoder().raw_decode(head.lstrip(" \t\r\n["))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) in ({"label"}, {"id", "label"})


def find_datasets(path: Path, task: str | None, reason: str) -> list[Dataset]:
    """Return the data sets at `path`: one of the given `task`, else one or several by the names of files and folders.

    Raises DataError if `path` does not exist, or is a folder without data files.
    """
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
        if folder in names and _has_files(name, path / folder)
    ]
    if not inside:
        raise DataError(
            f"{path}: has no train, dev or test file (.tsv, .csv, .jsonl, .json, .parquet), no train/LABEL/*.txt and no folder "
            "named after a task; give the path of the file itself"
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


def find_files(task: Task, config: DataConfig) -> list[DataFile]:
    """Return the files of the task's splits in the folder `config.path`, or that file alone."""
    assert config.path is not None
    path, task = Path(config.path), adapted(task, config)
    if not path.is_dir():
        return [DataFile(find_source(task, "train", config), (split_named(task, path) or UNNAMED,))]
    files: dict[Path, DataFile] = {}
    for split in splits_of(task):
        try:
            source = find_source(task, split, config)
        except DataError:
            continue
        if source.path not in files:
            files[source.path] = DataFile(source, (split,))
        elif source.divided:
            files[source.path] = DataFile(source, ("train", "dev"))
    return list(files.values())


def with_options(config: DataConfig, path: Path, columns: Mapping[str, object]) -> DataConfig:
    """Return `config` for the data at `path` with the `columns` of the command line; UsageError for a bad value."""
    given = {key: value for key, value in columns.items() if value is not None}
    try:
        return replace(config, path=str(path), files=None if path.is_file() else config.files, **given)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--{error}") from None
