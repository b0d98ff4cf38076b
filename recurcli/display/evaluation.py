"""The report of `recur eval`: scores, classes, and which of them are taken for each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from recurcli.display.tables import (
    Cell,
    Styled,
    Table,
    by_columns,
    fits,
    heading,
    listing,
    number_columns,
    show,
    text_columns,
)
from recurcli.display.training import baseline_rows, perplexity_rows
from recurcli.errors import pluralize
from recurcli.evaluation.metrics import METRICS, cells_of

MAX_HEAD = 12
"""The number of characters of a label above which the columns of a confusion table are numbered."""
MAX_CONFUSIONS = 12
"""Pairs that are listed where the whole table does not fit."""
MAX_CLASSES = 20
"""Classes up to which the whole table is printed, if it fits."""


def metric_table(result: Mapping[str, Any]) -> Table:
    """Return the metrics with their intervals, the losses, the calibration error and the baselines."""
    report, calibration = result["metrics"], result["calibration"]
    rows: list[Sequence[Cell]] = []
    for name, metric in METRICS.items():
        limits = result["intervals"].get(name)
        interval = f"{limits[0]:.4f} – {limits[1]:.4f}" if limits else ""
        rows.append([metric.words, f"{report[name]:.4f}", interval])
    rows.append(["loss (cross-entropy)", f"{report['loss']:.4f}"])
    rows.append(["loss of the probabilities", f"{calibration['loss']:.4f}"])
    rows.append(["calibration error (ECE)", f"{calibration['ece']:.4f}"])
    rows += baseline_rows(result)
    return Table([*text_columns("metric"), *number_columns("value", "95 % interval")], rows)


def class_table(report: Mapping[str, Any]) -> Table:
    """Return the scores of each class, its number of rows, and how often it is predicted."""
    predicted: Counter[int] = Counter()
    for (_, column), rows in cells_of(report).items():
        predicted[column] += rows
    own = report["per_class"].values()
    columns = {name: [f"{scores[name.lower()]:.4f}" for scores in own] for name in ("precision", "recall", "F1")}
    columns["rows"] = [f"{scores['support']:,}" for scores in own]
    columns["predicted"] = [f"{predicted[place]:,}" for place in range(len(own))]
    return by_columns({"label": list(report["per_class"])}, columns)


def print_evaluation(result: Mapping[str, Any]) -> None:
    """Print the metrics, the classes and the confusion table, in the width of the terminal."""
    report = result["metrics"]
    title = heading(result["run"], result["split"], pluralize(result["rows"], "row"))
    show(title, metric_table(result), class_table(report), *_confusions(report))


def print_perplexity(result: Mapping[str, Any]) -> None:
    """Print the perplexity of a language model on a text."""
    rows = perplexity_rows({**result["metrics"], "tokens": result["tokens"]}, carry=result["carry"])
    rows.append(["not in the vocabulary", pluralize(result["unknown"], "token")])
    title = heading(
        result["run"], result["split"], pluralize(result["rows"], "line"), pluralize(result["windows"], "window")
    )
    show(title, listing(rows))


def _confusions(report: Mapping[str, Any]) -> tuple[Text, Table]:
    """Return the whole table of MAX_CLASSES classes at most if it fits, else its largest entries."""
    labels = report["names"]
    if len(labels) <= MAX_CLASSES and fits(made := _matrix(labels, report["confusion"])):
        return heading("confusion", "rows are true labels, columns are predictions"), made
    cells = cells_of(report)
    if all(right == predicted for right, predicted in cells):
        return heading("confusion", "no row is predicted wrongly"), listing([])
    return heading("confusion", "the most frequent; --json has all"), _largest(labels, cells)


def _matrix(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    headers = names
    if max(map(len, names)) > MAX_HEAD:
        headers = [str(number) for number in range(1, len(names) + 1)]
        names = [f"{number} {label}" for number, label in zip(headers, names, strict=True)]
    rows = [
        [name, *(_count(count, right=place == column) for column, count in enumerate(row))]
        for place, (name, row) in enumerate(zip(names, counts, strict=True))
    ]
    return Table([*text_columns(""), *number_columns(*headers)], rows)


def _count(count: int, *, right: bool) -> Cell:
    return Styled(str(count) if count else "·", "bold" if right else "" if count else "dim")


def _largest(names: Sequence[str], cells: Mapping[tuple[int, int], int]) -> Table:
    support: Counter[int] = Counter()
    for (right, _), count in cells.items():
        support[right] += count
    pairs = [(count, right, predicted) for (right, predicted), count in cells.items() if right != predicted]
    rows = [
        [names[right], names[predicted], f"{count:,}", f"{count / support[right]:.1%}"]
        for count, right, predicted in sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:MAX_CONFUSIONS]
    ]
    return Table([*text_columns("true label", "prediction"), *number_columns("rows", "share of true label")], rows)
