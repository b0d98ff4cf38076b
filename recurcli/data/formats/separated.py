"""Splits rows of a TSV or CSV file into fields.

TSV: TABs separate fields; quotes have no meaning. CSV: RFC 4180; a field that begins with a quote ends at the next single
quote, and may hold delimiters and line ends. What a strict reader reads as one row of the header's width is one row, with a
doubt if its lines look like rows. What it cannot read, such as a quote that is never closed, makes its line a fault; the
lines after it are read as rows, where usual readers put them into one field (ours).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recurcli.data.formats.rows import Doubts, Row, decoded

MAX_QUOTED = 16 << 20
"""Most characters of the lines of one row; a quoted field that is longer counts as never closed."""
COST_OF_LINE = 64
"""Characters that a line counts in addition to its own, since each line that waits takes memory."""
LINES_LIKE_ROWS = 4
"""Most lines after the first of a row that may look like rows without a doubt."""


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


class Line(NamedTuple):
    """A line of a CSV file: its number from 1, its text without its end, why it cannot be used, and its end."""

    number: int
    text: str
    fault: str | None
    end: str


def comma_separated(rows: Iterable[Row], delimiter: str, doubts: Doubts) -> Iterator[Fields]:
    """Yield the fields of each row, quoted fields without their quotes; a row may span several lines.

    If a quote is never closed, or text follows the closing quote, the first line is a row with a fault and the lines after it
    are read as rows. So they are if a row of several lines has another number of fields than the first row, but each of its
    lines has that number: two stray quotes then enclose whole rows. Rows of lines that look like rows are counted in `doubts`.
    """
    lines = (Line(number, *decoded(row), row.end) for number, row in enumerate(rows, 1))
    waiting: deque[Line] = deque()
    """Lines that were read to find a closing quote and belong to no row yet."""
    width = None
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        values, fault = line.text.split(delimiter), line.fault
        if '"' in line.text:
            taken = [line]
            found, broken = _quoted(line, delimiter, _following(taken, waiting, lines), width)
            later = len(taken) - 1
            widths = {each.text.count(delimiter) + 1 for each in taken} if later and broken is None else set()
            if later and broken is None and width != len(found) and widths == {width}:
                closed = f"has a quote that is closed {later} {'line' if later == 1 else 'lines'} later"
                broken = f"{closed}, and the number of its fields is then {len(found)}, not {width}"
            if broken is None:
                values = found
                faults = ((at, bad) for at, _, bad, _ in taken[1:] if bad)
                fault = fault or next((f"continues in line {at}, which {bad}" for at, bad in faults), None)
                if later > LINES_LIKE_ROWS and widths == {len(values)} != {1}:
                    doubts.add(line.number, len(taken))
            else:
                fault = fault or broken
                waiting.extendleft(reversed(taken[1:]))
        width = width or len(values)
        yield Fields(line.number, values, fault)


def _following(taken: list[Line], waiting: deque[Line], lines: Iterator[Line]) -> Iterator[Line]:
    """Yield each line after those in `taken` that may belong to the same row, and append it to `taken`."""
    size = 0
    while size <= MAX_QUOTED:
        line = waiting.popleft() if waiting else next(lines, None)
        if line is None:
            return
        taken.append(line)
        size += len(line.text) + COST_OF_LINE
        yield line


def _quoted(line: Line, delimiter: str, following: Iterator[Line], width: int | None) -> tuple[list[str], str | None]:
    """Return the fields of a row that begins with `line`, and its fault; takes more lines if a field needs them.

    A field beyond the first `width` takes no more lines, so that the work grows with the lines wherever they open quotes.
    """
    values: list[str] = []
    text, start = line.text, 0
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
                pieces.append(text[start:] + line.end)
                if width is not None and len(values) >= width:
                    return values, f"has a quote that opens field {len(values) + 1}, but rows have {width}"
                more = next(following, None)
                if more is None:
                    return values, f"has a quote at character {opened + 1} that is never closed"
                line, text, start = more, more.text, 0
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
