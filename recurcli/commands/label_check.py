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

from recurcli.commands.prediction.rows import as_text, tsv_obstacle
from recurcli.config import DataConfig, LinearConfig
from recurcli.data.readers import is_table
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
from recurcli.targets import Cell, OneLabel
from recurcli.targets.one_label import ordered_labels

ROWS = OutputKind("a file of rows", (".tsv", ".csv"))
Table = list[list[str]]
"""A line of column names, then one line for each row."""


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
    score = ["score"] if target.has_score else []
    predicted = ["prediction", *score, *(f"probability_{name}" for name in target.labels if target.has_labels)]
    numbered = [] if "line" in table[0] else ["line"]  # rows that have a line of their own keep it
    suspected = [*numbered, *target.suspect_columns]
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
    counts = {"rows": len(y), "fitted": int(fitted.sum()), target.headline: score_of_model}
    if not fitted.all():
        unlabelled, of_dev = pluralize(len(y) - len(labelled), "row"), pluralize(int(drawn.sum()), "dev row")
        log.note(f"{unlabelled} without a label and {of_dev} were in no fit of the linear model")
    share = format_score(target.headline, score_of_model)
    reliable = f"the {words_of(target.headline)} of the linear model is {share}"
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
        found = target.suspects(shares[labelled], y[labelled])
        lines = [
            [*(str(train.place_of(train.records[row].line)) for _ in numbered), *table[row + 1], *said]
            for row, said in ((labelled[place], said) for place, said in found)
        ]
        _write(path, [[*numbered, *table[0], *suspected[len(numbered) :]], *lines])
        result["suspects"] = {"path": str(path), **counts, "suspects": len(found)}
        rows = pluralize(len(found), "row", of=len(labelled))
        log.note(f"{path}: {rows} with a {target.label_noun} that may be wrong, the likeliest first; {reliable}")
    return result


def _table(train: Split) -> Table:
    """Return all rows of the training file.

    Columns without a name are called text (text1 and text2 for pairs), label, and by their number.
    """
    names = {name: name for record in train.records for name in record.fields}
    source = train.source
    if is_table(source.format) and not source.header:
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
