"""The progress of a command on stderr: a bar on a terminal, else a line every few seconds."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from recurcli.allocator import gc_between_steps
from recurcli.errors import escaped, pluralize
from recurcli.log import Log, Progress, RowsDone, State, TrialProgress
from recurcli.metrics import format_score, words_of

SECONDS_BETWEEN_LINES = 5.0
"""Seconds between two lines of progress if there is no terminal for a bar."""
SECONDS_BETWEEN_FRAMES = 0.1
SECONDS_BEFORE_BAR = 0.5
"""Seconds before a bar is shown. Shorter work shows none."""
NARROWEST_BAR, TIME_LEFT = 10, 8
"""Columns of a terminal that the bar and the time left take at least."""


def tell_written(path: Path, *, quiet: bool) -> None:
    """Print on stderr that a file was written, unless `quiet` is True."""
    Screen(quiet=quiet, bar=False).note(f"{path}: written")


class Screen(Log):
    """Shows the notes and the progress of a command: a bar that goes away at the end, or lines that stay.

    Without `bar` a terminal gets lines too. `metric` is the name of the dev metric; `of` says in words of what it is.
    """

    def __init__(self, *, quiet: bool, bar: bool = True, metric: str = "accuracy", of: str = "") -> None:
        self.quiet = quiet
        self.short_metric, self.metric = words_of(metric), words_of(metric) + of
        self.format = partial(format_score, metric)
        self.console = Console(stderr=True, highlight=False)
        self.has_bar = bar and not quiet and self.console.is_terminal and not self.console.is_dumb_terminal
        self.bar: Any = None
        self.task: Any = None
        self.started = self.shown = time.monotonic()
        self.first: int | None = None
        self.done = 0

    def __enter__(self) -> Self:
        gc_between_steps()  # all that is imported at start is here
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def note(self, text: str) -> None:
        """Print a sentence that stays on the screen, unless `quiet` is True."""
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """Print a warning that stays on the screen."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        text = escaped(text, limit=2000)
        if self.bar is not None:
            self.console.print(Text(f"recur: {text}"), soft_wrap=True)
        else:
            print(f"recur: {text}", file=sys.stderr, flush=True)

    def progress(self, state: State) -> None:
        """Show rows, the steps of a training or the trials of a study."""
        if isinstance(state, RowsDone):
            self._rows(state)
        elif isinstance(state, TrialProgress):
            self._trial(state)
        elif isinstance(state, Progress):
            self._steps(state)

    def _steps(self, progress: Progress) -> None:
        """Show the state of a training."""
        rate = f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} tokens/s"
        metric = ""
        if progress.best_dev_metric is not None:
            metric = f"  best dev {self.metric} {self.format(progress.best_dev_metric)}"
        if progress.dev_metric is not None and progress.best_dev_metric is not None:
            best, linear = self.format(progress.best_dev_metric), ""
            if progress.linear_dev_metric is not None:
                linear = f", linear model {self.format(progress.linear_dev_metric)}"
            metric = f"  dev {self.metric} {self.format(progress.dev_metric)} (best {best}{linear})"
        if not self.has_bar:
            text = f"step {progress.step:,}/{progress.total_steps:,}  epoch {progress.epoch:.2f}"
            text += f"  loss {progress.loss:.4f}{metric}  {rate}"
            self._line(text, now=progress.dev_metric is not None or progress.step == progress.total_steps)
            return
        self._show(progress.step, progress.total_steps, self._fitting(progress, rate))
        if progress.dev_metric is not None:
            self.note(f"step {progress.step:,}:{metric[1:]}")

    def _trial(self, trial: TrialProgress) -> None:
        """Where a study stands: its trial, the step of the trial, and the best dev metric of all trials."""
        training, best = trial.training, ""
        if trial.best_dev_metric is not None:
            best = f"  best dev {self.metric} {self.format(trial.best_dev_metric)}"
        at = f"trial {trial.trial}/{trial.trials}"
        if not self.has_bar:
            self._line(f"{at}  step {training.step:,}/{training.total_steps:,}  loss {training.loss:.4f}{best}")
        else:
            self._show(training.step, training.total_steps, f"{at}  loss {training.loss:.4f}{best}")

    def _fitting(self, progress: Progress, rate: str) -> str:
        """Return the longest text beside which bar, count and time left are whole. The metric is what stays longest."""
        epoch, loss = f"epoch {progress.epoch:.2f}", f"loss {progress.loss:.4f}"
        forms = [[epoch, loss, rate], [loss, rate], [loss]]
        if progress.best_dev_metric is not None:
            score = self.format(progress.best_dev_metric)
            long, short = (f"best dev {words} {score}" for words in (self.metric, self.short_metric))
            forms = [[epoch, loss, long, rate], [loss, long, rate], [loss, short, rate], [loss, short], [short]]
            forms.append([f"best {score}"])
        count = len(f"{progress.total_steps:,}") * 2 + 1
        room = self.console.width - NARROWEST_BAR - count - TIME_LEFT - 3  # a blank between two columns
        texts = ["  ".join(form) for form in forms]
        return next((text for text in texts if len(text) <= room), "")

    def _rows(self, rows: RowsDone) -> None:
        """Show how many rows are scored. The first call sets the start, which is not 0 after a resume."""
        if self.first is None:
            self.first, self.started, self.shown = rows.done, time.monotonic(), time.monotonic()
        self.done, self.unit = rows.done, rows.unit
        seconds = time.monotonic() - self.started
        rate = f"{(rows.done - self.first) / max(seconds, 1e-9):,.0f} {self.unit}s/s"
        if not self.has_bar:
            self._line(f"{rows.done:,}{'' if rows.total is None else f' of {rows.total:,}'} {self.unit}s, {rate}")
        elif seconds >= SECONDS_BEFORE_BAR:
            self._show(rows.done, rows.total, rate if rows.total else f"{rows.done:,} {self.unit}s  {rate}")

    def summary(self) -> None:
        """Print how many rows were done, and how many a second."""
        if self.quiet or self.first is None:
            return
        seconds = time.monotonic() - self.started
        done = pluralize(self.done, self.unit)
        before = f" ({self.first:,} of them before)" if self.first else ""
        rate = f" ({(self.done - self.first) / seconds:,.0f} {self.unit}s/s)" if seconds >= 1 else ""
        self.note(f"{done}{before} in {seconds:.1f} s{rate}")

    def _line(self, text: str, *, now: bool = False) -> None:
        if now or time.monotonic() - self.shown >= SECONDS_BETWEEN_LINES:
            self.note(text)
            self.shown = time.monotonic()

    def _show(self, done: int, total: int | None, text: str) -> None:
        if self.bar is None:
            self.bar = _new_bar(self.console, counts=total is not None)
            self.task = self.bar.add_task("", total=total, text="", count="")
            self.bar.start()
        elif time.monotonic() - self.shown < SECONDS_BETWEEN_FRAMES and done != total:
            return
        self.bar.update(self.task, completed=done, total=total, text=text, count=f"{done:,}/{total or 0:,}")
        self.shown = time.monotonic()


def _new_bar(console: Console, *, counts: bool) -> Any:
    """A line as wide as the terminal: bar, count, text, time left; without a total the text and the time gone by."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    text, count = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("text", "count"))
    known = (BarColumn(bar_width=None), count, text, TimeRemainingColumn(elapsed_when_finished=True))
    columns = known if counts else (text, TimeElapsedColumn())
    return Bar(*columns, console=console, transient=True, expand=counts, redirect_stdout=False, redirect_stderr=False)
