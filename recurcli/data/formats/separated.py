"""Rows of a TSV or CSV file as lists of fields.

TSV: fields are what stands between TABs; no quoting. CSV: RFC 4180; a field that begins with a quote ends at the next
lone one, and may hold delimiters and line ends. A quote that is never closed costs its own line and no other: the rows
after it are read as they stand, where the usual libraries swallow them. So does one that a stray quote far below closes.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recurcli.data.formats.rows import LONGEST_ROW, Row

NUL = "\0"
LONGEST_QUOTED = 500
"""Lines that one quoted field may span; one that goes on for longer was never closed."""
LINES_LIKE_ROWS = 4
"""Lines after the first that a quoted field may span though each of them has the right number of fields."""


class Fields(NamedTuple):
    """One row: the number of its first line, its fields as far as they could be read, and why it cannot be used."""

    line: int
    values: list[str]
    fault: str | None = None


def decoded(row: Row) -> tuple[str, str | None]:
    """The row as text, and its fault if the bytes are not all text (then undecodable ones are U+FFFD)."""
    if not row.whole:
        return "", f"is longer than {LONGEST_ROW >> 20} MiB"
    try:
        text = row.content.decode()
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 at byte {error.start + 1} (0x{row.content[error.start]:02x})"
        return row.content.decode(errors="replace"), fault
    return text, f"holds a NUL at character {text.index(NUL) + 1}" if NUL in text else None


def tab_separated(rows: Iterable[Row], delimiter: str) -> Iterator[Fields]:
    """The fields of each row, whatever quotes it holds."""
    for line, row in enumerate(rows, 1):
        text, fault = decoded(row)
        yield Fields(line, text.split(delimiter), fault)


def comma_separated(rows: Iterable[Row], delimiter: str) -> Iterator[Fields]:
    """The fields of each row, quoted ones without their quotes; a row may go on over several lines.

    Where a quote is never closed, where text follows the closing one, and where the lines up to the closing one are
    rather rows of their own, the first line alone is a row with a fault, and the lines after it are read as they stand.
    """
    lines = enumerate(rows, 1)
    waiting: deque[tuple[int, Row]] = deque()
    """Lines that were read in search of a closing quote and belong to no row yet."""
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
                    (f"goes on in line {at}, which {bad}" for (at, _), (_, bad) in faults if bad), None
                )
            else:
                fault = fault or broken
                waiting.extendleft(reversed(taken))
        width = width or len(values)
        yield Fields(line, values, fault)


def _swallowed(texts: list[str], delimiter: str, fields: int, width: int | None) -> str | None:
    """Why the lines `texts`, which quotes make one row of so many `fields`, are rather rows of their own, if they are."""
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
    """The lines after the current one that may belong to its last field, noted in `taken`."""
    size = 0
    while len(taken) < LONGEST_QUOTED and size <= LONGEST_ROW:
        found = waiting.popleft() if waiting else next(lines, None)
        if found is None:
            return
        taken.append(found)
        size += len(found[1].content)
        if not found[1].whole:
            return
        yield decoded(found[1])[0]


def _quoted(text: str, delimiter: str, following: Iterator[str]) -> tuple[list[str], str | None]:
    """The fields of a row that begins with the line `text`, and a fault; more lines are taken where a field needs them."""
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
