"""Finds the file or folder that holds the rows of a split."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from recurcli.data.config import Column, DataConfig
from recurcli.data.formats.fasttext import is_fasttext
from recurcli.data.formats.readers import FORMATS
from recurcli.data.tasks import CUSTOM, PLAIN, Layout, Task
from recurcli.errors import DataError, UsageError, did_you_mean, escaped

STEMS = {"train": ("train", "training"), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
"""Stems of the names of task `custom`'s files by split."""
_ENDINGS = [*FORMATS, *(f"{ending}.gz" for ending in FORMATS if ending != ".parquet"), ""]


class Source(NamedTuple):
    """The file or folder that holds a split, and its layout."""

    path: Path
    layout: Layout
    use_dev_split: bool = False
    """Whether it holds both train and dev rows."""


def task_with_columns(task: Task, config: DataConfig) -> Task:
    """Return `task` with the files, columns and labels that `config` sets."""
    hub = task.hub
    if config.hub is not None:
        repository, _, configuration = config.hub.partition(":")
        hub = repository, configuration or None
    changes: dict[str, object] = {
        "text": _names(config.text),
        "pair": _names(config.pair),
        "label": None if config.label is None else str(config.label),
        "id": None if config.id is None else str(config.id),
        "labels": _names(config.labels),
        "dropped_label": None if config.drop_label is None else str(config.drop_label),
        "dev_fraction": config.dev_fraction,
    }
    layouts = task.layouts
    if files := config.files_of_folder:
        shared = {"dev": files["train"]} if "train" in files else {}
        layouts = (Layout(files={**shared, **files}),)
    if config.text is not None:
        layouts = tuple(replace(layout, text=None) for layout in layouts)
        task = replace(task, spans=None)
    if config.label is not None:
        layouts = tuple(replace(layout, label=None) for layout in layouts)
    given = {key: value for key, value in changes.items() if value is not None}
    return replace(task, hub=hub, layouts=layouts, **given)  # type: ignore[arg-type]


def _names(columns: Column | tuple[Column, ...] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    return tuple(map(str, columns)) if isinstance(columns, tuple) else (str(columns),)


def splits_of(task: Task) -> tuple[str, ...]:
    """Return the splits that a task may have."""
    return tuple(dict.fromkeys([*(split for layout in task.layouts for split in layout.files), *STEMS]))


def find_source(task: Task, split: str, config: DataConfig, *, use_dev_split: bool = False) -> Source:
    """Find the `split` of a task: the file that `config.files` names, else `config.path` or a file of that folder.

    A folder of label folders counts as one file. `use_dev_split` means that a single file holds both train and dev rows. Files
    may be gzipped. Raises UsageError for a split that the task does not have, and DataError with the expected names if no
    file exists.
    """
    if split not in splits_of(task):
        raise UsageError(f"{task.name} has no split '{escaped(split)}'{did_you_mean(split, splits_of(task))}")
    if (named := config.named_file(split)) is not None:
        if not named.exists():
            raise DataError(f"{named}: does not exist; it is named for the {split} rows")
        both = split in ("train", "dev") and not config.has_own_dev_file
        return _configured(Source(named, replace(_layout_of(task, named), unlabelled=()), both), config)
    if config.path is None:
        raise DataError(f"no {split} rows are named; add --data PATH or --{split} FILE")
    path = Path(config.path)
    use_dev_split = use_dev_split and not config.has_own_dev_file
    try:
        if not path.exists():
            raise DataError(f"{path}: does not exist; --data (data.path) names the folder or file of the data")
        if not path.is_dir() or (not config.files_of_folder and is_label_folder(path)):
            if config.files_of_folder:
                raise UsageError(f"{path}: is one file; data.files names the files of a folder")
            return _configured(
                Source(path, _layout_of(task, path), use_dev_split and split in ("train", "dev")), config
            )
        candidates = list(_candidates(task, split, path))
        source = next((candidate for candidate in candidates if candidate.path.exists()), None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if source is None:
        names = [str(candidate.path.relative_to(path)) for candidate in candidates if candidate.path.suffix != ".gz"]
        names = names or [*(f"{split}{ending}" for ending in FORMATS), f"{split}/LABEL/*"]
        looked_for = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        others = files_in_words(path) or "--data (data.path) names a folder with these files, or one file"
        raise DataError(f"{path}: has no {split} rows (looked for {looked_for}); {others}")
    return _configured(source._replace(use_dev_split=source.use_dev_split and not config.has_own_dev_file), config)


def files_in_words(folder: Path) -> str:
    """Return which files of rows lie in `folder`, and how to name them; "" if there are none."""
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.removesuffix(".gz").endswith((*FORMATS,)))
    if not files:
        return ""
    shown = ", ".join(escaped(name, 60) for name in files[:8]) + (", …" if len(files) > 8 else "")
    return f"it holds {shown}; give the path of one file, or name files with --train, --dev and --test"


def is_local(config: DataConfig, split: str) -> bool:
    """Return whether the rows of `split` are in a file, not on the Hub or generated."""
    return config.path is not None or config.named_file(split) is not None


def is_one_file(path: Path) -> bool:
    """Return whether `path` is one file or a folder of label folders. Its rows are one split, or train and dev rows."""
    return path.is_file() or is_label_folder(path)


def is_label_folder(path: Path) -> bool:
    """Return whether `path` holds label folders: two or more folders of files, without a file or folder of a split."""
    try:
        if not path.is_dir():
            return False
        entries = [entry for entry in os.scandir(path) if not entry.name.startswith(".")]
        folders = [list(os.scandir(entry)) for entry in entries if entry.is_dir()]
    except OSError:
        return False
    inside = [entry for entries in folders for entry in entries if not entry.name.startswith(".")]
    splits = {stem for stems in STEMS.values() for stem in stems}
    return (
        sum(map(bool, folders)) > 1
        and not any(entry.is_dir() for entry in inside)
        and not any(entry.name in splits or Path(entry.name).suffix in FORMATS for entry in entries)
        and not any(Path(entry.name).suffix in FORMATS and entry.name.partition(".")[0] in splits for entry in inside)
    )


def has_split(task: Task, split: str, config: DataConfig) -> bool:
    """Return whether there is a file of `split`; without a path or a named file, whether it is the train split.

    Dev rows that would be drawn from the training rows do not count.
    """
    if not is_local(config, split):
        return split == "train"
    try:
        source = find_source(task_with_columns(task, config), split, config)
    except DataError:
        return False
    return split != "dev" or not source.use_dev_split


def split_named(task: Task, path: Path) -> str | None:
    """Return the split that a file holds by its name; None if the name is not that of a split."""
    name = path.name.removesuffix(".gz")
    known = next((split for layout in task.layouts for split, file in layout.files.items() if file == name), None)
    stem = name.partition(".")[0].casefold()
    return known or next((split for split, stems in STEMS.items() if stem in stems), None)


def _layout_of(task: Task, path: Path) -> Layout:
    """Return the layout of a single file: the one with its name, else with its ending, else one for any file."""
    name = Path(path.name.removesuffix(".gz"))
    for layout in task.layouts:
        if name.name in layout.files.values():
            return layout
    label_names: dict[str, str] = {}
    for layout in task.layouts:
        if not layout.header:
            continue
        if layout.text is None and any(Path(file).suffix == name.suffix for file in layout.files.values()):
            return layout
        label_names |= layout.label_names
    return Layout(files={}, label_names=label_names)


def _candidates(task: Task, split: str, path: Path) -> Iterator[Source]:
    """Yield the files and folders that may hold a split, the likelier first."""
    folders = dict.fromkeys([path, path / (task.folder or task.name), path / task.name])
    for folder in folders:
        for layout in task.layouts:
            if (name := layout.files.get(split)) is not None:
                both = layout.files.get("train") == layout.files.get("dev") and split in ("train", "dev")
                for ending in ("", ".gz"):
                    yield Source(folder / f"{name}{ending}", layout, both)
        if task.name == CUSTOM and split not in task.files:
            both = split == "train" and not any(_custom_files(folder, "dev"))
            for file in _custom_files(folder, split):
                yield Source(file, PLAIN, both)
            if split == "dev":
                for file in _custom_files(folder, "train"):
                    yield Source(file, PLAIN, use_dev_split=True)


def _custom_files(folder: Path, split: str) -> Iterator[Path]:
    """Yield the files of task `custom` that exist for a split."""
    for stem in STEMS[split]:
        for ending in _ENDINGS:
            if (file := folder / f"{stem}{ending}").exists():
                yield file
        for ending in (".txt", ".txt.gz"):  # other texts are for `recur pretrain`
            if is_fasttext(file := folder / f"{stem}{ending}"):
                yield file


def _configured(source: Source, config: DataConfig) -> Source:
    """Return `source` with the header and the delimiter that `config` sets."""
    layout = source.layout
    header = layout.header if config.header is None else config.header
    return source._replace(layout=replace(layout, header=header, delimiter=config.delimiter or layout.delimiter))
