"""Rows of a JSON-lines file: one object a line, and nothing that JSON itself does not know."""

import json
from typing import Any

from recurcli.data.formats.records import Record, kind_of
from recurcli.data.formats.rows import Row
from recurcli.data.formats.separated import NUL, decoded
from recurcli.errors import escaped


class _BadJson(Exception):
    """What json itself would let pass."""


def json_record(line: int, row: Row) -> Record:
    """The object in `row`; without fields and with a fault if it is none, is cut, or has a key twice."""
    text, fault = decoded(row)
    if fault is None and not text.strip():
        fault = "is blank"
    if fault is not None:
        return Record(line, {}, fault)
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
        if not isinstance(value, dict):
            raise _BadJson(f"holds {kind_of(value)}, not an object")
        if "\\u" in text:
            _check_strings(value)
    except _BadJson as error:
        return Record(line, {}, str(error))
    except json.JSONDecodeError as error:
        cut = " (it seems to be cut)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        return Record(line, {}, f"is not JSON: {error.msg} at character {error.pos + 1}{cut}")
    except RecursionError:
        return Record(line, {}, "is nested too deeply")
    except ValueError:
        return Record(line, {}, "holds a number with too many digits")
    return Record(line, value)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _BadJson(f"has the key '{escaped(next(key for key in keys if keys.count(key) > 1))}' twice")
    return found


def _no_number(word: str) -> float:
    raise _BadJson(f"holds {word}, which is no number of JSON")


def _check_strings(value: Any) -> None:
    """Refuse what only an escape can bring into a JSON string and no UTF-8 text holds: NUL and lone surrogates."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_strings(key)
            _check_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_strings(inner)
    elif isinstance(value, str):
        if NUL in value:
            raise _BadJson("holds an escaped NUL")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise _BadJson("holds a lone surrogate, half of a character")
