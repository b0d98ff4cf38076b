"""Merges the layers of a preset: its files, one after the other, then the options of the command line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.strict_yaml import KeyPath


class Origin(NamedTuple):
    """The origin of a value: a file and line, or a command-line option."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


class Layer(NamedTuple):
    """The values that one file or option sets, and the origin of each key."""

    values: dict[str, Any]
    origins: dict[KeyPath, Origin]


def merge(layers: Sequence[Layer], options: Sequence[Layer] = ()) -> tuple[dict[str, Any], dict[KeyPath, Origin]]:
    """Return the merged values of `layers` and `options`, and the origin of each key. Later values override earlier ones.

    The `options` come last. They count as one layer, so none of them replaces the data that another one names.
    """
    merged: dict[str, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    for together in (*([layer] for layer in layers), options):
        _forget_replaced_data(merged, origins, together)
        for layer in together:
            _merge_into(merged, layer.values)
            origins.update(layer.origins)
    return merged, origins


def _merge_into(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            below = target.get(key)
            target[key] = below if isinstance(below, dict) else {}
            _merge_into(target[key], value)
        else:
            target[key] = value


def _forget_replaced_data(merged: dict[str, Any], origins: dict[KeyPath, Origin], layers: Sequence[Layer]) -> None:
    """Remove from `merged` the data that `layers` replace, so that no dev or test rows of other data are left.

    A file of training rows replaces `data.path` and all of `data.files`. A `data.path` replaces the files with absolute
    paths. If it is one file, it also replaces the names of files in a folder.
    """
    named: dict[str, Any] = {}
    for layer in layers:
        _merge_into(named, layer.values)
    data, earlier = named.get("data"), merged.get("data")
    if not isinstance(data, dict) or not isinstance(earlier, dict):
        return
    files, path = data.get("files"), data.get("path")
    train = files.get("train") if isinstance(files, dict) else None
    before = earlier.get("files")
    replaced: KeyPath
    kept: dict[str, dict[str, Any] | None]
    if _absolute(train):
        replaced, kept = ("files", "train"), {"path": None, "files": None}
    elif isinstance(path, str) and isinstance(before, dict):
        in_folder = (
            {} if Path(path).is_file() else {split: file for split, file in before.items() if not _absolute(file)}
        )
        replaced, kept = ("path",), {"files": in_folder or None}
    else:
        return
    origin = next(found for layer in layers if (found := layer.origins.get(("data", *replaced))))
    for key, value in kept.items():
        if earlier.get(key) not in (None, value):
            earlier[key] = value
            origins[("data", key)] = origin


def _absolute(file: object) -> bool:
    return isinstance(file, str) and Path(file).is_absolute()
