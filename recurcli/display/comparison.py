"""The result of `recur compare` on the screen: scores, costs, tests, and runs that are not finished."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recurcli.commands.comparison.groups import text_of
from recurcli.display.tables import cell, console, heading, show, table, width_of, width_to_fill
from recurcli.errors import pluralize
from recurcli.evaluation.metrics import METRICS

MAX_TESTS = 30
"""Tests that are listed; of more, those with the smallest p-values."""
COSTS = ("parameters", "no embeddings", "FLOPs/token", "wall s", "CPU s", "tokens/s")
"""The columns of `cost_texts`."""
TESTS = {"mcnemar": "exact McNemar", "bootstrap": "paired bootstrap"}


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print the comparison in the width of the terminal."""
    shown: list[RenderableType] = []
    if result["groups"]:
        whose = "encoders alone" if result["part"] == "encoder" else "models"
        shown += [
            heading(
                f"{result['task']}, {pluralize(result['rows'], 'dev row')}",
                whose,
                "mean ± standard deviation over seeds",
            )
        ]
        names = {group["name"]: group["name"] for group in (*result["groups"], *result["baselines"])}
        screen = console()
        tables = (_costs(result, names), _tests(result, names))
        numbered = any(width_of(made, screen) > width_to_fill() for made in tables)
        if numbered:
            names = {name: str(number) for number, name in enumerate(names, 1)}
        shown += [*_scores(result, numbered=numbered), _costs(result, names)]
        if result["tests"]:
            shown += [_heading_of_tests(result), _tests(result, names), cell(sentence_on_tests(result), style="dim")]
    if result["unfinished"]:
        shown += [Text(""), heading("unfinished", "--resume continues them"), _unfinished(result["unfinished"])]
    show(*shown)


def mean_and_spread(summary: Mapping[str, Any] | None) -> str:
    """The mean of a group's scores, with the standard deviation if there are several."""
    if summary is None:
        return "–"
    return f"{summary['mean']:.4f}" + ("" if summary["std"] is None else f" ± {summary['std']:.4f}")


def has_encoder_column(result: Mapping[str, Any]) -> bool:
    """Whether the encoders alone stand beside the models: some have an ensemble."""
    return result["part"] == "model" and any(group["encoder"] for group in result["groups"])


def cost_texts(group: Mapping[str, Any]) -> list[str]:
    """Return the sizes and times of a group as text. What is unknown is a dash."""
    flops = group["forward_flops_per_token"]
    counts = [f"{group['parameters']:,}", f"{group['parameters_without_embeddings']:,}"]
    cpu = "–" if group["cpu_seconds"] is None else f"{group['cpu_seconds']:,.1f}"
    speed = [f"{group['seconds']:,.1f}", cpu, f"{group['tokens_per_second']:,.0f}"]
    return [*counts, "–" if flops is None else f"{flops:,}", *speed]


def difference_texts(test: Mapping[str, Any]) -> list[str]:
    """Return the difference of two groups and its interval as text."""
    if test["interval"] is None:
        return [f"{test['difference']:.4f}", "too few seeds"]
    low, high = test["interval"]
    return [f"{test['difference']:.4f}", f"{low:+.4f} to {high:+.4f}"]


def p_text(p_value: float) -> str:
    """A p-value of three decimals."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def score_columns(result: Mapping[str, Any]) -> list[str]:
    """Return the headings of `score_texts`."""
    test = ["test"] if result["test_sha256"] is not None else []
    alone = ["encoder alone"] if has_encoder_column(result) else []
    return ["n", METRICS[result["metric"]].words, "best", *alone, *test]


def score_texts(result: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    """Return number of seeds, mean, best and other scores of a group as text."""
    test = [mean_and_spread(group["test"])] if result["test_sha256"] is not None else []
    alone = [mean_and_spread(group["encoder"])] if has_encoder_column(result) else []
    return [str(group["n"]), mean_and_spread(group), f"{group['best']:.4f}", *alone, *test]


def baseline_texts(result: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Return the scores of a baseline as text, for the columns of `score_texts`."""
    texts = dict.fromkeys(score_columns(result), "–")
    test = "–" if baseline["test"] is None else f"{baseline['test']:.4f}"
    texts |= {METRICS[result["metric"]].words: f"{baseline['mean']:.4f}", **({"test": test} if "test" in texts else {})}
    return list(texts.values())


def sentence_on_tests(result: Mapping[str, Any]) -> str:
    """Return sentences on the difference that can be detected and on tests without an interval; empty if there are none."""
    sentences, tests = [], result["tests"]
    known = sum(test["smallest_difference"] is not None for test in tests)
    if known:
        median = "" if known == 1 else f", median of {known} tests"
        sentences.append(
            f"Minimum detectable difference on {pluralize(result['rows'], 'dev row')}: {result['smallest_difference']:.4f} "
            f"(80 % power, 5 % level, before Holm's correction{median})."
        )
    if too_few := sum(test["interval"] is None for test in tests):
        of = pluralize(too_few, "test", "have", of=len(tests))
        sentences.append(f"{of} too few seeds to tell any difference of {METRICS[result['metric']].words}.")
    return " ".join(sentences)


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
        if width_of(made, screen) > width:
            made, hidden = _score_table(result, [], numbered=numbered, but="best"), [*hidden, "best"]
    if not hidden:
        return [made]
    return [made, cell(f"  different: {', '.join(hidden)} (--json has the values)", style="dim")]


def _score_table(
    result: Mapping[str, Any], keys: Sequence[str], *, numbered: bool, broken: bool = False, but: str = ""
) -> Table:
    """The table of the scores with a column for each key; `broken`: the headings of keys are broken at their dots.

    The column of scores `but` is left out.
    """
    columns = score_columns(result)
    kept = [place for place, name in enumerate(columns) if name != but]
    scores = [columns[place] for place in kept]
    made = table(*(["#"] if numbered else []), *(keys or ["preset"]), *scores)
    for column in made.columns[-len(scores) :]:
        column.justify, column.no_wrap = "right", True
    if broken:
        for column, key in zip(made.columns[numbered:], keys, strict=False):
            column.header = Text(".\n").join(cell(part) for part in key.split("."))
    for number, group in enumerate(result["groups"], 1):
        values = [cell(text_of(group["values"][key]) if key in group["values"] else "–") for key in keys]
        texts = score_texts(result, group)
        numbers = [texts[place] for place in kept]
        made.add_row(*([str(number)] if numbered else []), *(values or [cell(group["name"])]), *numbers)
    for number, baseline in enumerate(result["baselines"], len(result["groups"]) + 1):
        texts, more = baseline_texts(result, baseline), ["–"] * (len(keys) - 1)
        numbers = [texts[place] for place in kept]
        made.add_row(*([str(number)] if numbered else []), cell(baseline["name"]), *more, *numbers)
    return made


def _costs(result: Mapping[str, Any], names: Mapping[str, str]) -> Table:
    made = table("group", *COSTS, numbers=True)
    for group in result["groups"]:
        made.add_row(cell(names[group["name"]]), *cost_texts(group))
    return made


def _heading_of_tests(result: Mapping[str, Any]) -> Text:
    words = " and ".join(sorted({TESTS[test["test"]] for test in result["tests"]}))
    count = len(result["tests"])
    return heading("tests", words, *([f"the {MAX_TESTS} smallest p-values of {count:,}"] if count > MAX_TESTS else []))


def _tests(result: Mapping[str, Any], names: Mapping[str, str]) -> Table:
    both = ["test"] if len({test["test"] for test in result["tests"]}) > 1 else []
    made = table("A", "B", "A - B", "95 % interval", "p", "p (Holm)", *both, numbers=True)
    made.columns[1].justify = "left"
    for column in made.columns[2:]:
        column.no_wrap = True
    for test in sorted(result["tests"], key=lambda test: test["p_holm"])[:MAX_TESTS]:
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
