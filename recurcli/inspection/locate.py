"""What a PATH of `recur check` is: a CLUE submission, a task's file or folder, or a folder of tasks."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from recurcli.data.config import DataConfig
from recurcli.data.formats.rows import BOM
from recurcli.data.sources.find import Source, adapted, find_source, split_named, splits_of
from recurcli.data.tasks import CUSTOM, TASKS, Task
from recurcli.errors import DataError, UsageError

ROWS = "rows"
"""The split of a single file whose name tells none."""
_HEAD = 1 << 16
_USUAL = re.compile(r"(train|dev|validation|test)(\.[a-z]+)?")
"""Names that files of any task may have."""

_FOLDERS: dict[str, str] = {}
for _task in TASKS.values():
    _FOLDERS.setdefault(_task.folder or _task.name, _task.name)
    _FOLDERS.setdefault(_task.name, _task.name)


class Place(NamedTuple):
    """A file or folder of one task's rows."""

    path: Path
    task: str
    reason: str
    """Why it is taken for that task."""


class Part(NamedTuple):
    """A file or folder of rows and the splits that it holds: one, or train and dev."""

    source: Source
    splits: tuple[str, ...]


def is_submission(path: Path) -> bool:
    """Whether a file is named like CLUE predictions or a zip of them, or has rows of `id` and `label` alone."""
    name = path.name.lower()
    if name.endswith(".zip") or re.search(r"_predict\.jsonl?$", name):
        return True
    if not name.endswith((".json", ".jsonl", ".ndjson")) or not path.is_file():
        return False
    return _first_keys(path) in ({"label"}, {"id", "label"})


def _first_keys(path: Path) -> set[str]:
    """The keys of the first object of a JSON file; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).removeprefix(BOM).decode(errors="replace")
        value, _ = json.JSONDecoder().raw_decode(head.lstrip(" \t\r\n["))
    except (OSError, ValueError, RecursionError):
        return set()
    return set(value) if isinstance(value, dict) else set()


def places_of(path: Path, task: str | None, reason: str) -> list[Place]:
    """What there is to check at `path`: itself as the `task` that is told, or as what its name and files say.

    Raises DataError where it is not there, or is a folder in which nothing can be found.
    """
    try:
        is_folder = path.is_dir()
        if not is_folder and not path.exists():
            raise DataError(f"{path}: does not exist")
        if task is not None:
            return [Place(path, task, reason)]
        if not is_folder:
            return [_file(path)]
        names = {entry.name for entry in path.iterdir()}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if (named := _task_of(path)) is not None and parts_of(TASKS[named], DataConfig(path=str(path))):
        return [Place(path, named, "by the folder's name")]
    if (typical := _typical_task(names)) is not None:
        return [Place(path, typical, "by the names of its files")]
    if parts_of(TASKS[CUSTOM], DataConfig(path=str(path))):
        return [Place(path, CUSTOM, "as rows of one's own")]
    inside = [
        Place(path / folder, name, "by the folder's name")
        for folder, name in _FOLDERS.items()
        if folder in names and parts_of(TASKS[name], DataConfig(path=str(path / folder)))
    ]
    if inside:
        return inside
    raise DataError(
        f"{path}: holds no train, dev or test file (.tsv, .csv, .jsonl, .json, .parquet) and no folder named by a task; "
        "name the file itself"
    )


def _file(path: Path) -> Place:
    if (named := _task_of(path.absolute().parent)) is not None:
        return Place(path, named, "by the folder's name")
    stem = path.name.partition(".")[0].casefold()
    for name in sorted(TASKS, key=len, reverse=True):
        if stem == name or (stem.startswith(name) and stem[len(name)] in "-_"):
            return Place(path, name, "by the file's name")
    return Place(path, CUSTOM, "as rows of one's own")


def _task_of(folder: Path) -> str | None:
    """The task that a folder is named by."""
    names = (folder.name.casefold(), folder.resolve().name.casefold())
    return next((_FOLDERS[name] for name in names if name in _FOLDERS), None)


def _typical_task(names: set[str]) -> str | None:
    """The task of a folder that has a file which no other task calls so."""
    owners = Counter(file for name in set(_FOLDERS.values()) for file in _file_names(TASKS[name]))
    typical = {file: name for name in TASKS for file in _file_names(TASKS[name]) if owners[file] == 1}
    return next((typical[name] for name in sorted(names) if name in typical), None)


def _file_names(task: Task) -> set[str]:
    """What only few would call a file."""
    return {file for layout in task.layouts for file in layout.files.values() if not _USUAL.fullmatch(file)}


def parts_of(task: Task, config: DataConfig) -> list[Part]:
    """The files of a task's splits that are at `config.path`, or that file alone; [] where there are none."""
    assert config.path is not None
    path, task = Path(config.path), adapted(task, config)
    if not path.is_dir():
        return [Part(find_source(task, "train", config), (split_named(task, path) or ROWS,))]
    found: dict[Path, Part] = {}
    for split in splits_of(task):
        try:
            source = find_source(task, split, config)
        except DataError:
            continue
        before = found.get(source.path)
        if source.divided and before is not None:
            found[source.path] = before._replace(splits=("train", "dev"))
        elif before is None:
            found[source.path] = Part(source, (split,))
    return list(found.values())


def official_rows(task: Task, part: Part, split: str) -> int | None:
    """How many rows the split of a task has officially; a file alone that holds train and dev counts as both."""
    rows: Mapping[str, int] = task.rows
    both = any(layout.files.get("train") == layout.files.get("dev") for layout in task.layouts[:1])
    if len(part.splits) == 1 and split == "train" and both and {"train", "dev"} <= rows.keys():
        return rows["train"] + rows["dev"]
    return rows.get(split)


def as_told(config: DataConfig, path: Path, told: Mapping[str, object]) -> DataConfig:
    """`config` for the data at `path`, with what the command line says of its columns."""
    given = {key: value for key, value in told.items() if value is not None}
    try:
        return replace(config, path=str(path), files=None if path.is_file() else config.files, **given)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"--{error}") from None
