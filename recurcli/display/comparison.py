"""The result of `recur compare` on the screen: scores, costs, tests, and runs that are not finished."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recurcli.commands.comparison.groups import text_of
from recurcli.display.tables import cell, console, heading, show, table, width_of, width_to_fill
from recurcli.evaluation.metrics import METRICS

MOST_TESTS = 30
"""Tests that are listed; of more, those with the smallest p-values."""
COSTS = ("parameters", "no embeddings", "FLOPs/token", "seconds", "tokens/s")
"""The columns of `cost_texts`."""
TESTS = {"mcnemar": "exact McNemar", "bootstrap": "paired bootstrap"}


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print the comparison in the width of the terminal."""
    shown: list[RenderableType] = []
    if result["groups"]:
        whose = "encoders alone" if result["part"] == "encoder" else "models"
        shown += [
            heading(f"{result['task']}, {result['rows']:,} dev rows", whose, "mean ± standard deviation over seeds")
        ]
        names = {group["name"]: group["name"] for group in result["groups"]}
        screen = console()
        tables = (_costs(result, names), _tests(result, names))
        numbered = any(width_of(made, screen) > width_to_fill() for made in tables)
        if numbered:
            names = {name: str(number) for number, name in enumerate(names, 1)}
        shown += [*_scores(result, numbered=numbered), _costs(result, names)]
        if result["tests"]:
            shown += [_heading_of_tests(result), _tests(result, names), cell(sentence_on_rows(result), style="dim")]
    if result["unfinished"]:
        shown += [Text(""), heading("unfinished", "--resume continues them"), _unfinished(result["unfinished"])]
    show(*shown)


def mean_and_spread(summary: Mapping[str, Any] | None) -> str:
    """The mean of a group's scores, with the standard deviation if there are several."""
    if summary is None:
        return "–"
    return f"{summary['mean']:.4f}" + ("" if summary["std"] is None else f" ± {summary['std']:.4f}")


def has_encoder_column(result: Mapping[str, Any]) -> bool:
    """Whether the encoders alone stand beside the models: some have a prior."""
    return result["part"] == "model" and any(group["encoder"] for group in result["groups"])


def cost_texts(group: Mapping[str, Any]) -> list[str]:
    """Return the sizes and times of a group as text. An unknown number of FLOPs is a dash."""
    flops = group["forward_flops_per_token"]
    counts = [f"{group['parameters']:,}", f"{group['parameters_without_embeddings']:,}"]
    speed = [f"{group['seconds']:,.1f}", f"{group['tokens_per_second']:,.0f}"]
    return [*counts, "–" if flops is None else f"{flops:,}", *speed]


def difference_texts(test: Mapping[str, Any]) -> list[str]:
    """Return the difference of two groups and its interval as text."""
    low, high = test["interval"]
    return [f"{test['difference']:.4f}", f"{low:+.4f} to {high:+.4f}"]


def p_text(p_value: float) -> str:
    """A p-value of three decimals."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def sentence_on_rows(result: Mapping[str, Any]) -> str:
    """Return a sentence on the smallest difference that the dev rows and seeds can detect; empty if there are no tests."""
    if result["smallest_difference"] is None:
        return ""
    return (
        f"With {result['rows']:,} dev rows and these seeds, a test at the 5 % level finds a true difference of about "
        f"{result['smallest_difference']:.4f} in four of five cases (median of the pairs, before Holm's correction); "
        "a smaller one is missed more often."
    )


def _scores(result: Mapping[str, Any], *, numbered: bool) -> list[RenderableType]:
    """The table of the scores, with the differing keys that fit; where too few do, each group's name is in one column.

    `numbered`: the groups have numbers, by which the other tables call them.
    """
    telling, others, screen, width = result["differences"], result["other_differences"], console(), width_to_fill()
    for count in range(len(others), -1, -1):
        keys, hidden = [*telling, *others[:count]], others[count:]
        made = _score_table(result, keys, numbered=numbered)
        if width_of(made, screen) > width:
            made = _score_table(result, keys, numbered=numbered, broken=True)
        if width_of(made, screen) <= width:
            break
    else:
        made, hidden = _score_table(result, [], numbered=numbered), [*telling, *others]
    if not hidden:
        return [made]
    return [made, cell(f"  different: {', '.join(hidden)} (--json has the values)", style="dim")]


def _score_table(result: Mapping[str, Any], keys: Sequence[str], *, numbered: bool, broken: bool = False) -> Table:
    """The table of the scores with a column for each key; `broken`: the headings of keys are broken at their dots."""
    more = ["encoder alone"] if has_encoder_column(result) else []
    metric = METRICS[result["metric"]].words
    made = table(*(["#"] if numbered else []), *(keys or ["preset"]), "n", metric, "best", *more)
    for column in made.columns[-3 - len(more) :]:
        column.justify, column.no_wrap = "right", True
    if broken:
        for column, key in zip(made.columns[numbered:], keys, strict=False):
            column.header = Text(".\n").join(cell(part) for part in key.split("."))
    for number, group in enumerate(result["groups"], 1):
        values = [cell(text_of(group["values"][key]) if key in group["values"] else "–") for key in keys]
        alone = [mean_and_spread(group["encoder"])] if more else []
        numbers = (str(group["n"]), mean_and_spread(group), f"{group['best']:.4f}", *alone)
        made.add_row(*([str(number)] if numbered else []), *(values or [cell(group["name"])]), *numbers)
    return made


def _costs(result: Mapping[str, Any], names: Mapping[str, str]) -> Table:
    made = table("group", *COSTS, numbers=True)
    for group in result["groups"]:
        made.add_row(cell(names[group["name"]]), *cost_texts(group))
    return made


def _heading_of_tests(result: Mapping[str, Any]) -> Text:
    words = " and ".join(sorted({TESTS[test["test"]] for test in result["tests"]}))
    count = len(result["tests"])
    return heading(
        "tests", words, *([f"the {MOST_TESTS} smallest p-values of {count:,}"] if count > MOST_TESTS else [])
    )


def _tests(result: Mapping[str, Any], names: Mapping[str, str]) -> Table:
    both = ["test"] if len({test["test"] for test in result["tests"]}) > 1 else []
    made = table("A", "B", "A - B", "95 % interval", "p", "p (Holm)", *both, numbers=True)
    made.columns[1].justify = "left"
    for column in made.columns[2:]:
        column.no_wrap = True
    for test in sorted(result["tests"], key=lambda test: test["p_holm"])[:MOST_TESTS]:
        row = [*difference_texts(test), p_text(test["p_value"]), p_text(test["p_holm"])]
        style = "bold" if test["p_holm"] < 0.05 else ""
        kind = [TESTS[test["test"]]] if both else []
        made.add_row(cell(names[test["a"]]), cell(names[test["b"]]), *row, *kind, style=style)
    return made


def _unfinished(runs: Sequence[Mapping[str, Any]]) -> Table:
    made = table("run", "step", "of", "", numbers=True)
    for run in runs:
        of = "–" if run["steps"] is None else f"{run['steps']:,}"
        made.add_row(cell(run["run"]), f"{run['step']:,}", of, "running" if run["running"] else "stopped")
    return made
