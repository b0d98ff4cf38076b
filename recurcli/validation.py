"""Reads YAML into a frozen config dataclass. Each error names the line or the key path of the value at fault.

1e-4 is a number, `no` is a string, nothing is lost in silence, and keys know their line: a SafeLoader with the scalars of YAML
1.2. Duplicate keys, aliases, tags, several documents and deep nesting are refused: a preset needs none of them, and each has
hidden a mistake or an attack.
"""

import contextlib
import copy
import dataclasses
import difflib
import functools
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

import yaml
from annotated_types import Ge, Gt, Lt

from recurcli.errors import UsageError, did_you_mean, escaped

if TYPE_CHECKING:
    from pydantic import TypeAdapter


KeyPath = tuple[str, ...]
MAX_BYTES = 1 << 19
"""Largest preset file: 10,000 labels of 50 bytes."""

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

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse what a preset does not need before a node is made of it."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor or event.tag is not None:
            reason = "anchors, aliases and tags (&, * and !) are not used in presets; write the value out"
            raise yaml.MarkedYAMLError(problem=reason, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """The writer whose plain scalars _Loader reads back as they were."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, (_pattern, _first) in _SCALARS.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), [*_first.replace("\0", ""), ""])


def read_mapping(path: Path, content: bytes | None = None) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Return the mapping in a YAML file and the line of each of its keys. Raises UsageError for other files.

    `content` is that of the file where it has been read.
    """
    try:
        if content is None:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{escaped(path)}: cannot be read: {error.strerror}") from None
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
    """Every value in a nested mapping that is not a mapping itself, with the keys that lead to it."""
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
        loader: Any = _Loader(text)  # refuses control characters
        node = loader.get_single_node()
        value = None if node is None else _construct(loader, node, source, (), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UsageError(f"{source}:{line}: is not YAML: {escaped(reason)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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


Config = TypeVar("Config")
STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
"""The `__pydantic_config__` of every config dataclass."""
Number = TypeVar("Number", int, float)
Positive = Annotated[Number, Gt(0)]
NonNegative = Annotated[Number, Ge(0)]
Probability = Annotated[float, Ge(0), Lt(1)]
"""A probability of leaving something out, which leaves something."""
Fraction = Annotated[float, Gt(0), Lt(1)]
# Choices of a config that a layer or an op has as an argument too: they stand here because a config does not import torch.
Activation = Literal["gelu", "relu"]
OrthogonalMap = Literal["cayley", "householder"]
OTHER_NAMES = {
    "lr": "learning_rate",
    **dict.fromkeys(("num_epochs", "num_train_epochs"), "epochs"),
    "warmup": "warmup_ratio",
    **dict.fromkeys(("early_stopping", "early_stopping_patience"), "patience"),
    **dict.fromkeys(("clip", "grad_clip", "gradient_clip_val"), "max_grad_norm"),
    **dict.fromkeys(("accum", "accumulation", "accumulate_grad_batches"), "gradient_accumulation_steps"),
    "per_device_train_batch_size": "batch_size",
    **dict.fromkeys(("dim", "d_model"), "hidden_size"),
    **dict.fromkeys(("layers", "depth", "num_hidden_layers"), "num_layers"),
    **dict.fromkeys(("heads", "num_attention_heads"), "num_heads"),
    "seed": "runtime.seed",
}
"""Maps the name of a key in other libraries to ours. A name with a dot is a whole path."""


class InvalidConfig(UsageError):
    """Raised for a mapping that is not a valid config. `path` is the key at fault, and `reason` says what is wrong with it."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def parse_config(kind: type[Config], mapping: Mapping[str, Any], keys: Callable[[], Sequence[str]] = tuple) -> Config:
    """Return `mapping` as the dataclass `kind`; unknown keys and wrong types are errors, and its checks must pass.

    `keys` returns the dotted keys among which the one that was meant is looked for. Raises InvalidConfig for one fault.
    """
    from pydantic import ValidationError

    try:
        document = json.dumps(mapping, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a character, as a byte of a file's name that is not UTF-8 becomes
        path, name = next(each for each in flatten(mapping) if re.search("[\ud800-\udfff]", str(each[1])))
        raise InvalidConfig(path, f"the name {escaped(ascii(name))} is not UTF-8; give it another") from None
    except (TypeError, ValueError) as error:
        raise InvalidConfig((), f"is not a plain mapping: {error}") from None
    try:
        # JSON's strict mode takes a list for a tuple and an integer for a float, and guesses nothing else.
        return _adapter(cast("Hashable", kind)).validate_json(document, strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    fault = max(errors, key=lambda each: len(_key_path(each, mapping)))  # of a union, the type that fits best
    path = _key_path(fault, mapping)
    if fault["type"] == "unexpected_keyword_argument":
        known = _hints_at(kind, path[:-1])
        raise InvalidConfig(path, "unknown key" + nearest_key(path[-1], known, keys(), path[:-1]))
    if fault["type"] == "missing":
        raise InvalidConfig(path, "is required")
    if fault["type"] == "value_error":  # of a config's own check, which names the key first
        key, _, reason = (text := str(fault["ctx"]["error"])).partition(" ")
        raise InvalidConfig((*path, key), reason) if key in _hints_at(kind, path) else InvalidConfig(path, text)
    # "Input should be …", "List should have …"; each type that a key may have adds its own error
    messages = [error["msg"] for error in errors if _key_path(error, mapping) == path]
    wanted = " or ".join(message.partition(" should ")[2] or message for message in messages)
    wanted = wanted.replace("a valid array", "a list").replace("an object", "a mapping")  # YAML's words
    if path and type(None) in get_args(_hints_at(kind, path[:-1]).get(path[-1])):
        wanted += " or null"
    raise InvalidConfig(path, f"{escaped(repr(fault['input']))} should {wanted}")


@functools.cache
def _adapter(kind: type[Any]) -> "TypeAdapter[Any]":
    """Return pydantic's validator of `kind`, which takes longer to make than to use."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _key_path(fault: Mapping[str, Any], value: Any) -> KeyPath:
    """Return the keys that lead to a fault in `value`, without the types of a union that pydantic puts among them."""
    path: list[str] = []
    for part in fault["loc"]:
        with contextlib.suppress(KeyError, IndexError, TypeError):
            value = value[part]
            path.append(str(part))
    return (*path, str(fault["loc"][-1])) if fault["type"] == "missing" else tuple(path)


def nearest_key(word: str, known: Iterable[str], keys: Sequence[str] = (), section: Sequence[str] = ()) -> str:
    """Return the end of an error message about an unknown key: the dotted keys that were meant.

    `known` are the keys of the `section`, whose path is put before them; `keys` are all dotted keys.
    """
    names = list(known)
    own = [".".join((*section, name)) for name in names]
    ours = OTHER_NAMES.get(word.lower(), word.lower())
    last = [key.rpartition(".")[2] for key in (*own, *keys)]
    for wanted in (ours, *difflib.get_close_matches(ours, last, n=1, cutoff=0.75)):
        for paths in (own, keys):
            if meant := sorted(path for path in paths if wanted in (path, path.rpartition(".")[2])):
                return f"; did you mean {' or '.join(map(repr, meant))}?"
    return did_you_mean(word, names)


def section_of(kind: Any) -> Any:
    """Return the dataclass of a field of type `Section` or `Section | None`, or None if the field holds no section."""
    members = (member for member in (kind, *get_args(kind)) if isinstance(member, type))
    return next(filter(dataclasses.is_dataclass, members), None)


def _hints_at(kind: Any, path: KeyPath) -> dict[str, Any]:
    """Return the types of the fields of the dataclass that `path` leads to, from `kind`, by name."""
    for part in path:
        kind = section_of(get_type_hints(kind).get(part))
        if kind is None:
            return {}
    return get_type_hints(kind)
