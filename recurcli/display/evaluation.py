"""The report of `recur eval`: scores, labels, and which classes are taken for each other; the tables of --diagnose."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recurcli.display.screen import (
    Cell,
    Styled,
    Table,
    block_parts,
    by_columns,
    fits,
    heading,
    listing,
    show,
    to_rich,
)
from recurcli.errors import pluralize, quoted
from recurcli.evaluation.result_block import ResultBlock, metric_rows, perplexity_rows
from recurcli.metrics import cells_of, format_interval, format_score, label_names, percent, percent_interval, words_of
from recurcli.targets import TARGETS

MAX_CONFUSIONS = 12
"""Pairs that are listed where the whole table does not fit."""
MAX_CLASSES = 20
"""Classes up to which the whole confusion table is printed, if it fits, and of which the scores are shown without --verbose."""
MEASURES = {
    "activation_factor": "activation factor",
    "dot_product_factor": "dot-product factor",
    "distance_preservation": "distance correlation",
    "movement": "|h' − h|",
    "scaled_entropy": "scaled entropy",
}
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def metric_table(result: Mapping[str, Any]) -> Table:
    """Return the table of metrics with their 95 % intervals, shares in per cent; the task's baselines, and losses of labels."""
    rows = [*metric_rows({**result, **result["metrics"]})]
    if TARGETS[result["target"]].has_labels:
        rows.append(["loss (cross-entropy)", f"{result['metrics']['loss']:.4f}"])
        rows.append(["loss of the probabilities", f"{result['calibration']['loss']:.4f}"])
    return Table(["metric", "value", "95 % interval"], rows)


def label_table(report: Mapping[str, Any]) -> Table:
    """Return the scores of each of several labels a row, and its rows."""
    names = ("precision", "recall", "f1", "average_precision")
    rows = [
        [label, *("–" if own[name] is None else percent(own[name]) for name in names), f"{own['support']:,}"]
        for label, own in report["per_label"].items()
    ]
    return Table(["label", "precision", "recall", "F1", "average precision", "rows"], rows)


def number_table(bins: Sequence[Mapping[str, Any]]) -> Table:
    """Return the deciles of predicted numbers, with the mean of the predictions and of the numbers of their rows."""
    keys = ("low", "high", "prediction", "number")
    rows = [[*(f"{own[key]:.4g}" for key in keys), f"{own['rows']:,}"] for own in bins]
    return Table(["predictions from", "to", "mean prediction", "mean number", "rows"], rows)


def class_table(report: Mapping[str, Any], intervals: Mapping[str, Sequence[float] | None]) -> Table:
    """Return the scores of each class, the recall with its interval if it has one, its rows, and how often it is predicted."""
    predicted: Counter[int] = Counter()
    for (_, column), count in cells_of(report).items():
        predicted[column] += count
    rows: list[list[Cell]] = []
    for place, (label, own) in enumerate(report["per_class"].items()):
        shares = [percent(own[name]) for name in ("precision", "recall", "f1")]
        if limits := intervals.get(f"recall:{label}"):
            shares[1] += f" ({percent_interval(limits)})"
        rows.append([label, *shares, f"{own['support']:,}", f"{predicted[place]:,}"])
    return Table(["label", "precision", "recall", "F1", "rows", "predicted"], rows)


def group_table(groups: Sequence[Mapping[str, Any]], by: str, metric: str) -> Table:
    """Return the scores of groups of rows beside those of the other rows; of more than MAX_CLASSES the first ones."""
    rows = [[own["group"], f"{own['rows']:,}", format_score(metric, own["score"])] for own in groups[:MAX_CLASSES]]
    for row, own in zip(rows, groups, strict=False):
        row += [format_interval(metric, own["interval"]), format_score(metric, own["others"])]
        row += [f"{own['p_holm']:.2g}", own["verdict"]]
    words = "right (%)" if metric == "accuracy" else words_of(metric)
    notes = [f"{MAX_CLASSES} of {len(groups):,} groups; --json has all"] if len(groups) > MAX_CLASSES else []
    return Table([by, "rows", words, "95 % interval", "others", "p (Holm)", ""], rows, notes)


def weakest(by_label: Mapping[str, Mapping[str, Any]]) -> list[int]:
    """Return the places of the classes or labels, those with the lowest F1 first and those without rows last."""
    own = [*by_label.values()]
    return sorted(
        range(len(own)), key=lambda place: (not own[place]["support"], own[place]["f1"], -own[place]["support"])
    )


def _weakest_rows(table: Table, by_label: Mapping[str, Mapping[str, Any]], *, verbose: bool) -> Table:
    """Return the rows of the MAX_CLASSES weakest classes or labels of many, and name those without rows; `verbose`: all."""
    if verbose or len(by_label) <= MAX_CLASSES:
        return table
    without = [label for label, own in by_label.items() if not own["support"]]
    places = weakest(by_label)[: min(MAX_CLASSES, len(by_label) - len(without))]
    notes = [f"the {len(places)} lowest F1 of {len(by_label):,}; --verbose shows all"]
    notes += [f"without rows: {quoted(without, MAX_CLASSES)}"] if without else []
    return Table(table.columns, [table.rows[place] for place in places], notes)


def print_evaluation(result: Mapping[str, Any], block: ResultBlock, *, verbose: bool = False) -> None:
    """Print the `block`, with `verbose` all metrics, the labels, and the confusion table of classes, as wide as the terminal.

    Of numbers it prints all metrics and the deciles of the predictions.
    """
    report, groups = result["metrics"], list[Table]()
    if "groups" in result:
        groups = [group_table(result["groups"], result["by"], TARGETS[result["target"]].headline)]
    if "confusion" not in report:
        by_label = "per_label" in report
        tables = [metric_table(result)] if verbose or not by_label else []
        show(
            *block_parts(block),
            *groups,
            *tables,
            _weakest_rows(label_table(report), report["per_label"], verbose=verbose)
            if by_label
            else number_table(result["calibration"]["bins"]),
        )
        return
    labels, cells = label_names(report), cells_of(report)
    words, confusions = "rows are true labels, columns are predictions", _matrix(labels, report["names"], cells)
    if len(labels) > MAX_CLASSES or not fits(to_rich(confusions)):
        words, confusions = "the most frequent; --json has all", _largest(labels, cells)
        if not confusions.rows:
            words = "no row is predicted wrongly"
    intervals = result["intervals"] if verbose or len(report["per_class"]) <= MAX_CLASSES else {}
    classes = _weakest_rows(class_table(report, intervals), report["per_class"], verbose=verbose)
    tables = [*groups, *([metric_table(result)] if verbose else []), classes]
    show(*block_parts(block), *tables, heading("confusion", words), confusions)


def print_perplexity(result: Mapping[str, Any]) -> None:
    """Print the perplexity of a language model on a text."""
    rows = [*perplexity_rows({**result["metrics"], "tokens": result["tokens"]}, carry=result["carry"])]
    rows.append(("not in the vocabulary", pluralize(result["unknown"], "token")))
    counts = pluralize(result["rows"], "line"), pluralize(result["windows"], "window")
    show(heading(result["run"], result["split"], *counts), listing(rows))


def _matrix(labels: Sequence[str], names: Sequence[str], cells: Mapping[tuple[int, int], int]) -> Table:
    rows = []
    for row, name in enumerate(labels):
        line: list[Cell] = [name]
        for column in range(len(names)):
            count = cells.get((row, column))
            line.append(Styled(str(count or "·"), "bold" if row == column else "" if count else "dim"))
        rows.append(line)
    return Table(["", *names], rows)


def _largest(names: Sequence[str], cells: Mapping[tuple[int, int], int]) -> Table:
    support: Counter[int] = Counter()
    for (right, _), count in cells.items():
        support[right] += count
    pairs = [(count, right, predicted) for (right, predicted), count in cells.items() if right != predicted]
    rows = [
        [names[right], names[predicted], f"{count:,}", f"{count / support[right]:.1%}"]
        for count, right, predicted in sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:MAX_CONFUSIONS]
    ]
    return Table(["true label", "prediction", "rows", "share"], rows)


def layer_table(diagnosis: Mapping[str, Any]) -> Table:
    """Return the measures and the statistics of each layer, and the statistics of the whole encoder."""
    layers, whole = diagnosis["layers"], diagnosis["encoder_stats"]
    found = {str(layer["layer"]): layer["stats"] for layer in layers} | ({"all": whole} if whole else {})
    columns = {words: [_numbers(layer[key]) for layer in layers] for key, words in MEASURES.items() if layers}
    for name in dict.fromkeys(name for stats in found.values() for name in stats):
        columns[name.replace("_", " ")] = [_numbers(stats.get(name)) for stats in found.values()]
    return by_columns({"layer": list(found), **columns})


def _numbers(value: float | Sequence[float] | None) -> str:
    """Return a measure as text: one number, or one for each expert; – if it has no value."""
    values = value if isinstance(value, list) else [value]
    return "  ".join("–" if number is None else f"{number:.4f}" for number in values)


def print_diagnosis(diagnosis: Mapping[str, Any]) -> None:
    """Print the measures of the layers, and the gradient norm by distance."""
    norms = diagnosis["gradient_norm_by_distance"]
    of_embeddings = f"scaled entropy of the embeddings {diagnosis['embedding_scaled_entropy']:.4f}"
    distances = [distance for distance in DISTANCES if distance < len(norms)]
    gradients = {"positions back": list(map(str, distances))}
    gradients["gradient norm"] = [f"{norms[distance]:.3g}" for distance in distances]
    layers = layer_table(diagnosis)
    show(
        heading("diagnosis", pluralize(diagnosis["rows"], "row"), of_embeddings),
        *([layers] if layers.rows else []),
        by_columns(gradients),
    )
