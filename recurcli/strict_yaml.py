"""YAML as a preset needs it: 1e-4 is a number, `no` is a string, nothing is lost in silence, and keys know their line.

A SafeLoader with the scalars of YAML 1.2. Duplicate keys, aliases, tags, several documents and deep nesting are
refused: a preset needs none of them, and each has hidden a mistake or an attack.
"""

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from recurcli.errors import UsageError, escaped

KeyPath = tuple[str, ...]
MAX_BYTES = 1 << 19
"""Largest preset file: 10,000 labels of 50 bytes."""
MAX_DEPTH = 16

_SCALARS = {
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|", "~nN\0"),
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class _Loader(yaml.SafeLoader):
    """SafeLoader whose plain scalars follow YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own table

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        self._source, self._depth = source, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse what a preset does not need before a node is made of it."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        where = f"{self._source}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise UsageError(f"{where}: anchors and aliases (& and *) are not used in presets; write the value out")
        if event.tag is not None:
            raise UsageError(f"{where}: tags are not used in presets: {escaped(event.tag)}")
        inside = isinstance(event, yaml.CollectionStartEvent)
        self._depth += inside
        if self._depth > MAX_DEPTH:
            raise UsageError(f"{where}: is nested deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self._depth -= inside
        return node


class _Dumper(yaml.SafeDumper):
    """The writer whose plain scalars _Loader reads back as they were."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, (_pattern, _first) in _SCALARS.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), [*_first.replace("\0", ""), ""])


def read_mapping(path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The mapping in a YAML file, and the line of every key in it; UsageError (file:line: reason) for anything else."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: is larger than {MAX_BYTES:,} bytes; it is not a preset")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 (byte {error.start})") from None
    value, lines = copy.deepcopy(_parse(text, str(path)))  # a caller may change what it is given
    if value is None:
        return {}, {}
    if not isinstance(value, dict):
        raise UsageError(f"{path}:1: a preset is a mapping of keys to values, not {escaped(repr(value), 40)}")
    return value, lines


def parse_value(text: str, source: str) -> Any:
    """Parse one YAML value, that of `--set KEY=VALUE`."""
    return copy.deepcopy(_parse(text, source)[0])


def dump(values: Mapping[str, Any]) -> str:
    """Return `values` as YAML that `read_mapping` reads back unchanged; UsageError if it is longer than MAX_BYTES."""
    text = yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    if (size := len(text.encode())) > MAX_BYTES:
        raise UsageError(
            f"the preset takes {size:,} bytes as YAML, and at most {MAX_BYTES:,} are read; shorten its lists"
        )
    return text


def flatten(values: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value in a nested mapping that is no mapping itself, with the keys that lead to it."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, (*path, key))
        else:
            yield (*path, key), value


@functools.lru_cache(maxsize=64)
def _parse(text: str, source: str) -> tuple[Any, dict[KeyPath, int]]:
    """Return the value of a YAML text and the line of every key. A command reads the preset of a run several times."""
    lines: dict[KeyPath, int] = {}
    try:
        loader: Any = _Loader(text, source)  # refuses control characters
        node = loader.get_single_node()
        value = None if node is None else _construct(loader, node, source, (), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{source}:{line}: is not YAML: {escaped(reason)}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{source}: is not YAML: {escaped(error)}") from None
    loader.dispose()
    return value, lines


def _construct(loader: Any, node: yaml.Node, source: str, path: KeyPath, lines: dict[KeyPath, int]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, item, source, (*path, str(i)), lines) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise UsageError(f"{source}:{line}: a key is a word, not {escaped(repr(key), 40)}")
        if key in mapping:
            first = lines[(*path, key)]
            raise UsageError(f"{source}:{line}: the key '{escaped(key)}' stands here and in line {first}; keep one")
        lines[(*path, key)] = line
        mapping[key] = _construct(loader, value_node, source, (*path, key), lines)
    return mapping
