"""`recur check --out-of-fold` and `--suspects`: the labels of training rows against a linear model that has not seen them.

Shapes: N rows, C classes or labels.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.commands.prediction.rows import as_text, tsv_obstacle
from recurcli.config import DataConfig, LinearConfig
from recurcli.data.splits import Split, load_split
from recurcli.data.tasks import Task
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.evaluation.decision import choose
from recurcli.files import OutputKind, check_writable, write_atomically
from recurcli.linear.fitting import search_hyperparameters
from recurcli.linear.out_of_fold import out_of_fold_logits
from recurcli.linear.static_vectors import resolve_vectors
from recurcli.log import Log
from recurcli.metrics import format_score, words_of
from recurcli.requests.check import CheckRequest
from recurcli.targets import Cell, OneLabel, SeveralLabels, Target
from recurcli.targets.one_label import ordered_labels
from recurcli.targets.target import Y

ROWS = OutputKind("a file of rows", (".tsv", ".csv"))
Table = list[list[str]]
"""A line of column names, then one line for each row."""
FAR = 3.0
"""Robust standard deviations of the residuals beyond which a number may be wrong. Ours: of normal residuals 0.3 % are there."""
MAD_OF_NORMAL = 0.6745
"""The median absolute deviation of a normal distribution, in its standard deviations."""


def check_outputs(request: CheckRequest, inputs: Sequence[Path]) -> None:
    """Raise UsageError or StorageError if a file cannot be written, is one of the `inputs`, or exists without --overwrite."""
    for option, path in (("--out-of-fold", request.out_of_fold), ("--suspects", request.suspects)):
        if path is not None:
            check_writable(path, ROWS, overwrite=request.overwrite, option=option, inputs=inputs)
    one, other = request.out_of_fold, request.suspects
    if one is not None and other is not None and one.resolve() == other.resolve():
        raise UsageError(f"{other}: is named by --out-of-fold and --suspects; each writes a file of its own")


def write_label_check(request: CheckRequest, task: Task, config: DataConfig, log: Log) -> dict[str, Any]:
    """Write the files of `request` on the training rows of `config`, and return facts on them for --json.

    Rows without a label, and dev rows that `recur finetune` draws from the file, are in no fit. Raises UsageError if no
    training file is named. Raises DataError for rows that a training refuses, or that a TSV cannot hold.
    """
    if config.named_files and "train" not in config.named_files:
        raise UsageError("--out-of-fold and --suspects read training rows; name their file with --train")
    own = replace(config, unlabelled="drop")
    train = load_split(task, "train", own, labelled=True, use_dev_split=True, keep_records=True)
    dev = [] if train.dev is None else train.dev.examples
    label_of: dict[int, Cell] = {row.line: row.label for row in (*train.examples, *dev)}
    target, none = train.target, next(iter(label_of.values()))  # stands for the label of rows without one
    assert target is not None
    if isinstance(target, OneLabel):
        target, none = OneLabel(ordered_labels(map(str, label_of.values()))), ""
    y = target.encode(label_of.get(record.line, none) for record in train.records)
    is_labelled = np.array([record.line in label_of for record in train.records])
    drawn = np.isin([record.line for record in train.records], [row.line for row in dev])
    table = _table(train)
    score = ["score"] if isinstance(target, OneLabel) else []
    predicted = ["prediction", *score, *(f"probability_{name}" for name in target.labels if target.has_labels)]
    numbered = [] if "line" in table[0] else ["line"]  # rows that have a line of their own keep it
    suspected = [*numbered, *_columns_of_suspects(target)]
    for path, added in ((request.out_of_fold, predicted), (request.suspects, suspected)):
        if path is not None:
            _check_holdable(path, table, added)
    labelled, fitted = np.flatnonzero(is_labelled), is_labelled & ~drawn
    texts = [train.source.columns.read(record)[:2] for record in train.records]
    known = list(compress(texts, fitted.tolist()))
    linear = resolve_vectors(LinearConfig(vectors="auto"), known, log)
    chosen = search_hyperparameters(known, y[fitted], target, linear)
    logits = out_of_fold_logits(texts, y, target, chosen, fitted=fitted)
    kept = choose({"linear": logits[fitted]}, y[fitted], target)
    shares = kept.probabilities(kept.logits({"linear": logits}))
    predictions = target.decide(shares)
    best = [*map(target.text_of, target.decode(predictions))]
    score_of_model = target.score(target.headline, y[labelled], predictions[labelled])
    counts = {
        "rows": len(y),
        "fitted": int(fitted.sum()),
        target.headline: score_of_model,
    }
    if not fitted.all():
        unlabelled, of_dev = pluralize(len(y) - len(labelled), "row"), pluralize(int(drawn.sum()), "dev row")
        log.note(f"{unlabelled} without a label and {of_dev} were in no fit of the linear model")
    reliable = f"the linear model is right on {score_of_model:.1%}"
    if not isinstance(target, OneLabel):
        reliable = (
            f"the {words_of(target.headline)} of the linear model is {format_score(target.headline, score_of_model)}"
        )
    result: dict[str, Any] = {}
    if (path := request.out_of_fold) is not None:
        lines = [
            [*line, name, *(f"{share:.6f}" for share in ([row.max()] * len(score) + [*row]) if target.has_labels)]
            for line, name, row in zip(table[1:], best, shares, strict=True)
        ]
        _write(path, [[*table[0], *predicted], *lines])
        result["out_of_fold"] = {"path": str(path), **counts}
        what = "probabilities" if target.has_labels else "predictions"
        log.note(f"{path}: out-of-fold {what} of {pluralize(len(lines), 'row')}, {reliable}")
    if (path := request.suspects) is not None:
        found = _suspects(target, shares[labelled], y[labelled])
        lines = [
            [*(str(train.records[row].line) for _ in numbered), *table[row + 1], *said]
            for row, said in ((labelled[place], said) for place, said in found)
        ]
        _write(path, [[*numbered, *table[0], *suspected[len(numbered) :]], *lines])
        result["suspects"] = {"path": str(path), **counts, "suspects": len(found)}
        rows, what = pluralize(len(found), "row", of=len(labelled)), "label" if target.has_labels else "number"
        log.note(f"{path}: {rows} with a {what} that may be wrong, the likeliest first; {reliable}")
    return result


def _columns_of_suspects(target: Target) -> tuple[str, ...]:
    """Return the columns that a file of suspects has beside those of the rows."""
    if isinstance(target, SeveralLabels):
        return "suggested_add", "suggested_remove", "probability"
    return "suggested", "probability" if target.has_labels else "distance"


def _suspects(target: Target, probabilities: NDArray[np.float64], y: Y) -> list[tuple[int, list[str]]]:
    """Return the numbers of the rows whose label may be wrong, the likeliest first, each with its `_columns_of_suspects`.

    `probabilities` (N, C) are out of fold.
    """
    if isinstance(target, SeveralLabels):
        of_rows = find_suspect_labels(probabilities, y[:, :-1])
        names = target.labels
        return [
            (
                row,
                [target.text_of(tuple(names[n] for n in own if y[row, n] == has)) for has in (0, 1)] + [f"{least:.6f}"],
            )
            for row, own, least in of_rows
        ]
    predictions = target.decide(probabilities)
    best = [*map(target.text_of, target.decode(predictions))]
    if target.has_labels:
        return [
            (row, [best[row], f"{probabilities[row, y[row]]:.6f}"]) for row in find_suspects(probabilities, y).tolist()
        ]
    distances = robust_distances(y - predictions)
    far = np.flatnonzero(distances > FAR)
    far = far[np.argsort(-distances[far], kind="stable")]
    return [(row, [best[row], f"{distances[row]:.2f}"]) for row in far.tolist()]


def robust_distances(residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each residual (N,) is from their median, in standard deviations that the median distance estimates."""
    distances = np.abs(residuals - np.median(residuals))
    return distances * MAD_OF_NORMAL / max(float(np.median(distances)), 1e-300)


def find_suspect_labels(
    probabilities: NDArray[np.float64], has_label: NDArray[np.int64]
) -> list[tuple[int, list[int], float]]:
    """Return the rows with labels that may be missing or wrong: their numbers, these labels, and the probability of the least
    probable of the decisions on them, the smallest first.

    `probabilities` (N, C) are out of fold. Each label is a task of two classes (`find_suspects`).
    """
    found: dict[int, list[int]] = {}
    own = np.where(has_label > 0, probabilities, 1 - probabilities)
    for label, (has, chances) in enumerate(zip(has_label.T, probabilities.T, strict=True)):
        for row in find_suspects(np.stack([1 - chances, chances], axis=1), has).tolist():
            found.setdefault(row, []).append(label)
    least = {row: float(own[row, labels].min()) for row, labels in found.items()}
    return [(row, found[row], least[row]) for row in sorted(found, key=lambda row: (least[row], row))]


def find_suspects(probabilities: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the rows whose label may be wrong, the least probable label first.

    `probabilities` (N, C) are out of fold, `targets` (N,) the given labels. A row is counted in the confident joint if a class
    has at least the mean probability of its own rows; its class there is the most probable such class. Rows whose most probable
    class is another one are ranked by the probability of their label, and as many are returned as the calibrated joint has off
    its diagonal. (Confident learning: Northcutt, Jiang & Chuang, JAIR 2021, sections 3.1 and 3.2; the ranking is their
    self-confidence.)
    """
    count = probabilities.shape[1]
    own = probabilities[np.arange(len(targets)), targets]
    sizes = np.bincount(targets, minlength=count)
    thresholds = np.where(sizes > 0, np.bincount(targets, own, minlength=count) / np.maximum(sizes, 1), np.inf)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    counted = confident.max(axis=1) >= 0
    joint = np.zeros((count, count))
    np.add.at(joint, (targets[counted], confident.argmax(axis=1)[counted]), 1)
    shares = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1)
    expected = round(float((sizes[:, None] * shares)[~np.eye(count, dtype=bool)].sum()))
    other = np.flatnonzero(probabilities.argmax(axis=1) != targets)
    return other[np.argsort(own[other], kind="stable")][:expected]


def _table(train: Split) -> Table:
    """Return all rows of the training file.

    Columns without a name are called text (text1 and text2 for pairs), label, and by their number.
    """
    names = {name: name for record in train.records for name in record.fields}
    source = train.source
    if source.delimiter is not None and not source.header:
        texts = ("text",) if len(source.columns.names) == 1 else ("text1", "text2")
        names |= dict(zip([*source.columns.names, *source.label], [*texts, "label"], strict=False))
    return [[*names.values()], *([as_text(record.fields.get(name, "")) for name in names] for record in train.records)]


def _check_holdable(path: Path, table: Table, added: Sequence[str]) -> None:
    """Raise DataError, before anything is fitted, if the rows have a column of `added`, or a value that a TSV cannot hold."""
    if clash := next((name for name in added if name in table[0]), None):
        raise DataError(f"{path}: the rows have a column '{escaped(clash)}', which the file adds; rename it first")
    if path.suffix == ".csv":
        return
    for number, line in enumerate([[*table[0], *added], *table[1:]]):
        for value in line:
            if found := tsv_obstacle(value, "\t"):
                raise DataError(
                    f"{path}: '{escaped(value, 60)}' of row {number} holds {found}, which no TSV can hold; name a .csv"
                )


def _write(path: Path, table: Table) -> None:
    """Write a table as TSV or CSV."""
    buffer = io.StringIO()
    if path.suffix == ".csv":
        csv.writer(buffer, lineterminator="\n").writerows(table)
    else:
        buffer.writelines("\t".join(line) + "\n" for line in table)
    write_atomically(path, buffer.getvalue())
