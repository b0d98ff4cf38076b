"""Counts the rows of a file that has no faults without reading them, and finds where they begin (`sound_rows`)."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.config import UTF8
from recurcli.data.readers import COST_OF_LINE, LINES_LIKE_ROWS, MAX_QUOTED, Place
from recurcli.data.rows import BOM, COMPRESSED
from recurcli.data.source import Source

BLOCK = 1 << 20
LF, CR, SPACE = b"\n\r "
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
    path, text, is_json = Path(source.path or ""), source.columns.text[0], source.format == "jsonl"
    mark, quote = (source.delimiter or "").encode(), (source.quote or "\0").encode()  # no row has a zero
    is_table = source.format in ("tsv", "csv") and len(mark) == len(quote) == 1 and mark != b" " and text.isdigit()
    if source.encoding != UTF8 or not (is_json or is_table) or path.suffix.lower() in COMPRESSED or not path.is_file():
        return None
    unread = [b"\0", *(f'"{key}"'.encode() for key in refused if is_json)]
    rows, line, rest, places = -int(source.header), 1, b"", dict[int, Place]()
    with path.open("rb") as file:
        head = file.read(BLOCK)
        if head.removeprefix(BOM).startswith(b"sep=") or (is_json and not _JSON_LINES.match(head)):
            return None
        start = file.seek(len(BOM) * head.startswith(BOM))
        while content := rest + ((block := file.read(BLOCK)) or b"\n" * bool(rest)):
            data = np.frombuffer(content, np.uint8)
            lines = np.flatnonzero(data == LF)
            quotes = np.flatnonzero(data == ord(quote)) if source.quote else lines[:0]
            ends = lines[np.searchsorted(quotes, lines) % 2 == 0]  # after an odd number of quotes it is in a field
            begins = np.append(0, ends + 1)
            size = int(begins[-1])
            whole, rest = content[:size], content[size:]
            try:
                whole.decode()
            except UnicodeDecodeError:
                return None
            if len(rest) > MAX_QUOTED or (rest and not block) or any(key in content for key in unread):
                return None
            if is_table and size and not _is_sound(whole, lines, quotes, begins, ord(mark), ord(quote), width, text):
                return None
            for row in range(max(-rows, -rows % every), len(ends), every):
                before = int(np.searchsorted(lines, begins[row]))
                places[rows + row] = Place(start + int(begins[row]), line + before)
            rows, line, start = rows + len(ends), line + int(np.searchsorted(lines, size)), start + size
    return (rows, places) if rows > 0 else None


def _is_sound(
    content: bytes, lines: Any, quotes: Any, begins: Any, mark: int, quote: int, width: int, text: str
) -> bool:
    """Return whether rows of `width` fields, with the text in field `text` from 1, have no fault and no doubt.

    `content` holds whole rows, which begin at `begins`; `lines` and `quotes` are the places of its line ends and quotes.
    """
    data, ends, quotes = np.frombuffer(content, np.uint8), begins[1:] - 1, quotes[quotes < len(content)]
    separators = np.flatnonzero(data == mark)
    separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
    before, after = data[quotes[::2] - 1], data[quotes[1::2] + 1]  # data[-1] is a line end
    returns = quotes[1::2][after == CR] + 2
    if not (np.isin(before, (mark, LF, quote)).all() and np.isin(after, (mark, LF, CR, quote)).all()):
        return False
    if (data[returns] != LF).any() or (np.diff(np.searchsorted(separators, ends), prepend=0) != width - 1).any():
        return False
    field = int(text)
    firsts = separators[field - 2 :: width - 1] + 1 if field > 1 else begins[:-1]
    lasts = separators[field - 1 :: width - 1] if field < width else ends
    shown = data[np.minimum(firsts + (data[firsts] == quote), len(data) - 1)]
    unsure = ~_IS_SHOWN[shown] | (shown == mark) | (shown == quote)
    for first, last in zip(firsts[unsure].tolist(), lasts[unsure].tolist(), strict=True):
        if not content[first:last].decode().replace(chr(quote), "").strip():
            return False
    later = np.diff(np.searchsorted(lines, ends), prepend=-1) - 1
    if (ends - begins[:-1] + COST_OF_LINE * later > MAX_QUOTED).any():
        return False
    many = np.flatnonzero(later > LINES_LIKE_ROWS) if width > 1 else ()
    of_many = (content[begins[row] : ends[row]].split(b"\n") for row in many)
    return not any(all(each.count(mark) == width - 1 for each in inside) for inside in of_many)
