"""`recur check --out-of-fold` and `--suspects`: the labels of training rows against a linear model that has not seen them.

Shapes: N rows, C classes.
"""

import csv
import io
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from recurcli.commands.prediction.rows import as_text, breaking
from recurcli.data.columns import find_columns
from recurcli.data.config import DataConfig
from recurcli.data.splits import Example, RowHashes, examples_of, load_split, open_source
from recurcli.data.tasks import Task, find_source, task_with_columns
from recurcli.data.values import ordered_labels
from recurcli.errors import DataError, escaped, pluralize
from recurcli.events import Note
from recurcli.files import OutputKind, check_writable, write_atomically
from recurcli.linear.config import LinearConfig
from recurcli.linear.ensemble import fit_calibration
from recurcli.linear.fitting import choose, fit_choice
from recurcli.linear.ngrams import Texts

ROWS = OutputKind("a file of rows", (".tsv", ".csv"))
FOLDS = 5


@dataclass(frozen=True)
class LabelCheck:
    """The files that `recur check` writes about labels."""

    out_of_fold: Path | None = None
    """The file of all training rows, with the probabilities of the linear model that was fitted without them."""
    suspects: Path | None = None
    """The file of the rows whose labels may be wrong."""
    overwrite: bool = False

    def __bool__(self) -> bool:
        return self.out_of_fold is not None or self.suspects is not None

    def check_writable(self, inputs: Sequence[Path]) -> None:
        """Raise UsageError or StorageError if a file cannot be written, or exists without `overwrite`."""
        for option, path in (("--out-of-fold", self.out_of_fold), ("--suspects", self.suspects)):
            if path is not None:
                check_writable(path, ROWS, overwrite=self.overwrite, option=option, inputs=inputs)

    def write(self, task: Task, config: DataConfig) -> Generator[Note, None, dict[str, Any]]:
        """Write the files on the training rows of `config`; yields notes, and returns the counts for `--json`.

        Rows without a label are left out. Raises DataError for rows that a training refuses, or that a TSV cannot hold.
        """
        config = replace(config, unlabelled="drop")
        yield from load_split(task, "train", config, labelled=True).notes  # it checks the rows
        fields, examples = _read(task, config)
        names = ordered_labels({str(row.label) for row in examples})
        numbers = {name: number for number, name in enumerate(names)}
        targets = np.array([numbers[str(row.label)] for row in examples])
        logits = out_of_fold_logits([(row.text, row.pair) for row in examples], targets, len(names))
        log_probabilities = log_softmax(logits * fit_calibration(logits, targets), axis=1)
        probabilities, rows = np.exp(log_probabilities), np.arange(len(targets))
        counts = {
            "rows": len(targets),
            "accuracy": float((probabilities.argmax(axis=1) == targets).mean()),
            "loss": -float(log_probabilities[rows, targets].mean()),
        }
        result: dict[str, Any] = {}
        if self.out_of_fold is not None:
            added = ["prediction", "score", *(f"probability_{name}" for name in names)]
            _write(self.out_of_fold, fields, added, [_opinion(row, names) for row in probabilities], rows)
            result["out_of_fold"] = {"path": str(self.out_of_fold), **counts}
            scores = f"accuracy {counts['accuracy']:.4f}, log loss {counts['loss']:.4f}"
            yield Note(f"{self.out_of_fold}: out-of-fold probabilities of {pluralize(len(rows), 'row')}, {scores}")
        if self.suspects is not None:
            found = find_suspects(probabilities, targets)
            added = ["given", "suggested", "probability"]
            _write(
                self.suspects, fields, added, [_suspicion(probabilities[r], targets[r], names) for r in found], found
            )
            result["suspects"] = {"path": str(self.suspects), **counts, "suspects": len(found)}
            what = pluralize(len(found), "row", of=len(rows))
            reliable = f"out of fold the linear model is right on {counts['accuracy']:.1%}"
            yield Note(f"{self.suspects}: {what} with a label that may be wrong, the likeliest first ({reliable})")
        return result


def _opinion(row: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    return [names[int(row.argmax())], f"{row.max():.6f}", *(f"{value:.6f}" for value in row.tolist())]


def _suspicion(row: NDArray[np.float64], given: int, names: Sequence[str]) -> list[str]:
    return [names[given], names[int(row.argmax())], f"{row[given]:.6f}"]


class Fields(NamedTuple):
    """The columns of a file, and the values of its labelled rows."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]


def out_of_fold_logits(
    texts: Texts, targets: NDArray[np.int64], num_classes: int, config: LinearConfig | None = None
) -> NDArray[np.float64]:
    """Return logits (N, C) of the linear models of FOLDS folds, each of which was fitted without the rows that it scores.

    `targets` (N,) are class numbers. Rows of one side (see `RowHashes`) are in one fold. The n-grams and C are chosen once, on
    all rows [ours]. A class that only one fold has gets the logit UNSEEN there. Raises DataError as `fit_choice` does.
    """
    choice = choose(texts, targets.tolist(), num_classes, config or LinearConfig())
    _, sides = np.unique(RowHashes.of(texts).sides, return_inverse=True)
    folds = np.random.default_rng(0).permutation(sides.max() + 1)[sides] % FOLDS
    logits = np.zeros((len(texts), num_classes))
    for fold in np.unique(folds):
        held_out = folds == fold
        fitted = list(compress(texts, (~held_out).tolist()))
        model = fit_choice(fitted, targets[~held_out].tolist(), num_classes, choice)
        logits[held_out] = model.logits(list(compress(texts, held_out.tolist())))
    return logits


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


def _read(task: Task, config: DataConfig) -> tuple[Fields, list[Example]]:
    """Return the labelled rows of the training file, those that a training draws as dev rows too.

    Columns without a name are called text (text1 and text2 for pairs), label, and by their number.
    """
    task = task_with_columns(task, config)
    source = find_source(task, "train", config)
    with open_source(source, task, config) as records:
        columns = find_columns(records, task, config, source.layout, labelled=True)
        read = examples_of(records, task, columns, source.layout.label_names)
        found = [(record.fields, example) for record, example in read if isinstance(example, Example)]
    rows = [fields for fields, _ in found]
    names = {name: name for row in rows for name in row}
    if not (source.layout.header or records.named):
        texts = ("text",) if len(columns.texts.names) == 1 else ("text1", "text2")
        names |= dict(zip([*columns.texts.names, str(columns.label)], [*texts, "label"], strict=False))
    values = [[as_text(row.get(name, "")) for name in names] for row in rows]
    return Fields([*names.values()], values), [example for _, example in found]


def _write(
    path: Path, fields: Fields, added: Sequence[str], values: Sequence[Sequence[str]], rows: Iterable[int]
) -> None:
    """Write the `rows` of `fields` with the `added` columns and their `values`, one for each of the rows, as TSV or CSV."""
    if clash := next((name for name in added if name in fields.names), None):
        raise DataError(f"{path}: the rows have a column '{escaped(clash)}', which the file adds; rename it first")
    lines = [[*fields.names, *added], *([*fields.rows[row], *more] for row, more in zip(rows, values, strict=True))]
    if path.suffix == ".csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        write_atomically(path, buffer.getvalue())
        return
    for number, line in enumerate(lines):
        for value in line:
            if found := breaking(value, "\t"):
                raise DataError(
                    f"{path}: '{escaped(value, 60)}' of row {number} holds {found}, which no TSV can hold; name a .csv"
                )
    write_atomically(path, "".join("\t".join(line) + "\n" for line in lines))
