"""JSON in the forms that hold rows: values that follow each other, arrays, and documents of columns, of splits, or with the
rows under a key.

Arrays and values that follow each other are streams (`values_in`); a document is read whole. The jobs of annotation tools
become plain rows (`plain_row`).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from recurcli.data.rows import first_repeated, kind_of
from recurcli.errors import DataError, escaped

MAX_VALUE = 100_000_000
"""Most characters of a JSON value: a document that is read whole, or a row of an array."""
ROWS_KEYS = ("data", "rows")
"""Keys of a document under which its rows are found beside other lists."""
_KEY = r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*'
_JQ = {
    r'\s*\{\s*("columns")\s*:\s*\[': ".columns as $c | .data[] | [$c, .] | transpose | map({(.[0]): .[1]}) | add",
    rf"{_KEY}\[\s*[\[{{]": ".[KEY][]",
    rf"{_KEY}[\[{{]": "(.[keys_unsorted[0]] | keys_unsorted[]) as $i | map_values(.[$i])",
    rf"{_KEY}": ".data[]",
}
"""The jq program that writes the rows of a document as lines, by what it begins with."""
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_BETWEEN = re.compile(r"[\s,]*")
_LONGEST_WORD = 10
"""Characters of -Infinity and of the escape of a character, which may be cut where a piece of a stream ends, and one more."""


class BadJson(Exception):
    """The reason why a text is not JSON, or not what is expected."""


class SeveralParts(DataError):
    """A document holds several lists of rows, the `parts`, and none is named."""

    def __init__(self, name: str, parts: tuple[str, ...]) -> None:
        shown = ", ".join(map(escaped, parts))
        super().__init__(f"{name}: holds lists of rows under {shown}; FILE#{escaped(parts[0])} names one")
        self.parts = parts


def values_in(pieces: Iterator[str], name: str, *, is_array: bool) -> Iterator[str]:
    """Yield the text of each JSON value that the `pieces` hold, values that follow each other or the items of an array.

    The "[" of an array was taken. The memory is that of a piece and a value, of MAX_VALUE characters at most. Raises DataError
    with the `name` where the text is not JSON.
    """
    scan = json.JSONDecoder(strict=False, parse_int=str).raw_decode  # a long number is a fault of its row alone
    text, wanted, row = "", 0, 1
    for piece in chain(pieces, [""]):  # "" is the end
        text += piece  # in place, so that a document of many pieces is not copied for each
        at = 0
        while len(text) >= wanted or not piece:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if is_array and text.startswith("]", at):
                if any(map(str.strip, chain([text[at + 1 :]], pieces))):
                    raise DataError(f"{name}: holds more after its JSON array, which ends with row {row - 1}")
                return
            if at == len(text):
                break
            try:
                _, end = scan(text, at)
            except RecursionError:
                raise DataError(f"{name}: row {row} is nested too deeply") from None
            except json.JSONDecodeError as error:
                size, is_cut = len(text) - at, "Unterminated" in error.msg or error.pos > len(text) - _LONGEST_WORD
                if is_cut and size > MAX_VALUE:
                    raise DataError(_too_long(text, f"{name}: row {row}", is_alone=row == 1 and not is_array)) from None
                if piece and is_cut:
                    wanted = min(2 * size, MAX_VALUE + 1)
                    break
                where = f"{error.msg.removesuffix(' starting at')} at character {error.pos - at + 1}"
                cut = " (it seems to be cut)" if is_cut else ""
                raise DataError(f"{name}: row {row} is not JSON: {where}{cut}") from None
            if piece and end == len(text):  # a number may go on
                break
            yield text[at:end]
            at, wanted, row = end, 0, row + 1
        text = text[at:]
    if is_array:
        raise DataError(f"{name}: its JSON array is not closed after row {row - 1}; it seems to be cut")


def _too_long(text: str, place: str, *, is_alone: bool) -> str:
    """Return why a value is not read, and for one that may be a document the command that turns it into lines."""
    found = ((re.match(start, text), program) for start, program in _JQ.items() if is_alone)
    way_out = next((program.replace("KEY", key[1]) for key, program in found if key), None)
    what = f"{place} has more than {MAX_VALUE // 1_000_000} MB"
    return what if way_out is None else f"{what}; if it holds the rows, turn it into lines: jq -c '{way_out}'"


def tables_of(text: str, name: str) -> dict[str | None, Iterable[Any]]:
    """Return the rows, objects or lists, that a JSON document holds, with the key None, and those under each of its keys that
    has some, such as the splits. None is not among the keys if it cannot be told which are the rows. A row has {}.

    Raises DataError with the `name` for a key that stands there twice.
    """
    try:
        value = json.loads(text, strict=False, object_pairs_hook=_without_duplicates)
    except (BadJson, ValueError) as reason:
        raise DataError(f"{name}: {reason}") from None
    rows, tables = _table_in(value), _tables_in(value)
    if rows is not None:
        return {None: rows, **tables}
    return tables if len(tables) > 1 else {}


def _tables_in(value: Any) -> dict[str | None, Iterable[Any]]:
    """Return the keys of an object under which there are rows, with these. An object with a text is a row and has none."""
    is_row = not isinstance(value, dict) or isinstance(plain_row(value, Counter()).get("text"), str)
    items = () if is_row else value.items()
    return {key: rows for key, each in items if (rows := _table_in(each)) is not None}


def _table_in(value: Any) -> Iterable[Any] | None:
    """Return the rows that a value holds: a list of them, those under its only such key or one of ROWS_KEYS, its columns'
    (lists, or pandas' objects with a key for each row), or pandas' rows by index. None: it has none.
    """
    if isinstance(value, list):
        return value if value and all(isinstance(row, dict | list) for row in value) else None
    if not isinstance(value, dict) or not value:
        return None
    tables, cells = _tables_in(value), [*value.values()]
    if isinstance(columns := value.get("columns"), list) and "data" in tables:  # pandas' orient="split"
        return (dict(zip(columns, row, strict=False)) for row in tables["data"])
    for key in filter(tables.__contains__, ROWS_KEYS):
        return tables[key]
    if len(tables) < len(cells) and all(isinstance(each, list) and len(each) == len(cells[0]) for each in cells):
        return (dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True))
    if len(tables) < len(cells) and all(isinstance(each, dict) and each.keys() == cells[0].keys() for each in cells):
        keys = [*cells[0]]
        if all(map(str.isdecimal, value)) or (len(value) > len(keys) and not all(map(str.isdecimal, keys))):
            return cells
        return ({column: each[key] for column, each in value.items()} for key in keys)
    return next(iter(tables.values())) if len(tables) == 1 else None


def plain_row(value: Any, counts: Counter[str]) -> Any:
    """Return a row in plain columns: a list under "1", "2", …, a text with spaCy's `cats`, and a task of Label Studio with the
    choices of its first annotation as `label`, null without one. Another value is returned as it is. `counts` gets what a user
    must know of some rows.
    """
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[1], dict) and "cats" in value[1]:
            return {"text": value[0], **value[1]}
        return {str(number): cell for number, cell in enumerate(value, 1)}
    if not isinstance(value, dict):
        return value
    data, annotations = value.get("data"), value.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return value
    texts = [key for key, cell in data.items() if isinstance(cell, str)]
    names = {texts[0]: "text"} if len(texts) == 1 else {}
    try:
        given = [each["result"] for each in annotations if not each.get("was_cancelled")]
        choices = [choice for each in given[:1] for result in each for choice in result["value"].get("choices", ())]
    except (TypeError, LookupError, AttributeError):
        return value
    counts["with several annotations have the label of the first"] += len(given) > 1
    row = {"id": value["id"]} if "id" in value else {}
    return {**row, **{names.get(key, key): cell for key, cell in data.items()}, "label": choices if given else None}


def json_row(text: str, counts: Counter[str]) -> dict[str, Any]:
    """Return the row in `text`, an object or a list, as `plain_row` has it. Raises BadJson if the text is anything else."""
    row = plain_row(json_value(text), counts)
    if not isinstance(row, dict):
        raise BadJson(f"holds {kind_of(row)}, not an object")
    return row


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Raises BadJson if the text is anything else."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise BadJson(f"holds {kind_of(value)}, not an object")
    return value


def json_value(text: str) -> Any:
    """Return the JSON value in `text`. Raises BadJson if the text is anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadJson("holds a lone surrogate, half of a character") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise BadJson("holds more than one JSON value") from None
        cut = " (it seems to be cut)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        way_out = "; write it with json.dumps, not str" if text.startswith("{'") else ""
        raise BadJson(
            f"is not JSON: {error.msg.removesuffix(' starting at')} at character {error.pos + 1}{cut}{way_out}"
        ) from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except ValueError:
        raise BadJson("holds a number with too many digits") from None
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        raise BadJson("holds an escaped NUL")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object. Raises BadJson for a key that stands there twice."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadJson(f"has the key '{escaped(first_repeated(key for key, _ in pairs))}' twice")
    return fields


def _no_number(word: str) -> float:
    raise BadJson(f"holds {word}, which is not a JSON number")
