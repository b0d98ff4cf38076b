"""Tables for people and JSON for scripts, on stdout. Control characters and markup in user data are escaped."""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recurcli.data.tasks import TASKS
from recurcli.errors import StorageError, escaped, pluralize
from recurcli.evaluation.metrics import METRICS, PERPLEXITY, words_of
from recurcli.facts import parameters_in_words
from recurcli.files import finite

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset

UNLIMITED = 100_000
"""Width in characters of output to a pipe: no value is cut."""
PIPE_WIDTH = 100
"""The width in characters above which a table in a pipe has fewer columns. --json has all of them."""
NARROW = 60
"""Width in characters of a terminal below which a table that does not fit is printed as one block per row."""


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
    """Return the width in characters above which a table has fewer columns or another form."""
    return console().width if sys.stdout.isatty() else PIPE_WIDTH


def show(*parts: RenderableType) -> None:
    """Print `parts` without blanks at the ends of lines, and with one empty line between them at most."""
    paper = io.StringIO()
    screen = console()
    screen.file = paper
    for part in parts:
        screen.print(_as_blocks(part) if isinstance(part, Table) and _is_too_wide(part, screen) else part)
    lines = [line.rstrip() for line in paper.getvalue().strip("\n").split("\n")]
    write("\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before))


def _is_too_wide(part: Table, screen: Console) -> bool:
    return screen.width < NARROW and part.show_header and width_of(part, screen) > screen.width


def width_of(part: Table, screen: Console) -> int:
    """The width in characters of a table that is not squeezed."""
    return Measurement.get(screen, screen.options.update(max_width=UNLIMITED), part).maximum


def _as_blocks(wide: Table) -> Table:
    """Turn each row of a table into a block: the first cell in one line, then a line for each other column."""
    blocks = table("", "")
    names = [column.header for column in wide.columns]
    for first, *others in zip(*(column.cells for column in wide.columns), strict=True):
        blocks.add_row(names[0], first)
        for name, value in zip(names[1:], others, strict=True):
            blocks.add_row(Text("  ") + name if isinstance(name, Text) else name, value)
    return blocks


def cell(text: object, style: str = "") -> Text:
    """Text of others, safe for a terminal."""
    return Text(escaped(text, limit=1000), style=style, overflow="fold")


def heading(*words: str) -> Text:
    """The line above a table."""
    return Text("  ").join([cell(words[0], style="bold"), *(cell(word, style="dim") for word in words[1:])])


def table(*columns: str, numbers: bool = False, narrow: bool = False) -> Table:
    """A table without lines; with `numbers` all columns but the first are flush right."""
    made = Table(
        box=None if narrow else box.SIMPLE_HEAD,
        show_header=any(columns),
        header_style="dim",
        padding=(0, 0, 0, 1) if narrow else (0, 1),
        pad_edge=not narrow,
    )
    for place, column in enumerate(columns):
        made.add_column(cell(column), justify="right" if numbers and place else "left", overflow="fold")
    return made


ADVICE = (
    ("single texts", "starsaber-custom", "a linear model is fitted beside the encoder, and kept where it is better"),
    ("pairs of texts", "starsaber-custom", "54.9 % on 10,000 OCNLI pairs, the linear model 40.2 %"),
    ("order matters", "bilstm-custom", "52.5 % on nested lists; StarSaber 50.8 %, all others below 45 %"),
)
"""Which encoder for what: kind of rows, preset, and the measured reason (README files of presets/ and encoders/)."""


def print_preset_names(names: Mapping[str, list[str]], papers: Mapping[str, list[str]], *, every: bool) -> None:
    """Print which encoder is for what, then the names of encoders, tasks and presets. `every` adds the presets of papers."""
    advice = table("", "", "")
    for kind, preset, reason in ADVICE:
        advice.add_row(kind, cell(preset, style="bold"), cell(reason))
    listed = table("", "")
    for kind in ("encoders", "tasks", "presets"):
        listed.add_row(kind, cell("  ".join(names[kind])))
    if every:
        for paper, rows in papers.items():
            listed.add_row(cell(f"paper {paper}"), cell("  ".join(rows)))
    else:
        counts = "  ".join(f"{paper} ({len(rows)} presets)" for paper, rows in papers.items())
        listed.add_row("papers", cell(counts))
    show(
        Text("A good start, by what was measured:"),
        advice,
        Text("A preset is ENCODER-TASK: any encoder with any task (ptb: causal encoders), or a name of its own."),
        listed,
        Text(
            "recur presets NAME prints a preset with all its keys, or the presets of a paper; --all lists all.",
            style="dim",
        ),
    )


def print_paper_presets(paper: str, names: Sequence[str]) -> None:
    """Print the names of the presets of a paper's tables, a line for each task."""
    listed = table("", "")
    groups: dict[str, list[str]] = {}
    for name in names:
        task = max((task for task in TASKS if f"-{task}-" in f"-{name}-"), key=len, default="")
        groups.setdefault(task, []).append(name)
    for task in sorted(groups):
        listed.add_row(task, cell("  ".join(groups[task])))
    show(
        Text(f"The presets of the tables of papers/{paper}."),
        listed,
        Text("recur presets NAME prints one.", style="dim"),
    )


def print_preset(resolved: "ResolvedPreset") -> None:
    """All keys of a preset, their values, and where each comes from."""
    listed = table("key", "value", "from")
    for key, value, origin in resolved.rows():
        written = origin != "default"
        shown = cell(json.dumps(value, ensure_ascii=False), style="" if written else "dim")
        listed.add_row(cell(key), shown, cell(origin, style="" if written else "dim"))
    show(heading(resolved.name), listed)


def add_baselines(listed: Table, result: Mapping[str, Any], of: str = "") -> None:
    """Add the scores of an ensemble's two parts, by accuracy and the metric that chose, and each baseline to `listed`.

    `of` stands before each name.
    """
    for name in METRICS:
        if name in ("accuracy", result.get("metric")):
            for part, scores in result.get("parts", {}).items():
                if (part, name) != ("linear", "accuracy"):  # a baseline
                    listed.add_row(f"{of}{part} alone: {METRICS[name].words}", f"{scores[name]:.4f}", style="dim")
    for name, value in result.get("baselines", {}).items():
        listed.add_row(f"{of}{name.replace('_', ' ')} baseline: accuracy", f"{value:.4f}", style="dim")


def print_plan(plan: Mapping[str, Any]) -> None:
    """Print the plan of a dry run."""
    listed = table("", "")
    listed.add_row("preset", cell(plan["preset"]))
    listed.add_row("run directory", cell(plan["output"]))
    for split, facts in plan["data"].items():
        cut = f", {facts['truncated']:,} truncated" if facts["truncated"] else ""
        listed.add_row(f"{split} rows", cell(f"{facts['rows']:,}{cut}  {facts['path'] or ''}"))
    causal = plan["command"] == "pretrain" and plan["values"]["pretraining"]["objective"] == "causal"
    unit = "window" if causal else "row"
    listed.add_row(
        "vocabulary", f"{plan['vocabulary']:,} tokens; a training {unit} has {plan['mean_length']} on average"
    )
    for part, count in plan["parameters"].items():
        listed.add_row(f"parameters, {part}", cell(f"{count:,}{_wanted(plan) if part == 'encoder' else ''}"))
    if plan["forward_flops_per_token"] is not None:
        listed.add_row("forward FLOPs per token", f"{plan['forward_flops_per_token']:,}")
    if plan["values"]["ensemble"] and plan["command"] == "finetune":
        listed.add_row("ensemble", "a linear model on n-grams, fitted beside the encoder")
    listed.add_row("steps", f"{plan['steps']:,} ({plan['steps_per_epoch']:,} an epoch)")
    listed.add_row("checkpoint", f"{plan['checkpoint_bytes'] / 1e6:,.1f} MB each")
    machine = plan["machine"]
    listed.add_row(
        "machine",
        f"{machine['device']}, {machine['precision']}, {pluralize(machine['threads'], 'thread')}",
    )
    if plan["estimate"] is not None:
        listed.add_row("estimated time", _duration_in_words(plan["estimate"]))
    closing = Text("`recur presets NAME` shows every key; without --dry-run this runs.", style="dim")
    show(heading(f"recur {plan['command']} would run"), listed, closing)


_UNITS = (("hour", 3600), ("minute", 60), ("second", 1))


def _duration_in_words(estimate: Mapping[str, Any]) -> str:
    """Return the time that a training takes as text, with its steps and evaluations."""
    seconds = estimate["seconds"]
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= 1.5 * size), _UNITS[-1])
    count = max(1, round(seconds / size))
    steps = _times(estimate["steps"], "step", estimate["seconds_per_step"])
    text = f"about {pluralize(count, unit)}: {steps}"
    if "evaluations" in estimate:
        evaluations = _times(estimate["evaluations"], "evaluation", estimate["seconds_per_evaluation"])
        text += f", and {evaluations}" + ("; early stopping may end it before" if estimate["patience"] else "")
    return text + ". Starting, reading the rows and writing files come on top."


def _times(count: int, what: str, seconds: float) -> str:
    shown = f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"
    return f"{pluralize(count, what)} of {shown} s"


def _wanted(result: Mapping[str, Any]) -> str:
    """Return the target of `--match-parameters` in brackets; "" if the option was not given."""
    if not (matched := result.get("match_parameters")):
        return ""
    of = "" if matched["question"]["other"] is None else f" of {matched['question']['asked']}"
    return f" (wanted: {matched['target']:,}{of})"


def print_training(result: Mapping[str, Any], output: Any) -> None:
    """Print the result of a training."""
    listed = table("", "")
    if result.get("metric") == PERPLEXITY:
        add_perplexity(listed, result["dev"], of="dev ")
    elif "dev" in result:
        for name, metric in METRICS.items():
            listed.add_row(f"dev {metric.words}", f"{result['dev'][name]:.4f}")
        add_baselines(listed, result)
    if test := result.get("test"):
        for name, metric in METRICS.items():
            listed.add_row(f"test {metric.words}", f"{test[name]:.4f}")
        add_baselines(listed, {**test, "metric": result["metric"]}, of="test ")
    listed.add_row("parameters", parameters_in_words(result))
    if matched := result.get("match_parameters"):
        listed.add_row("encoder parameters", cell(f"{matched['parameters']:,}{_wanted(result)}"))
    steps = f"{result['steps']:,}"
    if "metric" in result:
        of = " of the encoder" if result.get("ensemble") else ""
        steps += f" (best dev {words_of(result['metric'])}{of} at step {result['best_step']:,})"
    listed.add_row("steps", steps)
    if stopped := result.get("early_stopping"):
        words, count = words_of(stopped["metric"]), stopped["evaluations"]
        change = "fall" if stopped["metric"] == PERPLEXITY else "rise"
        reason = f"dev {words} did not {change} in {pluralize(count, 'evaluation')}"
        listed.add_row("stopped early", f"{reason}, before step {stopped['steps']:,}")
    listed.add_row("time", f"{result['seconds']:,.1f} s of training steps, {result['tokens_per_second']:,} tokens/s")
    listed.add_row("run directory", cell(output))
    show(heading(result["preset"], f"seed {result['seed']}"), listed)


def add_perplexity(listed: Table, score: Mapping[str, Any], of: str = "") -> None:
    """Add the perplexity of a text and its loss to a table."""
    listed.add_row(f"{of}perplexity", f"{score['perplexity']:.2f} (of {score['tokens']:,} tokens, <eos> included)")
    listed.add_row(f"{of}loss", f"{score['loss']:.4f} nats a token")


def print_export(result: Mapping[str, Any]) -> None:
    """Print the files that an export wrote."""
    _, *facts = result["files"][0]
    listed = table("file", *facts)
    listed.columns[1].justify = "right"
    for member in result["files"]:
        values = (f"{member[fact]:,}" if isinstance(member[fact], int) else cell(member[fact]) for fact in facts)
        listed.add_row(member["name"], *values)
    show(heading(result["output"]), listed)
