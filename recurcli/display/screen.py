"""What a command shows: notes and progress on stderr, tables and JSON on stdout; the result of a training and of an export."""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from recurcli.errors import escaped, pluralize
from recurcli.evaluation.result_block import ResultBlock, result_block, result_rows
from recurcli.files import finite, storage_errors
from recurcli.log import Log, Progress, RowsDone, State, TrialProgress
from recurcli.metrics import format_score, words_of
from recurcli.process import gc_between_steps
from recurcli.runs.run_directory import training_facts

UNLIMITED = 100_000
"""Width in characters of output to a pipe, and of a file: no value is cut."""
LINES = 6
"""Largest number of progress lines where stderr is not a terminal and the number of steps or rows is known."""
SECONDS_BEFORE_LINE = 5.0
"""Seconds before the first line of progress. Shorter work shows none."""
SECONDS_BETWEEN_FRAMES = 0.1
SECONDS_BEFORE_BAR = 0.5
"""Seconds before a bar is shown. Shorter work shows none."""
NARROWEST_BAR = 10
"""Columns of a terminal that the bar takes at least."""
NAME = "recur: "
"""The start of a line on stderr. Where a sentence takes several lines of a terminal, the others are indented by as much."""
ERASE = "\r\x1b[K"
"""Deletes the line of the cursor of a terminal."""


class Styled(NamedTuple):
    """The text of a cell with a style of rich, which only a terminal shows."""

    text: str
    style: str


Cell = str | Styled
_NUMBER = re.compile(r"[-+<]?\d|[–·]?$")


@dataclass(frozen=True)
class Table:
    """A table as every output shows it. Its texts are not escaped: `to_rich`, Markdown and parts.html do that."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    """Each row has a cell for each column. Cells at the end may be missing."""
    notes: Sequence[str] = ()

    @property
    def texts(self) -> list[list[str]]:
        """The rows without styles."""
        return [[cell.text if isinstance(cell, Styled) else cell for cell in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are flush right: a column with a header, but the first."""
        columns = enumerate(zip_longest(self.columns, *self.texts, fillvalue=""))
        return [place > 0 and header != "" and all(map(_NUMBER.match, cells)) for place, (header, *cells) in columns]


def listing(rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table of names and values without headers."""
    return Table(["", ""], list(rows))


def by_columns(columns: Mapping[str, Sequence[Cell]], notes: Sequence[str] = ()) -> Table:
    """Return a table of columns by their headers. A column with fewer cells than others ends in dashes."""
    return Table(list(columns), list(zip_longest(*columns.values(), fillvalue="–")), notes)


def styled(row: Iterable[str], style: str) -> list[Cell]:
    """Return the row with all its cells in one style."""
    return [Styled(text, style) for text in row]


def cell(text: object, style: str = "") -> Text:
    """Text of others, safe for a terminal."""
    return Text(escaped(text, limit=1000), style=style, overflow="fold")


def heading(*words: str) -> Text:
    """The line above a table."""
    return Text("  ").join([cell(words[0], style="bold"), *(cell(word, style="dim") for word in words[1:])])


def to_rich(table: Table) -> RichTable:
    """Return the table for a terminal. Control characters and markup in its texts are escaped."""
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


def stacked(table: Table) -> Iterator[RenderableType]:
    """Yield the rows of the table as records, one below another, with a line `name: value` for each cell."""
    for row in table.rows:
        made = RichTable.grid(padding=(0, 2, 0, 0))
        for header, each in zip(table.columns, row, strict=False):
            made.add_row(cell(f"{header}:", style="dim"), cell(*each) if isinstance(each, Styled) else cell(each))
        yield Padding(made, (0, 0, 1, 2))


def block_parts(block: ResultBlock) -> Iterator[RenderableType]:
    """Yield the first lines of a result for `show`: the splits beside each other, or below where the terminal is too narrow.

    A command is never broken, so that it can be copied.
    """
    kept, *headers = (f"  {block.columns[0]}", *block.columns[1:])
    yield heading(*block.title)
    yield ""
    tables = [_scores([kept, *headers], block.rows)]
    if not fits(tables[0]):
        yield cell(kept)
        pairs = [slice(place, place + 2) for place in range(0, len(headers), 2)]
        tables = [_scores(["", *headers[pair]], [[row[0], *row[1:][pair]] for row in block.rows]) for pair in pairs]
    yield from tables
    yield ""
    yield from (Padding(cell(note), (0, 0, 0, 2), expand=False) for note in block.notes)
    yield ""
    lines = [f"  {'' if place else 'next':4}  {escaped(line, limit=9999)}" for place, line in enumerate(block.next)]
    yield Group(*(Text(line, no_wrap=True, overflow="ignore") for line in lines))


def _scores(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    """Return a table without lines, of which the first row is bold."""
    made = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for place, header in enumerate(headers):
        made.add_column(cell(header), justify="right" if place else "left")
    for place, (name, *cells) in enumerate(rows):
        made.add_row(cell(f"    {name}"), *map(cell, cells), style="" if place else "bold")
    return made


def console() -> Console:
    """Return a rich Console for stdout: as wide as the terminal or, in a pipe, as its widest line."""
    terminal = sys.stdout.isatty()
    return Console(
        file=io.StringIO(),
        highlight=False,
        force_terminal=terminal or None,
        width=None if terminal else UNLIMITED,
    )


def fits(table: RichTable) -> bool:
    """Whether no line of the table is broken on the terminal."""
    screen = console()
    needed = screen.measure(table, options=screen.options.update_width(UNLIMITED))
    return needed.maximum <= screen.width


def show(*parts: RenderableType | Table) -> None:
    """Print `parts` without blanks at the ends of lines, and with one empty line between them at most.

    A table with numbers is `stacked` where the terminal is too narrow for it. In one of words rich breaks the widest columns.
    """
    screen = console()
    with screen.capture() as printed:
        for part in parts:
            if isinstance(part, Table):
                made = to_rich(part)
                shown = [made] if fits(made) or not any(part.numeric) else stacked(part)
                screen.print("", *shown, "", *(cell(note, style="dim") for note in part.notes), sep="\n")
            else:
                screen.print(part, crop=False)
    text = re.sub(r" +$", "", printed.get(), flags=re.MULTILINE)
    write(re.sub(r"\n{3,}", "\n\n", text).removeprefix("\n").removesuffix("\n"))


def print_json(value: Any) -> None:
    """One JSON object on stdout, with null for a number that is NaN or infinite. All output of --json goes through here."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    write(json.dumps(finite(value), ensure_ascii=not unicode, indent=2, allow_nan=False))


def print_result(result: Any, show_it: Callable[[Any], None], *, json: bool) -> None:
    """Print the result of a command as JSON, or as `show_it` does."""
    (print_json if json else show_it)(result)


def write(text: str) -> None:
    """Print `text` on stdout; StorageError where there is no room for it."""
    with storage_errors("standard output"):
        print(text, flush=True)


def time_in_words(seconds: float) -> str:
    """Return a time as 38 s, 12 min or 3 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def wrapped(text: str, width: int, indent: int) -> str:
    """Return `text` in lines of at most `width` columns, all but the first indented. A longer word, or path, is whole."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else lines[-1] + word
        if cell_len(longer) > width and lines[-1].strip():
            longer = " " * indent + word
            lines.append("")
        lines[-1] = longer
    return "\n".join(lines)


class Screen(Log):
    """Shows the notes and the progress of a command. A terminal has one live line, which goes away: the stage, or a bar.

    Without `bar` a terminal gets lines of progress, as a pipe does. `verbose` shows details too, and every evaluation of a
    training. `metric` is the name of the dev metric; `of` says in words of what it is.
    """

    def __init__(
        self, *, quiet: bool, verbose: bool = False, bar: bool = True, metric: str = "accuracy", of: str = ""
    ) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.of = of
        self.scored_by(metric)
        self.console = Console(stderr=True, highlight=False)
        self.has_bar = bar and not quiet and self.console.is_terminal and not self.console.is_dumb_terminal
        self.bar: Any = None
        self.stage_shown = ""
        self.started = self.shown = time.monotonic()
        self.first: int | None = None
        self.lines = 0
        """The part of the work, in LINES parts, up to which lines of progress are shown."""

    def __enter__(self) -> Self:
        gc_between_steps()  # all that is imported at start is here
        return self

    def __exit__(self, *_: object) -> None:
        self.stage("")

    def scored_by(self, metric: str) -> None:
        """Show scores from now on as those of this dev metric."""
        self.metric, self.format = words_of(metric) + self.of, partial(format_score, metric)

    def note(self, text: str) -> None:
        """Print a sentence that stays on the screen, unless `quiet` is True."""
        if not self.quiet:
            self._print(text)

    def detail(self, text: str) -> None:
        """Print a sentence that stays on the screen if `verbose` is True."""
        if self.verbose:
            self.note(text)

    def warn(self, text: str) -> None:
        """Print a warning that stays on the screen."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        text = NAME + escaped(text, limit=2000)
        if self.console.is_terminal:
            text = wrapped(text, self.console.width, indent=len(NAME))
        if self.bar is not None:
            self.console.print(Text(text), soft_wrap=True)
        else:  # one call: `print` makes two, and a signal may end it between them
            sys.stderr.write(f"{ERASE if self.stage_shown else ''}{text}\n{self.stage_shown}")
            sys.stderr.flush()

    def stage(self, text: str) -> None:
        """Show on a terminal, in place of the live line, what the command does; "": nothing."""
        if not self.has_bar:
            return
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        erase, line = ERASE if self.stage_shown else "", Text(f"{escaped(text, limit=1000)} …" if text else "")
        line.truncate(self.console.width - 1, overflow="ellipsis")
        self.stage_shown = line.plain
        sys.stderr.write(erase + line.plain)
        sys.stderr.flush()

    def progress(self, state: State) -> None:
        """Show rows, the steps of a training or the trials of a study."""
        if isinstance(state, RowsDone):
            self._rows(state)
        elif isinstance(state, TrialProgress):
            self._trial(state)
        elif isinstance(state, Progress):
            self._steps(state)

    def _steps(self, progress: Progress) -> None:
        """Show the state of a training. Beside a bar the score comes first, because rich cuts the end of what does not fit."""
        facts = f"epoch {progress.epoch:.2f}  loss {progress.loss:.4f}"
        rate = f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} tokens/s"
        best = metric = on_bar = ""
        if progress.best_dev_metric is not None:
            best = self.format(progress.best_dev_metric)
            metric, on_bar = f"  best dev {self.metric} {best}", f"best {best} (dev {self.metric})  "
        linear = progress.linear_dev_metric
        beside = "" if linear is None else f", linear model {self.format(linear)}"
        if not self.has_bar:
            text = f"step {progress.step:,}/{progress.total_steps:,}  {facts}{metric}  {rate}"
            self._line(text, progress.step, progress.total_steps)
        else:
            self._show(progress.step, progress.total_steps, f"{on_bar}{facts}  {rate}")
        if progress.dev_metric is not None:
            score = f"{self.format(progress.dev_metric)} (best {best}{beside})"
            self.detail(f"step {progress.step:,}: dev {self.metric} {score}")

    def _trial(self, trial: TrialProgress) -> None:
        """Where a study stands: its trial, the step of the trial, and the best dev metric of all trials."""
        training, best = trial.training, ""
        if trial.best_dev_metric is not None:
            best = f"  best dev {self.metric} {self.format(trial.best_dev_metric)}"
        at, loss = f"trial {trial.trial}/{trial.trials}", f"loss {training.loss:.4f}"
        if not self.has_bar:
            step, steps = training.step, training.total_steps
            done, total = (trial.trial - 1) * steps + step, trial.trials * steps
            self._line(f"{at}  step {step:,}/{steps:,}  {loss}{best}", done, total)
        else:
            self._show(training.step, training.total_steps, f"{at}  {loss}{best}")

    def _rows(self, rows: RowsDone) -> None:
        """Show how many rows are scored. The first call sets the start, which is not 0 after a resume."""
        if self.first is None:
            self.first, self.started, self.shown = rows.done, time.monotonic(), time.monotonic()
        seconds = time.monotonic() - self.started
        rate = f"{(rows.done - self.first) / max(seconds, 1e-9):,.0f} {rows.unit}s/s"
        if not self.has_bar:
            of = "" if rows.total is None else f" of {rows.total:,}"
            self._line(f"{rows.done:,}{of} {rows.unit}s, {rate}", rows.done, rows.total)
        elif seconds >= SECONDS_BEFORE_BAR:
            self._show(rows.done, rows.total, rate if rows.total else f"{rows.done:,} {rows.unit}s  {rate}")

    def _line(self, text: str, done: int, total: int | None) -> None:
        """Print the text if `done` is in another part of the work than the last one; without a `total`, of the time.

        Each part of the time takes four times as long as the one before.
        """
        periods = (time.monotonic() - self.started) / SECONDS_BEFORE_LINE
        part = LINES * done // total if total else int(periods).bit_length() // 2
        if periods >= 1 and part > self.lines:
            self.lines = part
            self.note(text)

    def _show(self, done: int, total: int | None, text: str) -> None:
        if self.bar is None:
            self.stage("")
            self.bar = _new_bar(self.console, has_total=total is not None)
            self.task = self.bar.add_task("", total=total, text="")
            self.bar.start()
        elif time.monotonic() - self.shown < SECONDS_BETWEEN_FRAMES and done != total:
            return
        self.bar.update(self.task, completed=done, total=total, text=text)
        self.shown = time.monotonic()


def _new_bar(console: Console, *, has_total: bool) -> Any:
    """A line as wide as the terminal: bar, count, text, time left; without a total the text and the time gone by."""
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    class Words(ProgressColumn):
        """The text beside the bar, which is cut where the terminal is too narrow."""

        def render(self, task: Task) -> Text:
            return Text(task.fields["text"], no_wrap=True, overflow="ellipsis")

    class TimeLeft(ProgressColumn):
        """The time that the rest takes at the speed of the last steps."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            left = task.time_remaining
            return Text("" if left is None else f"{time_in_words(left)} left")

    bar = BarColumn(bar_width=None, table_column=Column(ratio=1, width=NARROWEST_BAR))
    count = TextColumn("{task.completed:,}/{task.total:,}", markup=False)
    known = (bar, count, Words(), TimeLeft())
    columns = known if has_total else (Words(), TimeElapsedColumn())
    return Bar(
        *columns, console=console, transient=True, expand=has_total, redirect_stdout=False, redirect_stderr=False
    )


def print_plan(plan: Mapping[str, Any]) -> None:
    """Print the plan of a dry run."""
    closing = Text("`recur presets NAME --all` shows every key; without --dry-run this runs.", style="dim")
    show(heading(f"recur {plan['command']} would run"), listing(_plan_rows(plan)), closing)


def _plan_rows(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "preset", plan["preset"]
    yield "run directory", str(plan["output"])
    for split, facts in plan["data"].items():
        cut = f", {facts['truncated']:,} truncated" if facts["truncated"] else ""
        yield f"{split} rows", f"{facts['rows']:,}{cut}  {facts['path'] or ''}"
    causal = plan["command"] == "pretrain" and plan["values"]["pretraining"]["objective"] == "causal"
    if not plan["steps"]:
        yield "model", "a linear model on n-grams, without an encoder"
        return
    unit = "window" if causal else "row"
    yield "vocabulary", f"{plan['vocabulary']:,} tokens; a training {unit} has {plan['mean_length']} on average"
    for part, count in plan["parameters"].items():
        yield f"parameters, {part}", f"{count:,}"
    if plan["forward_flops_per_token"] is not None:
        yield "forward FLOPs per token", f"{plan['forward_flops_per_token']:,}"
    if plan["values"]["ensemble"] and plan["command"] == "finetune":
        yield "ensemble", "a linear model on n-grams, fitted beside the encoder"
    yield "steps", f"{plan['steps']:,} ({plan['steps_per_epoch']:,} an epoch)"
    yield "checkpoint", f"{plan['checkpoint_bytes'] / 1e6:,.1f} MB each"
    machine = plan["machine"]
    yield "machine", f"{machine['device']}, {machine['precision']}, {pluralize(machine['threads'], 'thread')}"


def print_training(result: Mapping[str, Any], output: Path, *, verbose: bool = False) -> None:
    """Print the result of a training: the block of a classifier; with `verbose`, and of a pretraining, all numbers."""
    first: Iterable[RenderableType] = [heading(str(output), f"{result['preset']}, seed {result['seed']}")]
    if is_classifier := result["command"] == "finetune":
        first = block_parts(result_block(output, result))
    all_numbers = [listing([*result_rows(result), *training_facts(result)])]
    show(*first, *(all_numbers if verbose or not is_classifier else []))


def print_export(result: Mapping[str, Any]) -> None:
    """Print the files that an export wrote, whose facts are the same for all."""
    rows = [
        [f"{value:,}" if isinstance(value, int) else str(value) for value in file.values()] for file in result["files"]
    ]
    _, *facts = result["files"][0]
    show(heading(result["output"]), Table(["file", *facts], rows))
