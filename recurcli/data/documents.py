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
from typing import Any, NamedTuple

from recurcli.data.rows import first_repeated, kind_of
from recurcli.errors import DataError, escaped

MAX_VALUE = 100_000_000
"""Most characters of a JSON value: a document that is read whole, or a row of an array."""
ROWS_KEYS = ("data", "rows")
"""Keys of a document under which its rows are found beside other lists."""
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_BETWEEN = re.compile(r"[\s,]*")
_START = re.compile(r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*(\[\s*[\[{]|[\[{]|)')
_LONGEST_WORD = 10
"""Characters of -Infinity and of the escape of a character, which may be cut where a piece of a stream ends, and one more."""


class BadJson(Exception):
    """The reason why a text is not JSON, or not what is expected."""


class SeveralParts(DataError):
    """A document holds several lists of rows, the `parts`, and none is named."""

    def __init__(self, message: str, parts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.parts = parts


def values_in(pieces: Iterator[str], *, is_array: bool) -> Iterator[str]:
    """Yield the text of each JSON value that the `pieces` hold, values that follow each other or the items of an array.

    The "[" of an array was taken. The memory is that of a piece and a value, of MAX_VALUE characters at most. Raises BadJson
    where the text is not JSON.
    """
    scan = json.JSONDecoder(strict=False).raw_decode
    text, wanted, row = "", 0, 1
    for piece in chain(pieces, [""]):  # "" is the end
        text, at = text + piece, 0
        while len(text) >= wanted or not piece:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if is_array and text.startswith("]", at):
                if any(map(str.strip, chain([text[at + 1 :]], pieces))):
                    raise BadJson(f"holds more after its JSON array, which ends with row {row - 1}")
                return
            if at == len(text):
                break
            try:
                _, end = scan(text, at)
            except RecursionError:
                raise BadJson(f"row {row} is nested too deeply") from None
            except json.JSONDecodeError as error:
                size, is_cut = len(text) - at, "Unterminated" in error.msg or error.pos > len(text) - _LONGEST_WORD
                if is_cut and size > MAX_VALUE:
                    raise BadJson(_too_long(text, row, is_array=is_array)) from None
                if piece and is_cut:
                    wanted = min(2 * size, MAX_VALUE + 1)
                    break
                cut = " (it seems to be cut)" if is_cut else ""
                reason = error.msg.removesuffix(" starting at")
                raise BadJson(f"row {row} is not JSON: {reason} at character {error.pos - at + 1}{cut}") from None
            if piece and end == len(text):  # a number may go on
                break
            yield text[at:end]
            at, wanted, row = end, 0, row + 1
        text = text[at:]
    if is_array:
        raise BadJson(f"its JSON array is not closed after row {row - 1}; it seems to be cut")


def _too_long(text: str, row: int, *, is_array: bool) -> str:
    """Return why a value is not read, with the command that turns a document like this into lines."""
    start = None if is_array or row > 1 else _START.match(text)
    if start is None:
        return f"row {row} is longer than {MAX_VALUE // 1_000_000} MB"
    key, opening = start[1], "".join(start[2].split())
    program = (
        f".[{key}][]" if len(opening) == 2 else "(.[keys_unsorted[0]] | keys_unsorted[]) as $i | map_values(.[$i])"
    )
    if not opening:
        program = ".data[]"
    elif key == '"columns"':  # pandas' orient="split"
        program = ".columns as $c | .data[] | [$c, .] | transpose | map({(.[0]): .[1]}) | add"
    way_out = f"turn it into lines, and name them .jsonl: jq -c '{program}'"
    return f"is one JSON document of more than {MAX_VALUE // 1_000_000} MB, which would be read whole; {way_out}"


class Document(NamedTuple):
    """A JSON value that may hold the rows of a file."""

    rows: Iterable[Any] | None
    """The rows, objects or lists. None: it is a row itself, or has several `parts`."""
    parts: dict[str, Iterable[Any]]
    """The rows under each key that holds some, for example each split."""

    @property
    def holds_rows(self) -> bool:
        """Whether it is not a row itself."""
        return self.rows is not None or bool(self.parts)

    def rows_of(self, part: str | None, name: str) -> Iterable[Any]:
        """Return the rows of a `part` of the document `name`, or all. Raises DataError for a part that is not there, and
        SeveralParts if none is named but there are several.
        """
        shown = ", ".join(map(escaped, self.parts))
        if part is not None:
            if part not in self.parts:
                raise DataError(f"{name}: holds no rows under '{escaped(part)}'; it has {shown or 'no lists of rows'}")
            return self.parts[part]
        if self.rows is None:
            way_out = f"FILE#{escaped(next(iter(self.parts)))} names one"
            raise SeveralParts(f"{name}: holds several lists of rows ({shown}); {way_out}", (*self.parts,))
        return self.rows


def read_document(text: str) -> Document:
    """Return what a JSON value holds. Raises BadJson for a key that stands there twice."""
    try:
        value = json.loads(text, strict=False, object_pairs_hook=_without_duplicates)
    except ValueError:
        raise BadJson("holds a number with too many digits") from None
    rows, tables = _table_in(value), _tables_in(value)
    return Document(rows, tables if rows is not None or len(tables) > 1 else {})


def _tables_in(value: Any) -> dict[str, Iterable[Any]]:
    """Return the keys of an object under which there are rows, with these."""
    items = value.items() if isinstance(value, dict) else ()
    return {key: rows for key, each in items if (rows := _table_in(each)) is not None}


def _table_in(value: Any) -> Iterable[Any] | None:
    """Return the rows that a value holds: a list of them, those under its only such key or one of ROWS_KEYS, its columns'
    (lists, or pandas' objects with a key for each row), or pandas' rows by index. None: it has none.

    An object with a text is a row, whatever else it has.
    """
    if isinstance(value, list):
        return value if value and all(isinstance(row, dict | list) for row in value) else None
    if not isinstance(value, dict) or isinstance(plain_row(value, Counter()).get("text"), str):
        return None
    columns, tables, cells = value.get("columns"), _tables_in(value), [*value.values()]
    if isinstance(columns, list) and "data" in tables:  # pandas' orient="split"
        return (dict(zip(columns, row, strict=False)) for row in tables["data"])
    for key in ROWS_KEYS:
        if key in tables:
            return tables[key]
    if len(tables) < len(cells):
        if all(isinstance(each, list) for each in cells) and len({*map(len, cells)}) == 1:
            return (dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True))
        if all(isinstance(each, dict) and each.keys() == cells[0].keys() for each in cells) and cells[0]:
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
    if _ESCAPED_NUL.search(text):
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
