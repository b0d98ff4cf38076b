"""Turn a plain mapping into a frozen config dataclass, strictly, and say by key path what does not fit."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from recurcli.errors import RecurError, UsageError, did_you_mean, escaped

Config = TypeVar("Config")
STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
"""The `__pydantic_config__` of every config dataclass."""


class InvalidConfig(UsageError):
    """A mapping that is no config; `path` is the key at fault, `reason` what is wrong with it."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def parse_config(kind: type[Config], mapping: Mapping[str, Any]) -> Config:
    """Return `mapping` as the dataclass `kind`; unknown keys and wrong types are errors, and its checks must pass.

    Raises InvalidConfig for the first fault.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        text = json.dumps(mapping)
    except (TypeError, ValueError) as error:
        raise InvalidConfig((), f"is not a plain mapping: {error}") from None
    try:
        # JSON's strict mode takes a list for a tuple and an integer for a float, and guesses nothing else.
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = tuple(str(part) for part in fault["loc"])
        if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            raise InvalidConfig(path, "unknown key" + did_you_mean(path[-1], _fields_at(kind, path[:-1]))) from None
        if isinstance(cause := fault.get("ctx", {}).get("error"), RecurError | ValueError):
            key, _, rest = str(cause).partition(" ")  # a config's own checks name the key first
            if key in _fields_at(kind, path):
                raise InvalidConfig((*path, key), rest) from None
            raise InvalidConfig(path, str(cause)) from None
        if fault["type"] in ("missing", "missing_argument"):
            raise InvalidConfig(path, "is required") from None
        reason = fault["msg"].removeprefix("Input ")
        raise InvalidConfig(path, f"{escaped(repr(fault['input']))} {reason}") from None


def _fields_at(kind: Any, path: tuple[str, ...]) -> list[str]:
    """Names of the fields of the dataclass that `path` leads to, from `kind`."""
    for part in path:
        kind = {field.name: field.type for field in dataclasses.fields(kind)}.get(part)
        if not dataclasses.is_dataclass(kind):
            return []
    return [field.name for field in dataclasses.fields(kind)]
