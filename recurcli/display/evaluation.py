"""The report of `recur eval`: scores, classes, and which of them are taken for each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from recurcli.display.tables import add_baselines, add_perplexity, cell, heading, show, table, width_to_fill
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.metrics import METRICS, cells_of

MAX_LABEL = 24
"""Columns that a label may take beside its confusions."""
MAX_CONFUSIONS = 12
"""Pairs that are listed where the whole table does not fit."""
MAX_CLASSES = 20
"""Classes up to which the whole table is printed, if it fits."""


def print_evaluation(result: Mapping[str, Any]) -> None:
    """Print the metrics, the classes and the confusion table, in the width of the terminal."""
    report = result["metrics"]
    summary = table("", "", "95 % interval")
    for name, metric in METRICS.items():
        limits = result["intervals"].get(name)
        summary.add_row(metric.words, f"{report[name]:.4f}", limits and f"{limits[0]:.4f} to {limits[1]:.4f}")
    summary.add_row("loss (cross-entropy)", f"{report['loss']:.4f}")
    summary.add_row("calibration error (ECE)", f"{result['calibration']['ece']:.4f}")
    add_baselines(summary, result)
    classes = table("label", "precision", "recall", "F1", "rows", numbers=True)
    for name, scores in report["per_class"].items():
        row = [f"{scores[key]:.4f}" for key in ("precision", "recall", "f1")]
        classes.add_row(cell(name), *row, f"{scores['support']:,}")
    title = heading(result["run"], result["split"], pluralize(result["rows"], "row"))
    show(title, summary, classes, *_confusions(report, width_to_fill()))


def print_perplexity(result: Mapping[str, Any]) -> None:
    """Print the perplexity of a language model on a text."""
    listed = table("", "")
    add_perplexity(listed, {**result["metrics"], "tokens": result["tokens"]})
    listed.add_row("not in the vocabulary", pluralize(result["unknown"], "token"))
    title = heading(
        result["run"], result["split"], pluralize(result["rows"], "line"), pluralize(result["windows"], "window")
    )
    show(title, listed)


def _confusions(report: Mapping[str, Any], width: int) -> tuple[Text, Table]:
    """The whole table if it fits into `width` columns, with numbers for labels if need be; else its largest entries.

    Of more than MAX_CLASSES classes only the largest entries are returned.
    """
    names, counts = report["names"], report["confusion"]
    labels = [escaped(name) for name in names]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    numbered = [f"{number} {label}" for number, label in zip(numbers, labels, strict=True)]
    for rows, columns in ((labels, labels), (numbered, numbers)):
        if len(names) <= MAX_CLASSES and _width(rows, columns, counts) <= width:
            title = heading("confusion", "rows are true labels, columns are predictions")
            return title, _matrix(rows, columns, counts)
    return heading("confusion", "the most frequent; --json has all"), _largest(names, cells_of(report))


def _width(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> int:
    first = 2 + min(MAX_LABEL, max(map(cell_len, rows)))
    return first + sum(
        1 + max(cell_len(name), *(len(str(row[place])) for row in counts)) for place, name in enumerate(columns)
    )


def _matrix(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    made = table("", *columns, numbers=True, narrow=True)
    made.columns[0].max_width = MAX_LABEL + 2
    for place, (name, row) in enumerate(zip(rows, counts, strict=True)):
        shown = [
            Text(str(count) if count else "·", style="bold" if column == place else "" if count else "dim")
            for column, count in enumerate(row)
        ]
        made.add_row(Text(f" {name}", overflow="ellipsis", no_wrap=True), *shown)
    return made


def _largest(names: Sequence[str], cells: Mapping[tuple[int, int], int]) -> Table:
    made = table("true label", "prediction", "rows", "share of true label")
    for column in made.columns[2:]:
        column.justify = "right"
    pairs = [(count, right, predicted) for (right, predicted), count in cells.items() if right != predicted]
    support: Counter[int] = Counter()
    for (right, _), count in cells.items():
        support[right] += count
    for count, right, predicted in sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:MAX_CONFUSIONS]:
        share = count / support[right]
        made.add_row(cell(names[right]), cell(names[predicted]), f"{count:,}", f"{share:.1%}")
    return made
