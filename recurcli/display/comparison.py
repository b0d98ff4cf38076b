"""The result of `recur compare`: on the screen, as Markdown, CSV or JSON in a file, as a plot, and as the page of --report."""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from recurcli.commands.comparison.groups import text_of
from recurcli.commands.comparison.verdict import interval_in_words
from recurcli.display.report.page import Scores, draw_lines, over_chart, score_chart, styled_figure, write_page
from recurcli.display.screen import UNLIMITED, Table, by_columns, cell, heading, show, styled
from recurcli.errors import UsageError, escaped, pluralize
from recurcli.files import OutputKind, to_json, write_atomically
from recurcli.metrics import PERPLEXITY, format_score, words_of
from recurcli.runs.predictions import Predictions, read_predictions, read_texts
from recurcli.runs.run_directory import Run, reopen_run
from recurcli.significance import LEVEL
from recurcli.targets import Target

TABLE = OutputKind("a table", (".md", ".csv", ".json"))
TESTS = {"tango": "Tango", "bootstrap": "bootstrap"}
NO_LABEL = "–"
"""Stands for a row without labels."""
MAX_DIFFERENCES, ROWS_OF_DIFFERENCE = 4, 20
"""The number of groups that the page compares with the best one row by row, and the number of rows that it shows of each."""

Result = Mapping[str, Any]


def _mean_and_spread(summary: Mapping[str, Any], result: Result) -> str:
    """Return the mean of a summary of scores, with the standard deviation if there are several."""
    spread = "" if summary.get("std") is None else f" ± {format_score(result['metric'], summary['std'])}"
    return format_score(result["metric"], summary["mean"]) + spread


def _whose(result: Result) -> str:
    """Return the models that the scores belong to, in words."""
    return {"model": "kept models", "encoder": "encoders alone", "linear": "linear models"}[result["part"]]


def _names(result: Result) -> list[str]:
    return [row["name"] for row in (*result["groups"], *result["baselines"])]


def _scores(result: Result) -> dict[str, list[str]]:
    """Return number of seeds, mean and best score of the groups and the baselines as text, by their headers."""
    groups, baselines = result["groups"], result["baselines"]
    return {
        "n": [str(group["n"]) for group in groups],
        words_of(result["metric"]): [_mean_and_spread(row, result) for row in (*groups, *baselines)],
        "best": [format_score(result["metric"], group["best"]) for group in groups],
    }


def _costs(result: Result) -> dict[str, list[str]]:
    """Return the sizes and times of the groups as text, by their headers. What is unknown is a dash."""
    columns = {
        "parameters": ("parameters", ","),
        "no embeddings": ("parameters_without_embeddings", ","),
        "FLOPs/token": ("forward_flops_per_token", ","),
        "wall s": ("seconds", ",.1f"),
        "CPU s": ("cpu_seconds", ",.1f"),
        "tokens/s": ("tokens_per_second", ",.0f"),
    }
    return {
        header: [f"{group[key]:{form}}" if group[key] else "–" for group in result["groups"]]
        for header, (key, form) in columns.items()
    }


def group_table(result: Result) -> Table:
    """Return the groups with the values of all preset keys that differ, and the baselines, with scores and costs."""
    keys = [*result["differences"], *result["other_differences"]]
    texts = {
        key: [text_of(group["values"][key]) if key in group["values"] else "–" for group in result["groups"]]
        for key in keys
    }
    if keys:
        texts[keys[0]] += [row["name"] for row in result["baselines"]]
    return by_columns({**(texts or {"preset": _names(result)}), **_scores(result), **_costs(result)})


def test_table(result: Result) -> Table:
    """Return the tests, a significant one bold, with sentences on what they can find."""
    rows, notes, metric = [], [], result["metric"]
    for test in result["tests"]:
        difference, interval = format_score(metric, test["difference"], "+"), interval_in_words(test, metric)
        p_values = ("<0.001" if test[key] < 0.001 else f"{test[key]:.3f}" for key in ("p_value", "p_holm"))
        kind = f"{TESTS[test['test']]}{', by seed' if test.get('paired_by_seed') else ''}"
        row = [test["a"], test["b"], difference, interval, *p_values, kind]
        rows.append(styled(row, "bold" if test["p_holm"] < LEVEL else ""))
    if result["smallest_difference"] is not None:
        smallest = format_score(metric, result["smallest_difference"])
        how = "median of the tests, 80 % power, 5 % level, before Holm's correction"
        notes.append(f"Minimum detectable difference on {_rows(result)}: {smallest} ({how}).")
    if len(result["tests"]) > 1:  # of one test, the sentence before says it
        notes += _of_two_seeds(result)
    if too_few := sum(test["interval"] is None and not test["identical_predictions"] for test in result["tests"]):
        of = pluralize(too_few, "test", "have", of=len(rows))
        notes.append(f"{of} too few seeds to tell any difference of {words_of(metric)}.")
    return Table(["A", "B", "A - B", "95 % interval", "p", "p (Holm)", "test"], rows, notes)


def _of_two_seeds(result: Result) -> Iterator[str]:
    """Yield which differences the tests of a group of two seeds could have found, if some of them found none."""
    twos = {group["name"] for group in result["groups"] if group["n"] == 2}
    tests = [test for test in result["tests"] if twos & {test["a"], test["b"]} and not test["identical_predictions"]]
    found = sorted(test["smallest_difference"] for test in tests if test["p_holm"] >= LEVEL and test["interval"])
    if found:
        least, most = (format_score(result["metric"], found[place]) for place in (0, -1))
        which = least if least == most else f"{least} to {most}"
        how = "80 % power, 5 % level, before Holm's correction"
        yield f"A group of two seeds could have shown a difference of {which} ({how})."


def _rows(result: Result) -> str:
    if result["metric"] == PERPLEXITY:
        return f"{pluralize(result['rows'], 'token')} of the dev text"
    return pluralize(result["rows"], f"{result['split']} row")


def _over_table(result: Result) -> Table:
    """Return the scores over the key of `--over`, a row for each of its values and a column for each line."""
    over = result["over"]
    lines = {line["name"]: {point["value"]: point for point in line["points"]} for line in over["lines"]}
    values = sorted({value for own in lines.values() for value in own}, key=lambda v: math.inf if v is None else v)
    columns = {over["key"]: ["null" if value is None else f"{value:g}" for value in values]}
    for name, own in lines.items():
        columns[name] = [_mean_and_spread(own[value], result) if value in own else "–" for value in values]
    return by_columns(columns)


def unfinished_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return the runs that are not finished, with their steps."""
    rows = []
    for run in runs:
        of, state = "–" if run["steps"] is None else f"{run['steps']:,}", "running" if run["running"] else "stopped"
        rows.append([run["run"], f"{run['step']:,}", of, state])
    return Table(["run", "step", "of", "state"], rows)


def print_comparison(result: Result) -> None:
    """Print the comparison in the width of the terminal; it ends in the verdict.

    The name of a group holds the values of the keys that differ.
    """
    first = 1 if result["same_linear_model"] else 0
    parts: list[RenderableType | Table] = [*map(cell, result["verdict"][:first]), Text("")]
    if result["groups"]:
        whose = [_whose(result), *(["the dev rows chose the models"] if result["split"] == "dev" else [])]
        hidden = ", ".join(result["other_differences"])
        notes = [f"  also different: {hidden} (--json has the values)"] if hidden else []
        parts += [
            heading(f"{result['task']}, {_rows(result)}", *whose, "mean ± standard deviation over seeds"),
            by_columns({"group": _names(result), **_scores(result)}, notes),
            by_columns({"group": [group["name"] for group in result["groups"]], **_costs(result)}),
        ]
    if result["tests"]:
        parts += [heading("tests"), test_table(result)]
    if result["over"] is not None:
        parts += [Text(""), heading(f"{words_of(result['metric'])} over {result['over']['key']}"), _over_table(result)]
    if result["unfinished"]:
        unfinished = unfinished_table(result["unfinished"])
        parts += [Text(""), heading("unfinished", "--resume continues them"), unfinished]
    if said := result["verdict"][first:]:
        parts += [Text(""), heading("verdict"), *(Padding(cell(each, style="bold"), (0, 0, 0, 2)) for each in said)]
    show(*parts)


def write_table(path: Path, result: Result) -> None:
    """Write the comparison in the format that the suffix of `path` names."""
    if path.suffix == ".json":
        write_atomically(path, to_json(dict(result)))
    elif path.suffix == ".csv":
        write_atomically(path, _to_csv(result))
    else:
        tests = ["", *to_markdown(test_table(result))] if result["tests"] else []
        said = [line for sentence in (f"{_whose(result).capitalize()}.", *result["verdict"]) for line in (sentence, "")]
        write_atomically(path, "\n".join([*map(_in_markdown, said), *to_markdown(group_table(result)), *tests, ""]))


def to_markdown(table: Table) -> list[str]:
    """Return the lines of the table in Markdown, with control characters escaped."""
    rows = [map(_in_markdown, row) for row in (table.columns, *table.texts)]
    head, *lines = ("| " + " | ".join(row) + " |" for row in rows)
    rule = "|" + "".join("---:|" if is_number else "---|" for is_number in table.numeric)
    return [head, rule, *lines, *(line for note in table.notes for line in ("", note))]


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", escaped(text, limit=UNLIMITED))


def _to_csv(result: Result) -> str:
    """Return a line for each group and baseline: the preset keys that differ, and its names and numbers with all digits."""
    rows = [
        {
            escaped(key): escaped(value, 1000) if isinstance(value, str) else value
            for key, value in {**row.get("values", {}), **row}.items()
            if not isinstance(value, list | dict)
        }
        for row in (*({**group, "part": result["part"]} for group in result["groups"]), *result["baselines"])
    ]
    paper = io.StringIO()
    table = csv.DictWriter(paper, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return paper.getvalue()


def write_plot(path: Path, result: Result) -> None:
    """Draw the scores over the key of `--over` to `path`, in the format of its ending."""
    with styled_figure(6, 4) as figure:
        draw_lines(figure.subplots(), result["over"], result["metric"], result["split"])
        write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))


def write_report(path: Path, result: Result) -> None:
    """Write the page: scores of the groups, the tests, and the rows on which they differ.

    Raises UsageError if no run is finished, and for language models.
    """
    if not result["groups"]:
        raise UsageError(f"{path}: not written: no run is finished")
    if result["metric"] == PERPLEXITY:
        raise UsageError(f"{path}: not written: --report is for classifiers; --output and --plot take language models")
    rows = {}
    for group in result["groups"]:
        for name in group["runs"]:  # one at a time: each keeps files open
            rows[name] = read_predictions(_open(group, name), result["part"], result["split"])
    whose = result["metric"], result["split"]
    scores = [
        Scores(group["name"], group["mean"], low, high, group["scores"])
        for group in result["groups"]
        for low, high in [group["interval"] or (group["mean"], group["mean"])]
    ]
    baselines = {f"baseline: {row['name']}": row["mean"] for row in result["baselines"]}
    write_page(
        path,
        "comparison.html",
        title=f"{result['task']}: {len(result['groups'])} groups of runs compared",
        rows=_rows(result),
        whose=_whose(result),
        chose=result["split"] == "dev",
        verdict=result["verdict"],
        score_plot=score_chart(scores, baselines, *whose),
        groups=group_table(result),
        tests=test_table(result),
        over=result["over"] and over_chart(result["over"], *whose),
        key=result["over"] and result["over"]["key"],
        differences=_differences(result, rows) if result["split"] == "dev" else [],
        has_labels=next(iter(rows.values())).target.has_labels,
        best=result["groups"][0]["name"],
        unfinished=unfinished_table(result["unfinished"]),
    )


def _open(group: Mapping[str, Any], name: str) -> Run:
    """Open the run `name` of a group again. Raises StorageError if a new training has replaced it."""
    return reopen_run(Path(name), group["manifests"][group["runs"].index(name)])


def _differences(result: Result, rows: Mapping[str, Predictions]) -> list[dict[str, Any]]:
    """Return the rows on which the best group and another group differ, for the first MAX_DIFFERENCES other groups.

    A group predicts a row correctly if most of its runs do. Of numbers they are the rows on which one group is nearer, those
    first on which it is nearer by most.
    """
    best, *others = result["groups"][: 1 + MAX_DIFFERENCES]
    texts, found = read_texts(_open(best, best["runs"][0])), []
    if not texts:  # `finetuning.keep_texts=false`
        return []
    target = rows[best["runs"][0]].target
    worths = {group["name"]: _worths(target, [rows[name] for name in group["runs"]]) for group in (best, *others)}
    for other in others:
        for right, wrong in ((best, other), (other, best)):
            ours, theirs = worths[right["name"]], worths[wrong["name"]]
            summary = f"{right['name']} is nearer than {wrong['name']}"
            if target.has_labels:
                summary = f"{right['name']} is right, {wrong['name']} is not"
                numbers = np.flatnonzero((ours > 0.5) & (theirs < 0.5)).tolist()
            else:
                numbers = np.argsort(theirs - ours, kind="stable")[: int((ours > theirs).sum())].tolist()
            predictions = rows[wrong["runs"][0]].predictions
            listed = [
                {
                    **texts[n]._asdict(),
                    "label": target.text_of(texts[n].label) or NO_LABEL,
                    "prediction": target.text_of(predictions[n]) or NO_LABEL,
                }
                for n in numbers[:ROWS_OF_DIFFERENCE]
            ]
            count = {"count": len(numbers), "counted": pluralize(len(numbers), "row")}
            found.append({"summary": summary, **count, "rows": listed})
    return found


def _worths(target: Target, runs: Sequence[Predictions]) -> NDArray[np.float64]:
    """Return the share of the runs that predict the row correctly, for each row (N,); of numbers, less their mean distance."""
    if target.has_labels:
        return np.mean([run.hits for run in runs], axis=0)
    return -np.mean([np.abs(np.subtract(*run.encoded())) for run in runs], axis=0)
