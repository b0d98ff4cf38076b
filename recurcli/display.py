"""How things look: tables for people on stdout, a bar or plain lines of progress on stderr, JSON for scripts."""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from recurcli.errors import visible

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset
    from recurcli.training.fit import Progress

SECONDS_BETWEEN_LINES = 5.0
"""How often progress is told where no terminal shows a bar."""


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def follow(events: "Iterable[Any]", *, quiet: bool) -> dict[str, Any]:
    """Show the notes and the progress of a command as they come; returns the result that it ends with."""
    from recurcli.training.events import Finished, Note

    progress = _Progress(quiet)
    result: dict[str, Any] = {}
    with progress:
        for event in events:
            if isinstance(event, Finished):
                result = event.result
            elif isinstance(event, Note):
                progress.note(event.text, warning=event.level == "warning")
            else:
                progress.show(event)
    return result


def follow_prediction(rows: Iterable[int], *, quiet: bool) -> None:
    """Show how many rows of a prediction are done."""
    started = time.monotonic()
    progress = _Lines(quiet)
    count = 0
    for count in rows:
        progress.tell(f"{count:,} rows, {count / max(time.monotonic() - started, 1e-9):,.0f} rows/s")
    if not quiet and count:
        progress.write(f"{count:,} rows in {time.monotonic() - started:.1f} s")


class _Lines:
    """Plain lines on stderr, one every few seconds."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.last = time.monotonic()

    def tell(self, text: str, *, now: bool = False) -> None:
        """Print `text` if enough time has passed since the last one, or `now`."""
        if not self.quiet and (now or time.monotonic() - self.last >= SECONDS_BETWEEN_LINES):
            self.write(text)
            self.last = time.monotonic()

    def write(self, text: str) -> None:
        """Print `text`, escaped."""
        print(f"recur: {visible(text, limit=2000)}", file=sys.stderr, flush=True)


class _Progress:
    """A bar where stderr is a terminal, lines where it is not."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.lines = _Lines(quiet)
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def note(self, text: str, *, warning: bool) -> None:
        """A sentence that stays on the screen."""
        if self.quiet:
            return
        text = f"warning: {text}" if warning else text
        if self.bar is not None:
            self.bar.console.print(f"recur: {escape(visible(text, limit=2000))}", highlight=False)
        else:
            self.lines.write(text)

    def show(self, progress: "Progress") -> None:
        """Where the training stands."""
        if self.quiet:
            return
        rate = progress.tokens / max(progress.seconds, 1e-9)
        best = "" if progress.best_score is None else f"  best {progress.best_score:.4f}"
        text = f"epoch {progress.epoch:.2f}  loss {progress.loss:.4f}{best}  {rate:,.0f} tokens/s"
        if sys.stderr.isatty():
            self._bar(progress.total_steps).update(self.task, completed=progress.step, text=text)
            if progress.score is not None:
                self.note(f"step {progress.step:,}: dev score {progress.score:.4f}", warning=False)
        else:
            score = "" if progress.score is None else f"  score {progress.score:.4f}"
            line = f"step {progress.step:,}/{progress.total_steps:,}  {text}{score}"
            self.lines.tell(line, now=progress.score is not None or progress.step == progress.total_steps)

    def _bar(self, total: int) -> Any:
        if self.bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("training", total=total, text="")
            self.bar.start()
        return self.bar


def print_preset_names(names: Mapping[str, list[str]]) -> None:
    """The list of `recur presets`."""
    console = _console()
    console.print("A preset is ENCODER-TASK, any of the first list with any of the second:\n")
    console.print(f"  encoders  {'  '.join(names['encoders'])}", soft_wrap=True)
    console.print(f"  tasks     {'  '.join(names['tasks'])}", soft_wrap=True)
    if names["presets"]:
        console.print("\nor one of these, which hold a paper's own setting:\n")
        for name in names["presets"]:
            console.print(f"  {name}")
    console.print("\nrecur presets NAME prints one with all its keys.")


def print_preset(resolved: "ResolvedPreset") -> None:
    """All keys of a preset, their values, and where each comes from."""
    table = _table(resolved.name, "key", "value", "from")
    for key, value, origin in resolved.rows():
        table.add_row(key, escape(visible(json.dumps(value, ensure_ascii=False))), escape(visible(origin)))
    _console().print(table)


def print_plan(plan: Mapping[str, Any]) -> None:
    """What a dry run found."""
    table = _table(f"recur {plan['command']} would run", "", "")
    table.add_row("preset", escape(plan["preset"]))
    table.add_row("run directory", escape(plan["output"]))
    for split, facts in plan["data"].items():
        cut = f", {facts['truncated']:,} cut" if facts["truncated"] else ""
        table.add_row(f"{split} rows", f"{facts['rows']:,}{cut}  {escape(visible(facts['path'] or ''))}")
    table.add_row("vocabulary", f"{plan['vocabulary']:,} tokens; a training row has {plan['mean_length']} on average")
    for part, count in plan["parameters"].items():
        table.add_row(f"parameters, {part}", f"{count:,}")
    table.add_row("forward FLOPs a token", f"{plan['forward_flops_per_token']:,}")
    table.add_row("steps", f"{plan['steps']:,} ({plan['steps_per_epoch']:,} an epoch)")
    table.add_row("checkpoint", f"{plan['checkpoint_bytes'] / 1e6:,.1f} MB each")
    machine = plan["machine"]
    table.add_row("machine", f"{machine['device']}, {machine['precision']}, {machine['threads']} threads")
    console = _console()
    console.print(table)
    console.print("`recur presets NAME` shows every key; without --dry-run this runs.", style="dim")


def print_training(result: Mapping[str, Any], output: Any) -> None:
    """The result of a training."""
    table = _table(f"{result['preset']} (seed {result['seed']})", "", "")
    if "dev" in result:
        for name in ("accuracy", "macro_f1", "mcc"):
            table.add_row(f"dev {_words(name)}", f"{result['dev'][name]:.4f}")
        for name, value in result.get("floors", {}).items():
            table.add_row(f"floor: {_words(name)}", f"{value:.4f}")
    table.add_row("parameters", f"{result['parameters']['total']:,}")
    table.add_row("steps", f"{result['steps']:,} (best: {result['best_step']:,})")
    table.add_row("time", f"{result['seconds']:,.1f} s of training steps, {result['tokens_per_second']:,} tokens/s")
    table.add_row("run directory", escape(str(output)))
    _console().print(table)


def print_evaluation(result: Mapping[str, Any]) -> None:
    """The report of `recur eval`."""
    report = result["report"]
    console = _console()
    summary = _table(f"{result['run']}: {result['split']} ({result['rows']:,} rows)", "", "")
    for name in ("accuracy", "macro_precision", "macro_recall", "macro_f1", "mcc", "loss"):
        summary.add_row(_words(name), f"{report[name]:.4f}")
    for name, value in result.get("floors", {}).items():
        summary.add_row(f"floor: {_words(name)}", f"{value:.4f}")
    console.print(summary)
    classes = _table("classes", "label", "precision", "recall", "F1", "rows", numbers=True)
    for name, scores in report["per_class"].items():
        row = [f"{scores[key]:.4f}" for key in ("precision", "recall", "f1")]
        classes.add_row(escape(visible(name)), *row, f"{scores['support']:,}")
    console.print(classes)
    names = [escape(visible(name)) for name in report["names"]]
    confusion = _table("confusion (rows: right label, columns: prediction)", "", *names, numbers=True)
    for name, row in zip(names, report["confusion"], strict=True):
        confusion.add_row(name, *(f"{count:,}" if count else "·" for count in row))
    console.print(confusion)


def print_export(result: Mapping[str, Any]) -> None:
    """What an export wrote."""
    table = _table(str(result["output"]), "file", "rows", "from", numbers=True)
    for member in result["files"]:
        table.add_row(member["name"], f"{member['rows']:,}", escape(visible(member["run"])))
    _console().print(table)


def _words(name: str) -> str:
    words = name.replace("_", " ")
    return {"macro f1": "macro F1", "mcc": "MCC"}.get(words, words)


def _console() -> Console:
    """stdout; in a pipe a table is as wide as it needs to be, so that no value is cut."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=240)


def _table(title: str, *columns: str, numbers: bool = False) -> Table:
    table = Table(title=escape(visible(title)), box=box.SIMPLE_HEAD, show_header=any(columns), title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and place else "left", overflow="fold")
    return table
