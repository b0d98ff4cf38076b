"""JSON in the forms that hold rows: lines, arrays, and documents of columns, of splits, or with the rows under a key.

Lines and arrays are streams (`read_json`); a document is one row for the reader of lines, and is read whole. The jobs of
annotation tools become plain rows (`plain_row`).
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.rows import MAX_ROW, Row, TextDecoder, decoded, first_repeated, kind_of, rows_in
from recurcli.errors import DataError, escaped

ROWS_KEYS = ("data", "rows")
"""Keys of a document under which its rows are found beside other lists."""
_NO_CELLS = {*ROWS_KEYS, "train", "test"}
"""Keys under which a list of objects or lists is no cell of a row."""
_ARRAY = re.compile(rb"\s*\[(?=\s*[\[{\]]|[ \t]*\r?\n)")
"""The start of an array of rows. A list that begins with a string or number in the same line is a row itself."""
_OVER_LINES = re.compile(rb"\s*\{(?:[^\n]*[{\[,:])?[ \t\r]*\n")
"""The start of an object whose first line shows that it goes on in the next one."""
_KEY = r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*'
_JQ = {
    r'\s*\{\s*("columns")\s*:\s*\[': ".columns as $c | .data[] | [$c, .] | transpose | map({(.[0]): .[1]}) | add",
    rf"{_KEY}\[\s*[\[{{]": ".[KEY][]",
    rf"{_KEY}[\[{{]": "(.[keys_unsorted[0]] | keys_unsorted[]) as $i | map_values(.[$i])",
    rf"{_KEY}": ".data[]",
}
"""The jq program that writes the rows of a document as lines, by what it begins with."""
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NOT_BETWEEN = re.compile(r"[^\s,]")
_LONGEST_WORD = 10
"""Characters of -Infinity and of the escape of a character, which may be cut where a piece of a stream ends, and one more."""


class BadJson(Exception):
    """The reason why a text is not JSON, or not what is expected."""


class Json(NamedTuple):
    """The content of a JSON file or stream: rows, or one document that holds lists of rows."""

    rows: Iterator[tuple[str, str | None]]
    """The text of each row, and its fault."""
    tables: Mapping[str, list[str]]
    """The rows of a document under each of its keys that has some, and under "" those that are read if no key is named."""
    fault: str | None
    """Why a document cannot be read."""


_KEPT: dict[object, Json] = {}
"""The last document of a file, since each split asks for it anew, by what tells that the file is the same."""


def read_json(chunks: Iterator[bytes], name: str, decoder: TextDecoder, path: Path | None) -> Json:
    """Return what the `text_chunks` of a file or stream (`path` None) hold.

    Nothing is read after a first line of a stream that is a row. The rows of an array raise DataError where it is not JSON.
    """
    key = path and (path, path.stat().st_mtime_ns, path.stat().st_size, decoder.encoding)
    if key in _KEPT:
        return _KEPT[key]
    head = next(chunks, b"")
    if start := _ARRAY.match(head):
        pieces = codecs.iterdecode(chain([head[start.end() :]], chunks), decoder.row_encoding, "surrogateescape")
        items = (text.encode(decoder.row_encoding, "surrogateescape") for text in items_in(pieces, name))
        return Json((decoded(Row(item, True, decoder)) for item in items), {}, None)
    is_over_lines = _OVER_LINES.match(head) is not None  # which are read as one
    chunks = (chunk.replace(b"\n", b" ") if is_over_lines else chunk for chunk in chain([head], chunks))
    rows = map(decoded, rows_in(chunks, decoder))
    if not head.lstrip().startswith(b"{"):
        return Json(rows, {}, None)
    taken = [*islice(rows, 1)]
    text, fault = taken[0]
    try:
        tables = tables_of(text) if text else {}
    except (BadJson, RecursionError) as reason:
        tables, fault = {"": [text]}, fault or str(reason)
    if tables.get("") == [text] and not is_over_lines and (path is None or fault):
        return Json(chain(taken, rows), {}, None)
    for row in rows:  # blank lines may follow a document
        taken.append(row)
        if row[0].strip() or row[1] or tables.get("") == [text]:
            return Json(chain(taken, rows), {}, None)
    document = Json(iter(()), tables, fault and fault + (decoder.hint if text else _as_lines(head)))
    if path is not None:
        _KEPT.clear()
        _KEPT[key] = document
    return document


def items_in(pieces: Iterator[str], name: str) -> Iterator[str]:
    """Yield the text of each item of a JSON array, whose "[" was taken, in the memory of a piece and an item.

    Raises DataError with the `name` where the text is not JSON.
    """
    scan = json.JSONDecoder(strict=False, parse_int=str).raw_decode  # a long number is a fault of its row alone
    text, wanted, row = "", 0, 1
    for piece in chain(pieces, [""]):  # "" is the end
        text += piece
        at = 0
        while (found := _NOT_BETWEEN.search(text, at)) and (len(text) >= wanted or not piece):
            at = found.start()
            if text[at] == "]":
                if any(map(str.strip, chain([text[at + 1 :]], pieces))):
                    raise DataError(f"{name}: holds more after its JSON array, which ends with row {row - 1}")
                return
            try:
                _, end = scan(text, at)
            except RecursionError:
                raise DataError(f"{name}: row {row} is nested too deeply") from None
            except json.JSONDecodeError as error:
                size, is_cut = len(text) - at, "Unterminated" in error.msg or error.pos > len(text) - _LONGEST_WORD
                if is_cut and size > MAX_ROW:
                    raise DataError(f"{name}: row {row} is longer than {MAX_ROW >> 20} MiB") from None
                if piece and is_cut:
                    wanted = min(2 * size, MAX_ROW + 1)
                    break
                raise DataError(f"{name}: row {row} {_reason(error, at, is_cut=is_cut)}") from None
            if piece and end == len(text):  # a number may go on
                break
            yield text[at:end]
            at, wanted, row = end, 0, row + 1
        text = text[at:].lstrip()
    raise DataError(f"{name}: its JSON array is not closed after row {row - 1}; it seems to be cut")


def _reason(error: json.JSONDecodeError, start: int = 0, *, is_cut: bool) -> str:
    """Return why a value that begins at `start` of a text is not JSON."""
    where = f"{error.msg.removesuffix(' starting at')} at character {error.pos - start + 1}"
    return f"is not JSON: {where}{' (it seems to be cut)' if is_cut else ''}"


def _as_lines(head: bytes) -> str:
    """Return how a document that begins with `head` is turned into lines."""
    start = head.decode(errors="replace")
    programs = (program.replace("KEY", key[1]) for begins, program in _JQ.items() if (key := re.match(begins, start)))
    return f"; if it holds the rows, turn it into lines: jq -c '{next(programs, '.')}'"


def tables_of(text: str) -> dict[str, list[str]]:
    """Return the `tables` of an object that is a file's only one. Raises BadJson if it is not JSON, or has a key twice.

    The object is a row if it holds a string, since lists of objects beside it are cells, such as spans. But those under "data",
    "rows", "train" or "test" are no cells, unless it has a string "text". Without a string, it is a row if it holds no rows.

    The rows of another object are those under "data" or "rows", those of its columns, two or more, or those under its only key
    that has some. If several keys have some, one must be named.
    """
    value = plain_row(_value(text, _WHOLE), Counter())
    tables = {key: rows for key, each in value.items() if (rows := _rows_of(each))}
    names, data = value.get("columns"), tables.get("data")
    if isinstance(names, list) and data and isinstance(data[0], list):  # pandas' orient="split"
        tables["data"] = [dict(zip(names, row, strict=False)) for row in data]
    if len(tables) < len(value) and len(columns := _rows_of(value)) > 1:
        tables[""] = columns
    texts = {key: [*map(json.dumps, rows)] for key, rows in tables.items()}
    strings = [key for key, each in value.items() if isinstance(each, str)]
    if "text" in strings or (strings and _NO_CELLS.isdisjoint(tables)) or not tables:
        return {**texts, "": [text]}
    main = [key for key in (*ROWS_KEYS, "") if key in texts] or [*texts] * (len(texts) == 1)
    return {**texts, "": texts[main[0]]} if main else texts


def _rows_of(value: Any) -> list[Any]:
    """Return the rows of a value that is a list of objects or lists, or a table: an object of columns, which are lists of one
    length or pandas' objects of row to cell, or pandas' object of row to cells. Return [] for any other value.
    """
    if not isinstance(value, dict):
        return value if isinstance(value, list) and all(isinstance(row, dict | list) for row in value) else []
    cells = [*value.values()]
    if all(isinstance(each, dict) and each.keys() == cells[0].keys() for each in cells):
        if all(map(str.isdecimal, value)):
            return cells
        cells = [[*each.values()] for each in cells]
    is_table = all(isinstance(each, list) and len(each) == len(cells[0]) for each in cells)
    return [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)] if is_table else []


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


def json_object(text: str, convert: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Return the JSON object in `text`, or what `convert` makes of its value. Raises BadJson if that is anything else."""
    value = _value(text, _ROW)
    if "\\u" in text:
        if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            raise BadJson("holds a lone surrogate, half of a character")
        if _ESCAPED_NUL.search(text):
            raise BadJson("holds an escaped NUL")
    value = convert(value)
    if not isinstance(value, dict):
        raise BadJson(f"holds {kind_of(value)}, not an object")
    return value


def _value(text: str, decoder: json.JSONDecoder) -> Any:
    """Return the JSON value in `text`. Raises BadJson if the text is anything else."""
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise BadJson("holds more than one JSON value; jq -c . writes each in a line") from None
        ways_out = {"{'": "; write it with json.dumps, not str", "\ufeff{": "; a BOM stands before it"}
        is_cut = error.pos >= len(text.rstrip()) or "Unterminated" in error.msg
        raise BadJson(f"{_reason(error, is_cut=is_cut)}{ways_out.get(text[:2], '')}") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except ValueError:
        raise BadJson("holds a number with too many digits") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object. Raises BadJson for a key that stands there twice."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadJson(f"has the key '{escaped(first_repeated(key for key, _ in pairs))}' twice")
    return fields


def _no_number(word: str) -> float:
    raise BadJson(f"holds {word}, which is not a JSON number")


_ROW = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_no_number)
_WHOLE = json.JSONDecoder(object_pairs_hook=_without_duplicates, strict=False)
"""That of documents, of which a NaN or a line end in a text costs a row alone."""
