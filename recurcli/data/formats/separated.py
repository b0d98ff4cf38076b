"""Splits rows of a TSV or CSV file into fields.

TSV: TABs separate fields; quotes have no meaning. CSV: RFC 4180; a field that begins with a quote ends at the next single
quote, and may hold delimiters and line ends. A quote that is never closed, or only by a stray quote far below, makes its
line a fault; the lines after it are read as rows, where usual readers put them into one field (ours).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recurcli.data.formats.rows import LONGEST_ROW, Row, decoded

LONGEST_QUOTED = 500
"""Most lines of one quoted field; a longer field counts as never closed."""
LINES_LIKE_ROWS = 4
"""Most lines after the first of a quoted field if each line has the right number of fields."""


def escapes_of(delimiter: str) -> dict[int, str]:
    """Return a table for `str.translate` that escapes line ends and the delimiter: \\n, \\r, \\t, or \\x3b for a semicolon."""
    return str.maketrans(
        {"\n": "\\n", "\r": "\\r", delimiter: "\\t" if delimiter == "\t" else f"\\x{ord(delimiter):02x}"}
    )


class Fields(NamedTuple):
    """One row: the number of its first line, the fields that could be read, and the reason why it cannot be used."""

    line: int
    values: list[str]
    fault: str | None = None


def tab_separated(rows: Iterable[Row], delimiter: str) -> Iterator[Fields]:
    """Yield the fields of each row; quotes have no meaning."""
    for line, row in enumerate(rows, 1):
        text, fault = decoded(row)
        yield Fields(line, text.split(delimiter), fault)


def comma_separated(rows: Iterable[Row], delimiter: str) -> Iterator[Fields]:
    """Yield the fields of each row, quoted fields without their quotes; a row may span several lines.

    If a quote is never closed, text follows the closing quote, or the quoted lines look like rows, the first line is a row
    with a fault and the lines after it are read as rows.
    """
    lines = enumerate(rows, 1)
    waiting: deque[tuple[int, Row]] = deque()
    """Lines that were read to find a closing quote and belong to no row yet."""
    width = None
    while (first := waiting.popleft() if waiting else next(lines, None)) is not None:
        line, row = first
        text, fault = decoded(row)
        values = text.split(delimiter)
        if '"' in text:
            taken: list[tuple[int, Row]] = []
            found, broken = _quoted(text, delimiter, _following(taken, waiting, lines))
            more = [decoded(row) for _, row in taken]
            broken = broken or _swallowed([text, *(text for text, _ in more)], delimiter, len(found), width)
            if broken is None:
                values = found
                faults = zip(taken, more, strict=True)
                fault = fault or next(
                    (f"continues in line {at}, which {bad}" for (at, _), (_, bad) in faults if bad), None
                )
            else:
                fault = fault or broken
                waiting.extendleft(reversed(taken))
        width = width or len(values)
        yield Fields(line, values, fault)


def _swallowed(texts: list[str], delimiter: str, fields: int, width: int | None) -> str | None:
    """Return why the lines `texts`, one row of `fields` fields by their quotes, are several rows; None if they are one."""
    later = len(texts) - 1
    if later == 0:
        return None
    closed = f"has a quote that is closed {later} {'line' if later == 1 else 'lines'} later"
    if width is not None and fields != width:
        return f"{closed}, and the number of its fields is then {fields}, not {width}"
    counts = {text.count(delimiter) + 1 for text in texts}
    if later > LINES_LIKE_ROWS and counts == {width or fields} and fields > 1:
        return f"{closed}, and each of these lines looks like a row"
    return None


def _following(
    taken: list[tuple[int, Row]], waiting: deque[tuple[int, Row]], lines: Iterator[tuple[int, Row]]
) -> Iterator[str]:
    """Yield the lines after the current one that may belong to its last field, and append them to `taken`."""
    size = 0
    while len(taken) < LONGEST_QUOTED and size <= LONGEST_ROW:
        line = waiting.popleft() if waiting else next(lines, None)
        if line is None:
            return
        taken.append(line)
        size += len(line[1].content)
        if not line[1].whole:
            return
        yield decoded(line[1])[0]


def _quoted(text: str, delimiter: str, following: Iterator[str]) -> tuple[list[str], str | None]:
    """Return the fields of a row that begins with the line `text`, and its fault; takes more lines if a field needs them."""
    values: list[str] = []
    start = 0
    while True:
        if not text.startswith('"', start):
            end = text.find(delimiter, start)
            values.append(text[start:] if end < 0 else text[start:end])
            if end < 0:
                return values, None
            start = end + 1
            continue
        pieces: list[str] = []
        opened, start = start, start + 1
        while True:
            end = text.find('"', start)
            if end < 0:  # the field goes on in the next line
                pieces.append(text[start:] + "\n")
                more = next(following, None)
                if more is None:
                    return values, f"has a quote at character {opened + 1} that is never closed"
                text, start = more, 0
            elif text.startswith('""', end):
                pieces.append(text[start : end + 1])
                start = end + 2
            else:
                pieces.append(text[start:end])
                break
        values.append("".join(pieces))
        if end + 1 == len(text):
            return values, None
        if not text.startswith(delimiter, end + 1):
            return values, f"has text after a closing quote: {text[end : end + 12]!r}"
        start = end + 2
