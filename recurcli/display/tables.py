"""Tables: their content, and their forms on a terminal, in Markdown, LaTeX and CSV. A macro of parts.html is that in HTML."""

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from recurcli.errors import StorageError, escaped
from recurcli.files import finite

UNLIMITED = 100_000
"""Width in characters of output to a pipe, and of a file: no value is cut."""


class Styled(NamedTuple):
    """The text of a cell with a style of rich, which only a terminal shows."""

    text: str
    style: str


Cell = str | Styled
_NUMBER = re.compile(r"[-+<]?\d|[–·]?$")


@dataclass(frozen=True)
class Table:
    """A table as every output shows it. Its texts are not escaped: the forms below do that."""

    columns: Sequence[str]
    """The headers."""
    rows: Sequence[Sequence[Cell]]
    """Each row has a cell for each column. Cells at the end may be missing."""
    notes: Sequence[str] = ()
    """Sentences below the table."""

    @property
    def texts(self) -> list[list[str]]:
        """The rows without styles."""
        return [[cell.text if isinstance(cell, Styled) else cell for cell in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are flush right: a column with a header, but the first."""
        return [
            place > 0 and header != "" and all(_NUMBER.match(row[place]) for row in self.texts if place < len(row))
            for place, header in enumerate(self.columns)
        ]


def listing(rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table of names and values without headers."""
    return Table(["", ""], list(rows))


def by_columns(columns: Mapping[str, Sequence[Cell]], notes: Sequence[str] = ()) -> Table:
    """Return a table of columns by their headers. A column with fewer cells than others ends in dashes."""
    return Table(list(columns), list(zip_longest(*columns.values(), fillvalue="–")), notes)


def percent(share: float, sign: str = "") -> str:
    """Return a share, such as an accuracy, in per cent with one decimal; `sign` is "+" for a difference."""
    return f"{100 * share:{sign}.1f}"


def percent_interval(limits: Sequence[float], sign: str = "") -> str:
    """Return the two ends of an interval of shares in per cent: 90.0–96.2, or -1.2 – +3.4."""
    return (" – " if sign else "–").join(percent(limit, sign) for limit in limits)


def styled(row: Iterable[str], style: str) -> list[Cell]:
    """Return the row with all its cells in one style."""
    return [Styled(text, style) for text in row]


def print_json(value: Any) -> None:
    """One JSON object on stdout, with null for a number that is NaN or infinite. All output of --json goes through here."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    write(json.dumps(finite(value), ensure_ascii=not unicode, indent=2, allow_nan=False))


def write(text: str) -> None:
    """Print `text` on stdout; StorageError where there is no room for it."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"standard output: cannot be written: {error.strerror}") from None


def console() -> Console:
    """Return a rich Console for stdout: as wide as the terminal or, in a pipe, as its widest line."""
    terminal = sys.stdout.isatty()
    return Console(
        file=io.StringIO(),
        highlight=False,
        force_terminal=terminal or None,
        width=None if terminal else UNLIMITED,
    )


def show(*parts: RenderableType | Table) -> None:
    """Print `parts` without blanks at the ends of lines, and with one empty line between them at most."""
    screen = console()
    with screen.capture() as printed:
        for part in parts:
            if isinstance(part, Table):
                screen.print("", to_rich(part), "", *(cell(note, style="dim") for note in part.notes), sep="\n")
            else:
                screen.print(part)
    lines = [line.rstrip() for line in printed.get().removesuffix("\n").split("\n")]
    write("\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before))


def fits(table: Table) -> bool:
    """Whether no line of the table is broken on the terminal."""
    screen = console()
    needed = screen.measure(to_rich(table), options=screen.options.update_width(UNLIMITED))
    return needed.maximum <= screen.width


def to_rich(table: Table) -> RichTable:
    """Return the table for a terminal. Control characters and markup in its texts are escaped.

    Where the terminal is too narrow, rich breaks the widest columns first, and loses nothing.
    """
    made = RichTable(
        box=box.SIMPLE_HEAD,
        show_header=any(table.columns),
        header_style="dim",
        collapse_padding=True,
    )
    for header, is_number in zip(table.columns, table.numeric, strict=True):
        made.add_column(cell(header), justify="right" if is_number else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*(cell(*each) if isinstance(each, Styled) else cell(each) for each in row))
    return made


def cell(text: object, style: str = "") -> Text:
    """Text of others, safe for a terminal."""
    return Text(escaped(text, limit=1000), style=style, overflow="fold")


def heading(*words: str) -> Text:
    """The line above a table."""
    return Text("  ").join([cell(words[0], style="bold"), *(cell(word, style="dim") for word in words[1:])])


def _text_rows(table: Table) -> list[list[str]]:
    """Return the header and the rows, with control characters escaped."""
    rows = [table.columns, *table.texts]
    return [[escaped(text, limit=UNLIMITED) for text in row] for row in rows]


def to_markdown(table: Table) -> list[str]:
    """Return the lines of the table in Markdown."""
    rows = [[re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text) for text in row] for row in _text_rows(table)]
    head, *lines = ("| " + " | ".join(row) + " |" for row in rows)
    rule = "|" + "".join("---:|" if is_number else "---|" for is_number in table.numeric)
    return [head, rule, *lines, *(line for note in table.notes for line in ("", note))]


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "–": "--",
}


def _in_latex(text: str) -> str:
    """Return `text` with the characters that LaTeX would read as commands escaped, and with minus signs before numbers."""
    return re.sub(r"(?<![\w$-])-(?=\d)", "$-$", "".join(_LATEX.get(character, character) for character in text))


def to_latex(table: Table) -> list[str]:
    """Return the lines of the table in LaTeX, with the rules of booktabs. Notes are comments."""
    head, *lines = (" & ".join(map(_in_latex, row)) + r" \\" for row in _text_rows(table))
    columns = "".join("r" if is_number else "l" for is_number in table.numeric)
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    notes = [line for note in table.notes for line in ("", f"% {_in_latex(note)}")]
    return [*begin, *lines, r"\bottomrule", r"\end{tabular}", *notes]
