"""The tables of `recur compare`, scores with costs and tests: on the screen, and as Markdown, LaTeX, CSV or JSON in a file."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from recurcli.commands.comparison.groups import text_of
from recurcli.display.tables import (
    Table,
    by_columns,
    heading,
    percent,
    percent_interval,
    show,
    styled,
    to_latex,
    to_markdown,
)
from recurcli.errors import escaped, pluralize
from recurcli.files import OutputKind, to_json, write_atomically
from recurcli.metrics import PERPLEXITY, words_of

TESTS = {"tango": "Tango", "bootstrap": "bootstrap"}


def group_table(result: Mapping[str, Any]) -> Table:
    """Return the groups with the values of all preset keys that differ, and the baselines, with scores and costs."""
    keys = [*result["differences"], *result["other_differences"]]
    texts = {
        key: [text_of(group["values"][key]) if key in group["values"] else "–" for group in result["groups"]]
        for key in keys
    }
    if keys:
        texts[keys[0]] += [row["name"] for row in result["baselines"]]
    return by_columns({**(texts or {"preset": _names(result)}), **_scores(result), **_costs(result)})


def _names(result: Mapping[str, Any]) -> list[str]:
    return [row["name"] for row in (*result["groups"], *result["baselines"])]


def _scores(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return number of seeds, mean and best score of the groups and the baselines as text, by their headers."""
    groups, baselines = result["groups"], result["baselines"]
    return {
        "n": [str(group["n"]) for group in groups],
        words_of(result["metric"]): [_mean_and_spread(row, result) for row in (*groups, *baselines)],
        "best": [_score(group["best"], result) for group in groups],
    }


def _score(score: float, result: Mapping[str, Any], sign: str = "") -> str:
    """Return a score, or a difference of scores: a perplexity with two decimals, others in per cent."""
    return f"{score:{sign}.2f}" if result["metric"] == PERPLEXITY else percent(score, sign)


def _mean_and_spread(summary: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str:
    """Return the mean of a summary of scores, with the standard deviation if there are several; – if there is none."""
    if summary is None:
        return "–"
    spread = "" if summary.get("std") is None else f" ± {_score(summary['std'], result)}"
    return _score(summary["mean"], result) + spread


def _costs(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the sizes and times of the groups as text, by their headers. What is unknown is a dash."""

    def shown(key: str, form: str) -> list[str]:
        return [f"{group[key]:{form}}" if group[key] else "–" for group in result["groups"]]

    return {
        "parameters": shown("parameters", ","),
        "no embeddings": shown("parameters_without_embeddings", ","),
        "FLOPs/token": shown("forward_flops_per_token", ","),
        "wall s": shown("seconds", ",.1f"),
        "CPU s": shown("cpu_seconds", ",.1f"),
        "tokens/s": shown("tokens_per_second", ",.0f"),
    }


def test_table(result: Mapping[str, Any]) -> Table:
    """Return the tests, a significant one bold, with sentences on what they can find."""
    rows = []
    for test in result["tests"]:
        interval = "too few seeds"
        if test["identical_predictions"]:
            interval = "identical predictions"
        elif test["interval"] and result["metric"] == PERPLEXITY:
            interval = " – ".join(_score(limit, result, "+") for limit in test["interval"])
        elif test["interval"]:
            interval = percent_interval(test["interval"], "+")
        p_values = ("<0.001" if test[key] < 0.001 else f"{test[key]:.3f}" for key in ("p_value", "p_holm"))
        row = [test["a"], test["b"], _score(test["difference"], result, "+"), interval, *p_values, TESTS[test["test"]]]
        rows.append(styled(row, "bold" if test["p_holm"] < 0.05 else ""))
    headers = ["A", "B", "A - B", "95 % interval", "p", "p (Holm)", "test"]
    return Table(headers, rows, _sentences_on_tests(result))


def _sentences_on_tests(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on the difference that can be detected and on tests without an interval."""
    sentences, tests = [], result["tests"]
    if result["smallest_difference"] is not None:
        smallest = _score(result["smallest_difference"], result)
        sentences.append(
            f"Minimum detectable difference on {_rows(result)}: {smallest} "
            "(80 % power, 5 % level, before Holm's correction; the median of the tests)."
        )
    if too_few := sum(test["interval"] is None and not test["identical_predictions"] for test in tests):
        of = pluralize(too_few, "test", "have", of=len(tests))
        sentences.append(f"{of} too few seeds to tell any difference of {words_of(result['metric'])}.")
    return sentences


def _rows(result: Mapping[str, Any]) -> str:
    if result["metric"] == PERPLEXITY:
        return f"{pluralize(result['rows'], 'token')} of the dev text"
    return pluralize(result["rows"], f"{result['split']} row")


def unfinished_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return the runs that are not finished, with their steps."""
    columns = {
        "run": [run["run"] for run in runs],
        "step": [f"{run['step']:,}" for run in runs],
        "of": ["–" if run["steps"] is None else f"{run['steps']:,}" for run in runs],
        "state": ["running" if run["running"] else "stopped" for run in runs],
    }
    return by_columns(columns)


def print_comparison(result: Mapping[str, Any]) -> None:
    """Print the comparison in the width of the terminal."""
    show(*_parts(result))


def _parts(result: Mapping[str, Any]) -> Iterator[RenderableType | Table]:
    """Yield what the screen shows. The name of a group holds the values of the keys that differ."""
    metric, over = words_of(result["metric"]), result["over"]
    if result["groups"]:
        whose = "encoders alone" if result["part"] == "encoder" else "models"
        yield heading(f"{result['task']}, {_rows(result)}", whose, "mean ± standard deviation over seeds")
        hidden = ", ".join(result["other_differences"])
        notes = [f"  also different: {hidden} (--json has the values)"] if hidden else []
        yield by_columns({"group": _names(result), **_scores(result)}, notes)
        yield by_columns({"group": [group["name"] for group in result["groups"]], **_costs(result)})
    if result["tests"]:
        yield heading("tests")
        yield test_table(result)
    if over is not None:
        yield heading(f"{metric} over {over['key']}")
        yield _over_table(result)
    if result["unfinished"]:
        yield Text("")
        yield heading("unfinished", "--resume continues them")
        yield unfinished_table(result["unfinished"])


def _over_table(result: Mapping[str, Any]) -> Table:
    """Return the scores over the key of `--over`, a row for each of its values and a column for each line."""
    over = result["over"]
    lines = {line["name"]: {point["value"]: point for point in line["points"]} for line in over["lines"]}
    values = sorted({value for own in lines.values() for value in own}, key=lambda v: math.inf if v is None else v)
    columns = {over["key"]: ["null" if value is None else f"{value:g}" for value in values]}
    for name, own in lines.items():
        columns[name] = [_mean_and_spread(own.get(value), result) for value in values]
    return by_columns(columns)


def draw_over(result: Mapping[str, Any], path: Path) -> None:
    """Draw the scores over the key of `--over` to `path`, in the format of its ending."""
    from matplotlib.figure import Figure

    from recurcli.display.report.charts import draw_lines, write_figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    draw_lines(figure.subplots(), result["over"], f"{result['split']} {words_of(result['metric'])}")
    write_figure(path, figure)


def write_table(result: Mapping[str, Any], output: Path) -> None:
    """Write the comparison in the format that the suffix of `output` names."""
    write_atomically(output, FORMATS[output.suffix](result))


def _tables_in(form: Callable[[Table], list[str]], *head: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that returns the table of a comparison, and that of its tests, in a form of tables.py."""

    def text(result: Mapping[str, Any]) -> str:
        tests = ["", *form(test_table(result))] if result["tests"] else []
        return "\n".join([*head, *form(group_table(result)), *tests, ""])

    return text


def _to_csv(result: Mapping[str, Any]) -> str:
    """Return a line for each group and baseline: the preset keys that differ, and its names and numbers with all digits."""
    rows = [
        {
            escaped(key): escaped(value, 1000) if isinstance(value, str) else value
            for key, value in {**row.get("values", {}), **row}.items()
            if not isinstance(value, list | dict)
        }
        for row in (*result["groups"], *result["baselines"])
    ]
    paper = io.StringIO()
    table = csv.DictWriter(paper, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return paper.getvalue()


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".md": _tables_in(to_markdown),
    ".tex": _tables_in(to_latex, r"% needs \usepackage{booktabs}"),
    ".csv": _to_csv,
    ".json": lambda result: to_json(dict(result)),
}
"""The formats of a table by the suffix of its file."""
TABLE = OutputKind("a table", tuple(FORMATS))
