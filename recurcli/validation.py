"""Turn a plain mapping into a frozen config dataclass, strictly, and say by key path what does not fit."""

import dataclasses
import difflib
import functools
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from recurcli.errors import RecurError, UsageError, did_you_mean, escaped

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Config = TypeVar("Config")
STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
"""The `__pydantic_config__` of every config dataclass."""
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
    """A mapping that is no config; `path` is the key at fault, `reason` what is wrong with it."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def parse_config(kind: type[Config], mapping: Mapping[str, Any], keys: Sequence[str] = ()) -> Config:
    """Return `mapping` as the dataclass `kind`; unknown keys and wrong types are errors, and its checks must pass.

    `keys` are the dotted keys among which the one that was meant is looked for. Raises InvalidConfig for the first fault.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(mapping)
    except (TypeError, ValueError) as error:
        raise InvalidConfig((), f"is not a plain mapping: {error}") from None
    try:
        # JSON's strict mode takes a list for a tuple and an integer for a float, and guesses nothing else.
        return _adapter(cast("Hashable", kind)).validate_json(text, strict=True)
    except ValidationError as error:
        fault, *others = error.errors(include_url=False)
        path = tuple(str(part) for part in fault["loc"])
        if path[-1:] and (path[-1] in ("int", "float", "str") or path[-1].startswith(("literal[", "tuple["))):
            path = path[:-1]  # pydantic adds the member of a union that it tried
        if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            raise InvalidConfig(
                path, "unknown key" + nearest_key(path[-1], _fields_at(kind, path[:-1]), keys, path[:-1])
            ) from None
        if isinstance(cause := fault.get("ctx", {}).get("error"), RecurError | ValueError):
            key, _, rest = str(cause).partition(" ")  # a config's own checks name the key first
            if key in _fields_at(kind, path):
                raise InvalidConfig((*path, key), rest) from None
            raise InvalidConfig(path, str(cause)) from None
        if fault["type"] in ("missing", "missing_argument"):
            raise InvalidConfig(path, "is required") from None
        if fault["type"] == "dataclass_type" and (keys := _fields_at(kind, path)):
            shown = ", ".join(keys[:3]) + (", …" if len(keys) > 3 else "")
            raise InvalidConfig(path, f"must have keys ({shown}), and is {escaped(repr(fault['input']), 60)}") from None
        if fault["type"] == "tuple_type" and isinstance(fault["input"], str | int):
            raise InvalidConfig(path, f"must be a list: [{escaped(fault['input'])}]") from None
        reason = fault["msg"].removeprefix("Input ")
        words = [other["ctx"]["expected"] for other in others if _is_alternative(other, fault)]
        reason += "".join(f", or {word}" for word in words)
        raise InvalidConfig(path, f"{escaped(repr(fault['input']))} {reason}") from None


@functools.cache
def _adapter(kind: type[Any]) -> "TypeAdapter[Any]":
    """Return pydantic's validator of `kind`, which takes longer to make than to use."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _is_alternative(other: Mapping[str, Any], fault: Mapping[str, Any]) -> bool:
    """Return whether `other` says that the key of `fault` may also be a word, such as auto."""
    return other["type"] == "literal_error" != fault["type"] and other["loc"][:-1] == fault["loc"][:-1]


def nearest_key(word: str, known: Iterable[str], keys: Sequence[str] = (), section: Sequence[str] = ()) -> str:
    """Return the end of an error message about an unknown key: the dotted key that was meant.

    `known` are the keys of the `section`, whose path is put before them; `keys` are all dotted keys.
    """
    names = list(known)
    ours = OTHER_NAMES.get(word, word)
    if ours in names:
        return f"; did you mean '{'.'.join((*section, ours))}'?"
    if not paths_of(ours, keys) and not difflib.get_close_matches(word, names, n=1):
        near = difflib.get_close_matches(word, {key.rpartition(".")[2] for key in keys}, n=1, cutoff=0.75)
        ours = near[0] if near else ours
    meant = paths_of(ours, keys) or ([ours] if "." in ours else [])
    if not meant and (near := difflib.get_close_matches(word, names, n=1)):
        meant = [".".join((*section, near[0]))]
    return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else did_you_mean(word, names)


def paths_of(name: str, keys: Iterable[str]) -> list[str]:
    """Return the dotted `keys` whose last part, or whole, is `name`, sorted."""
    return sorted(key for key in keys if name in (key, key.rpartition(".")[2]))


def section_of(kind: Any) -> Any:
    """Return the dataclass of a field of type `Section` or `Section | None`; None if the field holds no section."""
    return next((member for member in (kind, *get_args(kind)) if dataclasses.is_dataclass(member)), None)


def _fields_at(kind: Any, path: tuple[str, ...]) -> list[str]:
    """Names of the fields of the dataclass that `path` leads to, from `kind`."""
    for part in path:
        kind = section_of({field.name: field.type for field in dataclasses.fields(kind)}.get(part))
        if kind is None:
            return []
    return [field.name for field in dataclasses.fields(kind)]
