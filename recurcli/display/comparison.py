"""The tables of `recur compare`, scores with costs and tests: on the screen, and as Markdown, LaTeX, CSV or JSON in a file."""

import csv
import io
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
    UNLIMITED,
    Column,
    Table,
    fits,
    heading,
    number_columns,
    show,
    styled,
    text_columns,
    to_latex,
    to_markdown,
)
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.metrics import PERPLEXITY, words_of
from recurcli.files import OutputKind, to_json, write_atomically

MAX_TESTS = 30
"""Tests that the screen lists; of more, those with the smallest p-values."""
COSTS = ("parameters", "no embeddings", "FLOPs/token", "wall s", "CPU s", "tokens/s")
TESTS = {"tango": "Tango's score test", "bootstrap": "paired bootstrap"}


def group_table(result: Mapping[str, Any], keys: Sequence[str] | None = None) -> Table:
    """Return the groups and the baselines with their scores and costs.

    A group is told by its values of the preset `keys`, by default all that differ, or without keys by its name.
    """
    keys = [*result["differences"], *result["other_differences"]] if keys is None else keys
    rows = []
    for group in result["groups"]:
        values = [text_of(group["values"][key]) if key in group["values"] else "–" for key in keys]
        rows.append([*(values or [group["name"]]), *_scores(result, group), *_costs(group)])
    for baseline in result["baselines"]:
        known = {words_of(result["metric"]): _shown_score(baseline["mean"], result)}
        if baseline["test"] is not None:
            known["test"] = _shown_score(baseline["test"], result)
        scores = [known.get(name, "–") for name in _score_columns(result)]
        rows.append([baseline["name"], *["–"] * (len(keys) - 1), *scores, *["–"] * len(COSTS)])
    columns = number_columns(*_score_columns(result), *COSTS, whole=True)
    return Table([*text_columns(*(keys or ["preset"])), *columns], rows)


def _score_columns(result: Mapping[str, Any]) -> list[str]:
    has_ensemble = result["part"] == "model" and any(group["encoder"] for group in result["groups"])
    alone = ["encoder alone"] if has_ensemble else []
    test = ["test"] if result["test_sha256"] is not None and result["split"] == "dev" else []
    return ["n", words_of(result["metric"]), "best", *alone, *test]


def _scores(result: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    """Return number of seeds, mean, best and other scores of a group as text, for `_score_columns`."""
    known = [str(group["n"]), _mean_and_spread(group, result), _shown_score(group["best"], result)]
    others = {"encoder alone": "encoder", "test": "test"}
    return known + [_mean_and_spread(group[others[name]], result) for name in _score_columns(result)[3:]]


def _shown_score(score: float, result: Mapping[str, Any], sign: str = "") -> str:
    """Return a score, or a difference of scores, with two decimals for perplexities and four for shares."""
    return f"{score:{sign}.{2 if result['metric'] == PERPLEXITY else 4}f}"


def _mean_and_spread(summary: Mapping[str, Any] | None, result: Mapping[str, Any]) -> str:
    """Return the mean of a group's scores, with the standard deviation if there are several."""
    if summary is None:
        return "–"
    spread = "" if summary["std"] is None else f" ± {_shown_score(summary['std'], result)}"
    return _shown_score(summary["mean"], result) + spread


def _costs(group: Mapping[str, Any]) -> list[str]:
    """Return the sizes and times of a group as text, for COSTS. What is unknown is a dash."""
    flops, cpu, steps = group["forward_flops_per_token"], group["cpu_seconds"], group["tokens_per_second"]
    return [
        f"{group['parameters']:,}",
        f"{group['parameters_without_embeddings']:,}",
        "–" if flops is None else f"{flops:,}",
        f"{group['seconds']:,.1f}" if steps else "–",
        f"{cpu:,.1f}" if steps else "–",
        f"{group['tokens_per_second']:,.0f}" if steps else "–",
    ]


def test_table(
    result: Mapping[str, Any], tests: Sequence[Mapping[str, Any]] | None = None, called: Mapping[str, str] | None = None
) -> Table:
    """Return the `tests` of the result, by default all, with sentences on what they can find. A significant one is bold.

    `called` maps the names of groups to those that the table has.
    """
    called, rows = called or {}, []
    for test in result["tests"] if tests is None else tests:
        limits = [_shown_score(limit, result, "+") for limit in test["interval"] or ()]
        interval = "identical predictions" if test["identical_predictions"] else " to ".join(limits) or "too few seeds"
        p_values = ("<0.001" if test[key] < 0.001 else f"{test[key]:.3f}" for key in ("p_value", "p_holm"))
        names = [called.get(test[one], test[one]) for one in ("a", "b")]
        row = [*names, _shown_score(test["difference"], result), interval, TESTS[test["test"]], *p_values]
        rows.append(styled(row, "bold" if test["p_holm"] < 0.05 else ""))
    columns = [*number_columns("A - B", "95 % interval", whole=True), Column("test", whole=True)]
    columns += number_columns("p", "p (Holm)", whole=True)
    return Table([*text_columns("A", "B"), *columns], rows, _sentences_on_tests(result))


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
    rows = [
        [
            run["run"],
            f"{run['step']:,}",
            "–" if run["steps"] is None else f"{run['steps']:,}",
            "running" if run["running"] else "stopped",
        ]
        for run in runs
    ]
    return Table([*text_columns("run"), *number_columns("step", "of", "")], rows)


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
    """Yield the tables of scores, costs and tests. Where the names of the groups do not fit, they are called by numbers."""
    rows = (*result["groups"], *result["baselines"])
    numbers = {row["name"]: str(number) for number, row in enumerate(rows, 1)}
    called: Mapping[str, str] = {}
    if not (fits(_cost_table(result, called)) and fits(_test_table(result, called))):
        called = numbers
    yield _fitting_scores(result, numbered=called is numbers)
    yield _cost_table(result, called)
    if result["tests"]:
        words = " and ".join(sorted({TESTS[test["test"]] for test in result["tests"]}))
        count = len(result["tests"])
        yield heading(
            "tests", words, *([f"the {MAX_TESTS} smallest p-values of {count:,}"] if count > MAX_TESTS else [])
        )
        yield _test_table(result, called)


def _cost_table(result: Mapping[str, Any], called: Mapping[str, str]) -> Table:
    rows = [[called.get(group["name"], group["name"]), *_costs(group)] for group in result["groups"]]
    return Table([Column("group"), *number_columns(*COSTS)], rows)


def _test_table(result: Mapping[str, Any], called: Mapping[str, str]) -> Table:
    """Return the tests with the smallest p-values; without a column for the kind of test where all are of one."""
    first = sorted(result["tests"], key=lambda test: test["p_holm"])[:MAX_TESTS]
    made = test_table(result, first, called)
    return made if len({test["test"] for test in result["tests"]}) > 1 else made.without("test")


def _fitting_scores(result: Mapping[str, Any], *, numbered: bool) -> Table:
    """Return the table of the scores, with the differing keys that fit; where too few do, with each group's name."""
    telling, others = result["differences"], result["other_differences"]
    for count in range(len(others), -1, -1):
        plain = _score_table(result, [*telling, *others[:count]], others[count:], numbered=numbered)
        broken = [replace(column, header=column.header.replace(".", ".\n")) for column in plain.columns]
        for made in (plain, replace(plain, columns=broken)):
            if fits(made):
                return made
    hidden = [*telling, *others]
    made = _score_table(result, [], hidden, numbered=numbered)
    return made if fits(made) else _score_table(result, [], [*hidden, "best"], numbered=numbered).without("best")


def _score_table(result: Mapping[str, Any], keys: Sequence[str], hidden: Sequence[str], *, numbered: bool) -> Table:
    """Return the table of the scores, with a note on what is `hidden`; `numbered`: with the number of each row before it."""
    made = group_table(result, keys).without(*COSTS)
    if numbered:
        rows = [[str(number), *row] for number, row in enumerate(made.rows, 1)]
        made = replace(made, columns=[Column("#"), *made.columns], rows=rows)
    notes = [f"  different: {', '.join(hidden)} (--json has the values)"] if hidden else []
    return replace(made, notes=notes)


def _over_table(result: Mapping[str, Any]) -> Table:
    """Return the scores over the key of `--over`, a row for each of its values and a column for each line."""
    over = result["over"]
    found: dict[float | None, dict[str, str]] = {p["value"]: {} for line in over["lines"] for p in line["points"]}
    for line in over["lines"]:
        for point in line["points"]:
            found[point["value"]][line["name"]] = _mean_and_spread(point, result)
    names = [line["name"] for line in over["lines"]]
    values = sorted(found, key=lambda value: math.inf if value is None else value)
    shown = ("null" if value is None else f"{value:g}" for value in values)
    rows = [[text, *(found[value].get(name, "–") for name in names)] for text, value in zip(shown, values, strict=True)]
    return Table(number_columns(over["key"], *names), rows)


def draw_over(result: Mapping[str, Any], path: Path) -> None:
    """Draw the scores over the key of `--over` to `path`, in the format of its ending."""
    from matplotlib.figure import Figure

    from recurcli.display.report.charts import draw_lines

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    draw_lines(figure, axis, result["over"])
    axis.set(xlabel=result["over"]["key"], ylabel=f"{result['split']} {words_of(result['metric'])}")
    axis.spines[["top", "right"]].set_visible(False)
    write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))


def write_table(result: Mapping[str, Any], output: Path) -> None:
    """Write the comparison in the format that the suffix of `output` names."""
    write_atomically(output, FORMATS[output.suffix](result))


def _markdown(result: Mapping[str, Any]) -> str:
    tests = ["", *to_markdown(test_table(result))] if result["tests"] else []
    return "\n".join([*to_markdown(group_table(result)), *tests]) + "\n"


def _latex(result: Mapping[str, Any]) -> str:
    tests = ["", *to_latex(test_table(result))] if result["tests"] else []
    return "\n".join([r"% needs \usepackage{booktabs}", *to_latex(group_table(result)), *tests]) + "\n"


def _shown(text: str) -> str:
    return escaped(text, limit=UNLIMITED)


def _csv(result: Mapping[str, Any]) -> str:
    """One row a group or baseline, with all digits. A cell of text is escaped."""
    keys = [*result["differences"], *result["other_differences"]]
    numbers = ["n", "mean", "std", "best", "parameters", "parameters_without_embeddings", "forward_flops_per_token"]
    numbers += ["seconds", "cpu_seconds", "tokens_per_second"]
    nested = [(part, key) for part in ("encoder", "test") for key in ("mean", "std", "best")]
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    heads = ["name", "preset", *keys, "metric", *numbers, *(f"{part}_{key}" for part, key in nested), "seeds", "runs"]
    writer.writerow([_shown(head) for head in heads])
    single = ({**baseline, "test": baseline["test"] and {"mean": baseline["test"]}} for baseline in result["baselines"])
    for group in (*result["groups"], *single):
        values = group.get("values", {})
        row = [
            _shown(group["name"]),
            _shown(group.get("preset", "")),
            *(_shown(text_of(values[key])) if key in values else "" for key in keys),
            result["metric"],
            *(group.get(key) for key in numbers),
            *((group.get(part) or {}).get(key) for part, key in nested),
            *(_shown(" ".join(map(str, group.get(key, ())))) for key in ("seeds", "runs")),
        ]
        writer.writerow(row)
    return paper.getvalue()


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".md": _markdown,
    ".tex": _latex,
    ".csv": _csv,
    ".json": lambda result: to_json(dict(result)),
}
"""The formats of a table by the suffix of its file."""
TABLE = OutputKind("a table", tuple(FORMATS))
