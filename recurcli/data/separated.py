"""Rows of a TSV or CSV file as lists of fields.

TSV: fields are what stands between TABs; no quoting. CSV: RFC 4180; a field that begins with a quote ends at the next
lone one, and may hold delimiters and line ends. A quote that is never closed costs its own line and no other: the rows
after it are read as they stand, where the usual libraries swallow them.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recurcli.data.rows import LONGEST_ROW, Row

NUL = "\0"
LONGEST_QUOTED = 500
"""Lines that one quoted field may span; one that goes on for longer was never closed."""


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


def tab_separated(rows: Iterable[Row], delimiter: str = "\t") -> Iterator[Fields]:
    """The fields of each row, whatever quotes it holds."""
    for line, row in enumerate(rows, 1):
        text, fault = decoded(row)
        yield Fields(line, text.split(delimiter), fault)


def comma_separated(rows: Iterable[Row], delimiter: str = ",") -> Iterator[Fields]:
    """The fields of each row, quoted ones without their quotes; a row may go on over several lines.

    A quoted field that spans lines must leave the row with as many fields as the file's first row has; else, as where
    the quote is never closed or text follows the closing one, the first line alone is a row with a fault.
    """
    lines = enumerate(rows, 1)
    waiting: deque[tuple[int, Row]] = deque()
    """Lines that were read in search of a closing quote that did not come."""
    width = None
    while (first := waiting.popleft() if waiting else next(lines, None)) is not None:
        line, row = first
        text, fault = decoded(row)
        if '"' not in text:
            values = text.split(delimiter)
        elif fault is None:
            taken: list[tuple[int, Row]] = []
            values, fault = _quoted(text, delimiter, _following(taken, waiting, lines))
            if taken and (fault is not None or (width is not None and len(values) != width)):
                fault = fault or "has a quote that is closed many lines later"
                values = text.split(delimiter)
                waiting.extendleft(reversed(taken))
        else:
            values = text.split(delimiter)
        width = width or len(values)
        yield Fields(line, values, fault)


def _following(
    taken: list[tuple[int, Row]], waiting: deque[tuple[int, Row]], lines: Iterator[tuple[int, Row]]
) -> Iterator[str | None]:
    """The lines after the current one, noted in `taken`; None in place of one that cannot belong to a field."""
    while len(taken) < LONGEST_QUOTED and (found := waiting.popleft() if waiting else next(lines, None)) is not None:
        taken.append(found)
        text, fault = decoded(found[1])
        yield None if fault else text


def _quoted(text: str, delimiter: str, following: Iterator[str | None]) -> tuple[list[str], str | None]:
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
