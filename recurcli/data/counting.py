"""Counts the rows of a file that has no faults without reading them, and finds where they begin (`sound_rows`)."""

import codecs
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.config import UTF8
from recurcli.data.readers import COST_OF_LINE, LINES_LIKE_ROWS, MAX_QUOTED, Place
from recurcli.data.rows import BOM, COMPRESSED
from recurcli.data.source import Source

BLOCK = 1 << 20
NONE, LF, CR, SPACE = b"\0\n\r "
_JSON_LINES = re.compile(rb"\{[^\n]*\}\r?\n\{")
"""The start of JSON that is neither an array nor one document."""
_IS_SHOWN = np.ones(256, bool)
"""Whether no white space begins with a byte."""
_IS_SHOWN[[*range(SPACE + 1), *range(0x7F, 0xC3), 0xE1, 0xE2, 0xE3]] = False


def sound_rows(source: Source, width: int, every: int, refused: tuple[str, ...]) -> tuple[int, dict[int, Place]] | None:
    """Return the number of rows of a file after its header, and where each `every`-th row begins, by its number from 0.

    They are rows of UTF-8: of a TSV or CSV in which a reader finds no fault and no doubt, with `width` fields, or lines of JSON
    that have none of the `refused` keys. None: the rows are others, or all must be read to tell.
    """
    path, text = Path(source.path or ""), source.columns.text[0]
    if source.encoding != UTF8 or path.suffix.lower() in COMPRESSED or not path.is_file():
        return None
    check: Callable[[bytes, Any, Any], Any]
    if source.format == "jsonl":
        keys = [f'"{key}"'.encode() for key in refused]
        check = partial(_json_ends, keys=keys)
    elif source.format in ("tsv", "csv") and source.delimiter not in (None, " "):
        marks = (str(source.delimiter).encode(), (source.quote or "").encode())
        if any(len(mark) > 1 for mark in marks) or not text.isdigit():
            return None
        check = partial(_table_ends, marks=marks, width=width, text=int(text) - 1)
    else:
        return None
    decoder = codecs.getincrementaldecoder(UTF8)()
    rows, line, start, rest, places = -int(source.header), 1, 0, b"", dict[int, Place]()
    with path.open("rb") as file:
        while True:
            block = file.read(BLOCK)
            if not rows + source.header and not rest:
                if block.startswith(b"sep=") or (source.format == "jsonl" and not _JSON_LINES.match(block)):
                    return None
                start = len(BOM) * block.startswith(BOM)
                block = block[start:]
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                return None
            content = rest + (block or b"\n" * bool(rest))
            if not content:
                return (rows, places) if rows > 0 else None
            data = np.frombuffer(content, np.uint8)
            lines = np.flatnonzero(data == LF)
            ends = check(content, data, lines)
            if ends is None:
                return None
            begins = np.concatenate([[0], ends + 1])
            for row in range(-rows % every, len(ends), every):
                if rows + row >= 0:
                    before = int(np.searchsorted(lines, begins[row]))
                    places[rows + row] = Place(start + int(begins[row]), line + before)
            size = int(begins[-1])
            rows, line, start = rows + len(ends), line + int(np.searchsorted(lines, size)), start + size
            rest = content[size:]
            if len(rest) > MAX_QUOTED or (rest and not block):
                return None


def _json_ends(content: bytes, data: Any, lines: Any, *, keys: list[bytes]) -> Any:
    """Return where the rows of a block end, or None if one may have one of the `keys`."""
    return None if any(key in content for key in keys) else lines


def _table_ends(content: bytes, data: Any, lines: Any, *, marks: tuple[bytes, bytes], width: int, text: int) -> Any:
    """Return where the rows of a block that ends with a row or within one end, or None if one may have a fault or a doubt."""
    mark, quote = (each[0] if each else NONE for each in marks)
    ends, quotes = lines, np.flatnonzero(data == quote) if quote else lines[:0]
    if len(quotes):  # a line end after an odd number of them is in a field
        ends = lines[np.searchsorted(quotes, lines) % 2 == 0]
    if not len(ends) or b"\0" in content:
        return None if b"\0" in content else ends
    size = ends[-1] + 1
    data, quotes = data[:size], quotes[quotes < size]
    separators = np.flatnonzero(data == mark)
    if len(quotes):
        separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
        before, after = data[quotes[::2] - 1], data[quotes[1::2] + 1]  # data[-1] is a line end
        returns = quotes[1::2][after == CR] + 2
        if not (np.isin(before, (mark, LF, quote)).all() and np.isin(after, (mark, LF, CR, quote)).all()):
            return None
        if not (data[returns] == LF).all():
            return None
    if (np.diff(np.searchsorted(separators, ends), prepend=0) != width - 1).any():
        return None
    begins = np.concatenate([[0], ends[:-1] + 1])
    firsts = separators[text - 1 :: width - 1] + 1 if text else begins
    lasts = separators[text :: width - 1] if text < width - 1 else ends
    shown = data[np.minimum(firsts + (data[firsts] == quote), size - 1)]
    unsure = ~_IS_SHOWN[shown] | (shown == mark) | (shown == quote)
    for first, last in zip(firsts[unsure].tolist(), lasts[unsure].tolist(), strict=True):
        if not content[first:last].decode().replace(chr(quote), "").strip():
            return None
    if len(quotes):
        later = np.diff(np.searchsorted(lines, ends), prepend=-1) - 1
        if (ends - begins + COST_OF_LINE * later > MAX_QUOTED).any():
            return None
        for row in np.flatnonzero(later > LINES_LIKE_ROWS) if width > 1 else ():
            if all(each.count(marks[0]) == width - 1 for each in content[begins[row] : ends[row]].split(b"\n")):
                return None
    return ends
