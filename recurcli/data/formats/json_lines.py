"""Reads strict JSON lines: one object a line, no duplicate keys, no NaN or Infinity, no lone surrogates."""

import json
from typing import Any

from recurcli.data.formats.rows import NUL, Record, Row, decoded, kind_of
from recurcli.errors import escaped


class BadJson(Exception):
    """The reason why a line is not one JSON object."""


def json_record(line: int, row: Row) -> Record:
    """Return the object in `row`; without an object, a record with a fault and no fields."""
    text, fault = decoded(row)
    if fault is None and not text.strip():
        fault = "is blank"
    if fault is not None:
        return Record(line, {}, fault)
    try:
        return Record(line, json_object(text))
    except BadJson as reason:
        return Record(line, {}, str(reason))


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`; raises BadJson if the text is anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise BadJson("holds more than one JSON value") from None
        cut = " (it seems to be cut)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        way_out = "; write it with json.dumps, not str" if text.startswith("{'") else ""
        raise BadJson(f"is not JSON: {error.msg} at character {error.pos + 1}{cut}{way_out}") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except ValueError:
        raise BadJson("holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise BadJson(f"holds {kind_of(value)}, not an object")
    if "\\u" in text:
        _check_strings(value)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        keys = [key for key, _ in pairs]
        raise BadJson(f"has the key '{escaped(next(key for key in keys if keys.count(key) > 1))}' twice")
    return fields


def _no_number(word: str) -> float:
    raise BadJson(f"holds {word}, which is no number of JSON")


def _check_strings(value: Any) -> None:
    """Raise BadJson for escaped NULs and lone surrogates in strings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_strings(key)
            _check_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_strings(inner)
    elif isinstance(value, str):
        if NUL in value:
            raise BadJson("holds an escaped NUL")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise BadJson("holds a lone surrogate, half of a character")
