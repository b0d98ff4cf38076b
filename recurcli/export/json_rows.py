"""The rows of a file that has one JSON object a line, and what is wrong with its bytes and lines."""

import codecs
import io
import json
from typing import Any, NamedTuple

from recurcli.errors import escaped
from recurcli.findings import Findings


class Row(NamedTuple):
    """A line that is not blank; `fields` is None where it is not one JSON object."""

    line: int
    fields: dict[str, Any] | None


def read_rows(data: bytes, found: Findings) -> list[Row]:
    """The rows of a file, up to the first that makes the rest unreadable; faults go to `found`."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        found.add("error", "utf-16", "is UTF-16; save it as UTF-8 without a byte-order mark")
        return []
    if data.startswith(codecs.BOM_UTF8):
        found.add("error", "mark", "begins with a byte-order mark; save it as UTF-8 without one", line=1)
        data = data.removeprefix(codecs.BOM_UTF8)
    if data.lstrip()[:1] == b"[":
        found.add("error", "array", "is one JSON array; write each of its objects on a line of its own, without commas")
        return []
    if data and not data.endswith(b"\n"):
        found.add("warning", "end", "the last line has no newline at its end")
    rows = []
    for line, content in enumerate(io.BytesIO(data), start=1):
        if content.endswith(b"\r\n"):
            found.add(
                "error", "crlf", "ends in CR LF; CLUE's files end their lines in LF (dos2unix mends it)", line=line
            )
        if not content.strip():
            found.add("error", "blank", "is blank; remove it, as CLUE pairs lines by their order", line=line)
            continue
        fields, fault = _parse(content)
        if fault:
            found.add("error", "form", fault, line=line)
        rows.append(Row(line, fields))
    return rows


class _RepeatedKeyError(Exception):
    """A JSON object that has a key twice."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in fields if keys.count(key) > 1))
    return fields


def _parse(content: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object of a line and "", or None and why the line is not one JSON object."""
    try:
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        return None, "is not UTF-8; save the file as UTF-8"
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except _RepeatedKeyError as error:
        return None, f"has the key '{escaped(error)}' twice"
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None, f"holds more than one JSON value: {escaped(text, limit=60)}"
        way_out = "; write it with json.dumps, not str" if text.startswith("{'") else ""
        return None, f"is not a JSON object: {escaped(text, limit=60)}{way_out}"
    except (ValueError, RecursionError):
        return None, f"is not a JSON object that can be read: {escaped(text, limit=60)}"
    if not isinstance(value, dict):
        return None, f"is not a JSON object: {escaped(text, limit=60)}"
    return value, ""
