"""Where the rows of a split come from: a file or folder that is found, the Hub, or a generator."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from recurcli.data.config import Column, DataConfig
from recurcli.data.formats.readers import FORMATS
from recurcli.data.tasks import CUSTOM, PLAIN, Layout, Task
from recurcli.errors import DataError, UsageError, did_you_mean, escaped

_STEMS = {"train": ("train", "training"), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
"""Names of the files of task `custom`, without their endings."""
_ENDINGS = [*FORMATS, *(f"{ending}.gz" for ending in FORMATS if ending != ".parquet"), ""]


class Source(NamedTuple):
    """The file or folder that holds a split, and how it is laid out."""

    path: Path
    layout: Layout
    divided: bool = False
    """Whether it holds the rows of train and of dev."""


def adapted(task: Task, config: DataConfig) -> Task:
    """`task` with what `config` says of its files, columns and labels."""
    hub = task.hub if config.hub is None else _hub_name(config.hub)
    changes: dict[str, object] = {
        "text": _names(config.text),
        "pair": _names(config.pair),
        "label": None if config.label is None else str(config.label),
        "id": None if config.id is None else str(config.id),
        "labels": None if config.labels is None else tuple(map(str, config.labels)),
        "dropped_label": None if config.drop_label is None else str(config.drop_label),
        "dev_every": config.dev_every,
    }
    layouts = task.layouts
    if config.files is not None:
        shared = {"dev": config.files["train"]} if "train" in config.files else {}
        layouts = (Layout(files={**shared, **config.files}),)
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


def _hub_name(name: str) -> tuple[str, str | None]:
    repository, colon, configuration = name.partition(":")
    return repository, configuration if colon else None


def splits_of(task: Task) -> tuple[str, ...]:
    """The splits that a task may have."""
    return tuple(dict.fromkeys([*(split for layout in task.layouts for split in layout.files), *_STEMS]))


def find_source(task: Task, split: str, config: DataConfig, *, divided: bool = False) -> Source:
    """What holds the `split` of a task at `config.path`: that file, or a file of its folder, perhaps gzipped.

    `divided`: a single file gives both train and dev rows. Raises UsageError for a split that the task has not, DataError
    with what was looked for if there is none.
    """
    if split not in splits_of(task):
        raise UsageError(f"{task.name} has no split '{escaped(split)}'{did_you_mean(split, splits_of(task))}")
    assert config.path is not None
    path = Path(config.path)
    try:
        if not path.exists():
            raise DataError(f"{path}: does not exist; --data (data.path) names the folder or file of the data")
        if not path.is_dir():
            if config.files is not None:
                raise UsageError(f"{path}: is one file; data.files names the files of a folder")
            return Source(path, _with_header(_layout_of(task, path), config), divided and split in ("train", "dev"))
        candidates = list(_candidates(task, split, path))
        found = next(((place, layout, part) for place, layout, part in candidates if place.exists()), None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if found is None:
        names = [str(place.relative_to(path)) for place, _, _ in candidates if place.suffix != ".gz"]
        names = names or [f"{split}{ending}" for ending in FORMATS]
        looked_for = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise DataError(
            f"{path}: has no {split} rows (looked for {looked_for}); --data (data.path) names a folder with these files, "
            "or one file"
        )
    return Source(found[0], _with_header(found[1], config), found[2])


def has_split(task: Task, split: str, config: DataConfig) -> bool:
    """Whether there are rows of `split` in the folder `config.path`, or may be on the Hub."""
    if config.path is None:
        return split == "train"
    try:
        find_source(adapted(task, config), split, config)
    except DataError:
        return False
    return True


def split_named(task: Task, path: Path) -> str | None:
    """The split that a file of the task holds, if its name says so."""
    name = path.name.removesuffix(".gz")
    own = next((split for layout in task.layouts for split, file in layout.files.items() if file == name), None)
    stem = name.partition(".")[0].casefold()
    return own or next((split for split, stems in _STEMS.items() if stem in stems), None)


def _layout_of(task: Task, path: Path) -> Layout:
    """The layout of a single file: the one that has its name, or else a file of its ending, or else none in particular."""
    name = path.name.removesuffix(".gz")
    same_name = [layout for layout in task.layouts if name in layout.files.values()]
    same_ending = [layout for layout in task.layouts if Path(name).suffix in map(_ending, layout.files.values())]
    plain = Layout(files={}, label_names=_agreed_names(task))
    return (same_name or [layout for layout in same_ending if layout.header and layout.text is None] or [plain])[0]


def _ending(name: str) -> str:
    return Path(name).suffix


def _agreed_names(task: Task) -> Mapping[str, str]:
    """How labels are written besides, where files with a header do not differ about it."""
    merged: dict[str, str] = {}
    for layout in task.layouts:
        if layout.header:
            merged |= layout.label_names
    return merged


def _candidates(task: Task, split: str, path: Path) -> Iterator[tuple[Path, Layout, bool]]:
    """The places where a split may be, the likelier first, and whether dev and train rows are both there."""
    folders = dict.fromkeys([path, path / (task.folder or task.name), path / task.name])
    for folder in folders:
        for layout in task.layouts:
            if (name := layout.files.get(split)) is not None:
                both = layout.files.get("train") == layout.files.get("dev") and split in ("train", "dev")
                for ending in ("", ".gz"):
                    yield folder / f"{name}{ending}", layout, both
        if task.name == CUSTOM and split not in task.files:
            alone = split == "train" and not any(_own(folder, "dev"))
            for place in _own(folder, split):
                yield place, PLAIN, alone
            if split == "dev":
                for place in _own(folder, "train"):
                    yield place, PLAIN, True


def _own(folder: Path, split: str) -> Iterator[Path]:
    """The files of task `custom` that exist for a split."""
    for stem in _STEMS[split]:
        for ending in _ENDINGS:
            if (place := folder / f"{stem}{ending}").exists():
                yield place


def _with_header(layout: Layout, config: DataConfig) -> Layout:
    header = layout.header if config.header is None else config.header
    return replace(layout, header=header, delimiter=config.delimiter or layout.delimiter)
