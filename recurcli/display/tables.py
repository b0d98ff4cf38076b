"""Tables: their content, and their forms on a terminal, in Markdown and in LaTeX. The form in HTML is a macro of parts.html."""

import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from recurcli.errors import StorageError, escaped
from recurcli.files import finite

UNLIMITED = 100_000
"""Width in characters of output to a pipe, and of a file: no value is cut."""
PIPE_WIDTH = 100
"""The width in characters above which a table in a pipe has fewer columns. --json has all of them."""
NARROW = 60
"""Width in characters of a terminal below which a table that does not fit is printed as one block per row."""


class Styled(NamedTuple):
    """The text of a cell with a style of rich, which only a terminal shows."""

    text: str
    style: str


Cell = str | Styled


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    header: str = ""
    """Lines are separated by \\n."""
    number: bool = False
    """Whether its cells are flush right."""
    whole: bool = False
    """Whether a terminal that is too narrow breaks the cells of other columns before these."""
    max_width: int | None = None
    """The width in characters at which a terminal cuts its cells off."""


def text_columns(*headers: str) -> list[Column]:
    """Return columns that are flush left."""
    return [Column(header) for header in headers]


def number_columns(*headers: str, whole: bool = False) -> list[Column]:
    """Return columns that are flush right."""
    return [Column(header, number=True, whole=whole) for header in headers]


@dataclass(frozen=True)
class Table:
    """A table as every output shows it. Its texts are not escaped: the forms below do that."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    """Each row has a cell for each column. Cells at the end may be missing."""
    notes: Sequence[str] = ()
    """Sentences below the table."""
    dense: bool = False
    """Whether a terminal shows it without lines and with less space."""

    @property
    def texts(self) -> list[list[str]]:
        """The rows without styles."""
        return [[cell.text if isinstance(cell, Styled) else cell for cell in row] for row in self.rows]

    def without(self, *headers: str) -> "Table":
        """Return the table without the columns of these headers."""
        kept = [place for place, column in enumerate(self.columns) if column.header not in headers]
        return replace(
            self,
            columns=[self.columns[place] for place in kept],
            rows=[[row[place] for place in kept if place < len(row)] for row in self.rows],
        )


def listing(rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table of names and values without headers."""
    return Table(text_columns("", ""), list(rows))


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


def width_to_fill() -> int:
    """Return the maximal width of a table in characters. A wider table gets fewer columns or another form."""
    return console().width if sys.stdout.isatty() else PIPE_WIDTH


def fits(table: Table) -> bool:
    """Whether the table is not squeezed in the width to fill."""
    return width_of(table) <= width_to_fill()


def show(*parts: RenderableType | Table) -> None:
    """Print `parts` without blanks at the ends of lines, and with one empty line between them at most."""
    paper = io.StringIO()
    screen = console()
    screen.file = paper
    for part in parts:
        if not isinstance(part, Table):
            screen.print(part)
            continue
        headed = any(column.header for column in part.columns)
        too_wide = screen.width < NARROW and headed and width_of(part) > screen.width
        screen.print(to_rich(_as_blocks(part) if too_wide else part))
        for note in part.notes:
            screen.print(cell(note, style="dim"))
    lines = [line.rstrip() for line in paper.getvalue().strip("\n").split("\n")]
    write("\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before))


def width_of(table: Table) -> int:
    """Return the width in characters of a table that is not squeezed."""
    screen = console()
    return Measurement.get(screen, screen.options.update(max_width=UNLIMITED), to_rich(table)).maximum


def _as_blocks(wide: Table) -> Table:
    """Turn each row of a table into a block: the first cell in one line, then a line for each other column."""
    first, *others = (column.header.replace("\n", "") for column in wide.columns)
    names = [first, *(f"  {name}" for name in others)]
    return listing(line for row in wide.rows for line in zip(names, row, strict=False))


def to_rich(table: Table) -> RichTable:
    """Return the table for a terminal. Control characters and markup in its texts are escaped."""
    made = RichTable(
        box=None if table.dense else box.SIMPLE_HEAD,
        show_header=any(column.header for column in table.columns),
        header_style="dim",
        padding=(0, 0, 0, 1) if table.dense else (0, 1),
        pad_edge=not table.dense,
    )
    for column in table.columns:
        made.add_column(
            Text("\n").join(map(cell, column.header.split("\n"))),
            justify="right" if column.number else "left",
            overflow="ellipsis" if column.max_width else "fold",
            no_wrap=column.whole or column.max_width is not None,
            max_width=column.max_width,
        )
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
    rows = [[column.header for column in table.columns], *table.texts]
    return [[escaped(text, limit=UNLIMITED) for text in row] for row in rows]


def to_markdown(table: Table) -> list[str]:
    """Return the lines of the table in Markdown."""
    rows = [[re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text) for text in row] for row in _text_rows(table)]
    head, *lines = ("| " + " | ".join(row) + " |" for row in rows)
    rule = "|" + "".join("---:|" if column.number else "---|" for column in table.columns)
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
    columns = "".join("r" if column.number else "l" for column in table.columns)
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    notes = [line for note in table.notes for line in ("", f"% {_in_latex(note)}")]
    return [*begin, *lines, r"\bottomrule", r"\end{tabular}", *notes]
