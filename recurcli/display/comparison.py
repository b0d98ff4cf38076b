"""The tables of `recur compare`, scores with costs and tests: on the screen, and as Markdown, LaTeX, CSV or JSON in a file."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from recurcli.commands.comparison.groups import text_of
from recurcli.display.tables import (
    Table,
    by_columns,
    heading,
    number_columns,
    show,
    styled,
    text_columns,
    to_csv,
    to_latex,
    to_markdown,
)
from recurcli.errors import pluralize
from recurcli.evaluation.metrics import PERPLEXITY, words_of
from recurcli.files import OutputKind, to_json, write_atomically

MAX_TESTS = 30
"""Tests that the screen lists; of more, those with the smallest p-values."""
TESTS = {"tango": "Tango's score test", "bootstrap": "paired bootstrap"}


def group_table(result: Mapping[str, Any]) -> Table:
    """Return the groups, told by the values of all preset keys that differ, and the baselines, with scores and costs."""
    keys = [*result["differences"], *result["other_differences"]]
    texts = {
        key: [text_of(group["values"][key]) if key in group["values"] else "–" for group in result["groups"]]
        for key in keys
    }
    if keys:
        texts[keys[0]] += [row["name"] for row in result["baselines"]]
    return by_columns(texts or {"preset": _names(result)}, {**_scores(result), **_costs(result)})


def _names(result: Mapping[str, Any]) -> list[str]:
    return [row["name"] for row in (*result["groups"], *result["baselines"])]


def _scores(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return number of seeds, mean, best and other scores of the groups and the baselines as text, by their headers."""
    groups, baselines = result["groups"], result["baselines"]
    columns = {
        "n": [str(group["n"]) for group in groups],
        words_of(result["metric"]): [_mean_and_spread(row, result) for row in (*groups, *baselines)],
        "best": [_shown_score(group["best"], result) for group in groups],
    }
    if result["part"] == "model" and any(group["encoder"] for group in groups):
        columns["encoder alone"] = [_mean_and_spread(group["encoder"], result) for group in groups]
    if result["test_sha256"] is not None and result["split"] == "dev":
        alone = ("–" if row["test"] is None else _shown_score(row["test"], result) for row in baselines)
        columns["test"] = [*(_mean_and_spread(group["test"], result) for group in groups), *alone]
    return columns


def _shown_score(score: float, result: Mapping[str, Any], sign: str = "") -> str:
    """Return a score, or a difference of scores, with two decimals for perplexities and four for shares."""
    return f"{score:{sign}.{2 if result['metric'] == PERPLEXITY else 4}f}"


def _mean_and_spread(summary: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str:
    """Return the mean of a summary of scores, with the standard deviation if there are several; – if there is none."""
    if summary is None:
        return "–"
    spread = "" if summary.get("std") is None else f" ± {_shown_score(summary['std'], result)}"
    return _shown_score(summary["mean"], result) + spread


def _costs(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the sizes and times of the groups as text, by their headers. What is unknown is a dash."""

    def shown(key: str, form: str, of_steps: bool = False) -> list[str]:
        known = [group[key] is not None and not (of_steps and not group["tokens_per_second"]) for group in groups]
        return [f"{group[key]:{form}}" if there else "–" for group, there in zip(groups, known, strict=True)]

    groups = result["groups"]
    return {
        "parameters": shown("parameters", ","),
        "no embeddings": shown("parameters_without_embeddings", ","),
        "FLOPs/token": shown("forward_flops_per_token", ","),
        "wall s": shown("seconds", ",.1f", of_steps=True),
        "CPU s": shown("cpu_seconds", ",.1f", of_steps=True),
        "tokens/s": shown("tokens_per_second", ",.0f", of_steps=True),
    }


def test_table(result: Mapping[str, Any], *, kinds: bool = True) -> Table:
    """Return the tests with sentences on what they can find. A significant one is bold. `kinds` names the kind of each."""
    rows = []
    for test in result["tests"]:
        limits = [_shown_score(limit, result, "+") for limit in test["interval"] or ()]
        interval = "identical predictions" if test["identical_predictions"] else " to ".join(limits) or "too few seeds"
        kind = [TESTS[test["test"]]] if kinds else []
        p_values = ("<0.001" if test[key] < 0.001 else f"{test[key]:.3f}" for key in ("p_value", "p_holm"))
        row = [test["a"], test["b"], _shown_score(test["difference"], result), interval, *kind, *p_values]
        rows.append(styled(row, "bold" if test["p_holm"] < 0.05 else ""))
    columns = [*text_columns("A", "B"), *number_columns("A - B", "95 % interval")]
    columns += [*text_columns(*(["test"] if kinds else [])), *number_columns("p", "p (Holm)")]
    return Table(columns, rows, _sentences_on_tests(result))


def _sentences_on_tests(result: Mapping[str, Any]) -> list[str]:
    """Return a note on the difference that can be detected and on tests without an interval, or [] if there are none."""
    sentences, tests = [], result["tests"]
    known = sum(test["smallest_difference"] is not None for test in tests)
    if known:
        median, rows = "" if known == 1 else f", median of {known} tests", _rows(result)
        sentences.append(
            f"Minimum detectable difference on {rows}: {_shown_score(result['smallest_difference'], result)} "
            f"(80 % power, 5 % level, before Holm's correction{median})."
        )
    if too_few := sum(test["interval"] is None and not test["identical_predictions"] for test in tests):
        of = pluralize(too_few, "test", "have", of=len(tests))
        sentences.append(f"{of} too few seeds to tell any difference of {words_of(result['metric'])}.")
    return [" ".join(sentences)] if sentences else []


def _rows(result: Mapping[str, Any]) -> str:
    if result["metric"] == PERPLEXITY:
        return f"{pluralize(result['rows'], 'token')} of the dev text"
    return pluralize(result["rows"], f"{result['split']} row")


def unfinished_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return the runs that are not finished, with their steps."""
    rows = []
    for run in runs:
        steps = "–" if run["steps"] is None else f"{run['steps']:,}"
        rows.append([run["run"], f"{run['step']:,}", steps, "running" if run["running"] else "stopped"])
    return Table([*text_columns("run"), *number_columns("step", "of", "state")], rows)


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print the comparison in the width of the terminal."""
    shown: list[RenderableType | Table] = []
    if result["groups"]:
        whose = "encoders alone" if result["part"] == "encoder" else "models"
        whose = "language models" if result["metric"] == PERPLEXITY else whose
        rows = f"{result['task']}, {_rows(result)}"
        shown.append(heading(rows, whose, "mean ± standard deviation over seeds"))
        shown += _tables(result)
        if result["over"] is not None:
            shown += [heading(f"{words_of(result['metric'])} over {result['over']['key']}"), _over_table(result)]
    if result["unfinished"]:
        shown += [Text(""), heading("unfinished", "--resume continues them"), unfinished_table(result["unfinished"])]
    show(*shown)


def _tables(result: Mapping[str, Any]) -> Iterator[RenderableType | Table]:
    """Yield the tables of scores, costs and tests. The name of a group holds the values of the keys that differ."""
    hidden = ", ".join(result["other_differences"])
    notes = [f"  also different: {hidden} (--json has the values)"] if hidden else []
    yield by_columns({"group": _names(result)}, _scores(result), notes)
    yield by_columns({"group": [group["name"] for group in result["groups"]]}, _costs(result))
    if tests := result["tests"]:
        kinds = sorted({TESTS[test["test"]] for test in tests})
        more = [f"the {MAX_TESTS} smallest p-values of {len(tests):,}"] if len(tests) > MAX_TESTS else []
        yield heading("tests", " and ".join(kinds), *more)
        first = sorted(tests, key=lambda test: test["p_holm"])[:MAX_TESTS]
        made = test_table({**result, "tests": first}, kinds=len(kinds) > 1)
        yield replace(made, notes=_sentences_on_tests(result))


def _over_table(result: Mapping[str, Any]) -> Table:
    """Return the scores over the key of `--over`, a row for each of its values and a column for each line."""
    over = result["over"]
    lines = {line["name"]: {point["value"]: point for point in line["points"]} for line in over["lines"]}
    values = sorted({value for own in lines.values() for value in own}, key=lambda v: math.inf if v is None else v)
    columns = {over["key"]: ["null" if value is None else f"{value:g}" for value in values]}
    for name, own in lines.items():
        columns[name] = [_mean_and_spread(own.get(value), result) for value in values]
    return by_columns({}, columns)


def draw_over(result: Mapping[str, Any], path: Path) -> None:
    """Draw the scores over the key of `--over` to `path`, in the format of its ending."""
    from matplotlib.figure import Figure

    from recurcli.display.report.charts import draw_lines

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    draw_lines(axis, result["over"])
    axis.set(xlabel=result["over"]["key"], ylabel=f"{result['split']} {words_of(result['metric'])}")
    axis.spines[["top", "right"]].set_visible(False)
    write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))


def write_table(result: Mapping[str, Any], output: Path) -> None:
    """Write the comparison in the format that the suffix of `output` names."""
    write_atomically(output, FORMATS[output.suffix](result))


def _tables_in(form: Callable[[Table], list[str]], *head: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that returns the table of a comparison, and that of its tests, in a form of tables.py."""

    def text(result: Mapping[str, Any]) -> str:
        tests = ["", *form(test_table(result))] if result["tests"] else []
        return "\n".join([*head, *form(group_table(result)), *tests, ""])

    return text


def _csv(result: Mapping[str, Any]) -> str:
    """One row a group or baseline, with all digits."""
    keys = [*result["differences"], *result["other_differences"]]
    numbers = ["n", "mean", "std", "best", "parameters", "parameters_without_embeddings", "forward_flops_per_token"]
    numbers += ["seconds", "cpu_seconds", "tokens_per_second"]
    nested = [(part, key) for part in ("encoder", "test") for key in ("mean", "std", "best")]
    heads = ["name", "preset", *keys, "metric", *numbers, *(f"{part}_{key}" for part, key in nested), "seeds", "runs"]
    single = ({**baseline, "test": baseline["test"] and {"mean": baseline["test"]}} for baseline in result["baselines"])
    rows = []
    for group in (*result["groups"], *single):
        values = {key: text_of(value) for key, value in group.get("values", {}).items()}
        row = [group["name"], group.get("preset"), *(values.get(key) for key in keys), result["metric"]]
        row += [*(group.get(key) for key in numbers), *((group.get(part) or {}).get(key) for part, key in nested)]
        row += [" ".join(map(str, group.get(key, ()))) for key in ("seeds", "runs")]
        rows.append(["" if value is None else str(value) for value in row])
    return "\n".join([*to_csv(Table(text_columns(*heads), rows)), ""])


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".md": _tables_in(to_markdown),
    ".tex": _tables_in(to_latex, r"% needs \usepackage{booktabs}"),
    ".csv": _csv,
    ".json": lambda result: to_json(dict(result)),
}
"""The formats of a table by the suffix of its file."""
TABLE = OutputKind("a table", tuple(FORMATS))
