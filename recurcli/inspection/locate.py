"""Finds the data at a PATH of `recur check`: one task's file or folder, or a folder of task folders."""

import re
from pathlib import Path
from typing import NamedTuple

from recurcli.data.config import DataConfig
from recurcli.data.sources import (
    Source,
    files_in_words,
    find_source,
    is_one_file,
    split_named,
    splits_of,
    task_with_columns,
)
from recurcli.data.tasks import CUSTOM, TASKS, Task
from recurcli.errors import DataError
from recurcli.tokens.corpus import is_text_file

UNNAMED = "rows"
"""The split of a single file whose name names no split."""
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
    alone: bool = False
    """Whether it is a single file that `recur finetune` would divide into train and dev rows."""


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


def find_files(task: Task, config: DataConfig) -> list[DataFile]:
    """Return the files of the task's splits. Raises DataError if a named file does not exist.

    They are the files that `config.files` names, else those in the folder `config.path`, or that file alone.
    """
    task = task_with_columns(task, config)
    if config.named_files:
        named = [(split, find_source(task, split, config)) for split in config.named_files]
        return [DataFile(source, (split, "dev") if source.use_dev_split else (split,)) for split, source in named]
    assert config.path is not None
    path = Path(config.path)
    if is_one_file(path):
        split = split_named(task, path) or UNNAMED
        return [DataFile(find_source(task, "train", config), (split,), alone=split in ("train", UNNAMED))]
    files: dict[Path, DataFile] = {}
    for split in splits_of(task):
        try:
            source = find_source(task, split, config)
        except DataError:
            continue
        if source.path not in files:
            files[source.path] = DataFile(source, (split,))
        elif source.use_dev_split:
            files[source.path] = DataFile(source, ("train", "dev"))
    return list(files.values())
