"""`recur check --out-of-fold` and `--suspects`: the labels of training rows against a linear model that has not seen them.

Shapes: N rows, C classes.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from recurcli.commands.prediction.rows import as_text, tsv_obstacle
from recurcli.data.config import DataConfig
from recurcli.data.splits import Example, RowHashes, load_split
from recurcli.data.tasks import Task, find_source, task_with_columns
from recurcli.data.values import ordered_labels
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.files import OutputKind, check_writable, write_atomically
from recurcli.inspection.rows import DataFile, SplitRows, examples_of_file, find_files
from recurcli.linear.config import LinearConfig
from recurcli.linear.ensemble import fit_calibration
from recurcli.linear.fitting import UNSEEN, fit_model, search_hyperparameters
from recurcli.linear.ngrams import Texts
from recurcli.log import Log

ROWS = OutputKind("a file of rows", (".tsv", ".csv"))
FOLDS = 5
SUSPECT_COLUMNS = ("given", "suggested", "probability")


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
        if self.out_of_fold and self.suspects and self.out_of_fold.resolve() == self.suspects.resolve():
            raise UsageError(
                f"{self.suspects}: is named by --out-of-fold and --suspects; each writes a file of its own"
            )

    def write(self, task: Task, config: DataConfig, log: Log) -> dict[str, Any]:
        """Write the files on the training rows of `config`.

        Rows without a label, and dev rows that `recur finetune` draws from the file, are in no fit. Raises UsageError if a file
        is an input, or no training file is named. Raises DataError for rows that a training refuses, or that a TSV cannot hold.
        """
        if config.named_files and "train" not in config.named_files:
            raise UsageError("--out-of-fold and --suspects read training rows; name their file with --train")
        files = find_files(task, config)
        self.check_writable([file.source.path for file in files])
        load_split(task, "train", replace(config, unlabelled="drop"), labelled=True)  # it checks the rows
        fields, texts, labels, drawn = _read(files, task, config)
        names = ordered_labels({label for label in labels if label is not None})
        numbers = {name: number for number, name in enumerate(names)}
        targets = np.array([-1 if label is None else numbers[label] for label in labels])
        opinion_columns = ["prediction", "score", *(f"probability_{name}" for name in names)]
        for path, added in ((self.out_of_fold, opinion_columns), (self.suspects, SUSPECT_COLUMNS)):
            if path is not None:
                _check_holdable(path, fields, added)
        labelled, fitted = np.flatnonzero(targets >= 0), (targets >= 0) & ~drawn
        logits = out_of_fold_logits(texts, targets, len(names), fitted=fitted)
        log_probabilities = log_softmax(logits * fit_calibration(logits[fitted], targets[fitted]), axis=1)
        probabilities, rows = np.exp(log_probabilities), np.arange(len(targets))
        counts = {
            "rows": len(targets),
            "fitted": int(fitted.sum()),
            "accuracy": float((probabilities[labelled].argmax(axis=1) == targets[labelled]).mean()),
            "loss": -float(log_probabilities[labelled, targets[labelled]].mean()),
        }
        unfitted = [(int((targets < 0).sum()), "row", " without a label"), (int(drawn.sum()), "dev row", "")]
        if said := [f"{pluralize(number, word)}{more}" for number, word, more in unfitted if number]:
            log.note(f"{' and '.join(said)} were in no fit of the linear model")
        result: dict[str, Any] = {}
        if self.out_of_fold is not None:
            _write(self.out_of_fold, fields, opinion_columns, [_opinion(row, names) for row in probabilities], rows)
            result["out_of_fold"] = {"path": str(self.out_of_fold), **counts}
            scores = f"accuracy {counts['accuracy']:.4f}, log loss {counts['loss']:.4f}"
            log.note(f"{self.out_of_fold}: out-of-fold probabilities of {pluralize(len(rows), 'row')}, {scores}")
        if self.suspects is not None:
            found = labelled[find_suspects(probabilities[labelled], targets[labelled])]
            _write(
                self.suspects,
                fields,
                SUSPECT_COLUMNS,
                [_suspicion(probabilities[r], targets[r], names) for r in found],
                found,
            )
            result["suspects"] = {"path": str(self.suspects), **counts, "suspects": len(found)}
            what = pluralize(len(found), "row", of=len(labelled))
            reliable = f"out of fold the linear model is right on {counts['accuracy']:.1%}"
            log.note(f"{self.suspects}: {what} with a label that may be wrong, the likeliest first ({reliable})")
        return result


def _opinion(row: NDArray[np.float64], names: Sequence[str]) -> list[str]:
    return [names[int(row.argmax())], f"{row.max():.6f}", *(f"{value:.6f}" for value in row.tolist())]


def _suspicion(row: NDArray[np.float64], given: int, names: Sequence[str]) -> list[str]:
    return [names[given], names[int(row.argmax())], f"{row[given]:.6f}"]


class Fields(NamedTuple):
    """The columns of a file, and the values of its rows."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]


def out_of_fold_logits(
    texts: Texts,
    targets: NDArray[np.int64],
    num_classes: int,
    config: LinearConfig | None = None,
    *,
    fitted: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return logits (N, C) of the linear models of FOLDS folds, each of which was fitted without the rows that it scores.

    `targets` (N,) are class numbers. Models are fitted on the `fitted` rows (N,), which have one; None: on all rows. The
    n-grams and C are chosen once, on the same rows [ours]. A class that only one fold has gets the logit UNSEEN there, and a
    single other class 1. Raises DataError as `fit_model` does.
    """
    used = np.ones(len(texts), bool) if fitted is None else fitted
    chosen = list(compress(texts, used.tolist()))
    hyperparameters = search_hyperparameters(chosen, targets[used].tolist(), num_classes, config or LinearConfig())
    folds = draw_folds(RowHashes.of(texts).group_ids, targets)
    logits = np.zeros((len(texts), num_classes))
    for fold in np.unique(folds):
        held_out = folds == fold
        others = used & ~held_out
        known, classes = list(compress(texts, others.tolist())), np.unique(targets[others])
        if len(classes) == 1 < len(np.unique(targets[used])):
            logits[held_out] = UNSEEN
            logits[held_out, classes] = 1.0  # as LinearSVC's of the right class
            continue
        model = fit_model(known, targets[others].tolist(), num_classes, hyperparameters)
        logits[held_out] = model.logits(list(compress(texts, held_out.tolist())))
    return logits


def draw_folds(group_ids: NDArray[np.uint64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold of each row (N,). Rows of a group (see `RowHashes`) share a fold. A class's groups are dealt out."""
    counts = Counter(dict(enumerate(range(int(targets.max(initial=0)) + 1))))  # rare classes begin in different folds
    folds: dict[int, int] = {}
    for row in np.random.default_rng(0).permutation(len(targets)).tolist():
        group_id, target = int(group_ids[row]), int(targets[row])
        if group_id not in folds:
            folds[group_id] = counts[target] % FOLDS
            counts[target] += 1
    return np.array([folds[group_id] for group_id in group_ids.tolist()], np.int64)


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


def _read(
    files: Sequence[DataFile], task: Task, config: DataConfig
) -> tuple[Fields, list[tuple[str, str | None]], list[str | None], NDArray[np.bool_]]:
    """Return the rows of the training file, their texts, their labels or None, and whether a training draws each as a dev row.

    Columns without a name are called text (text1 and text2 for pairs), label, and by their number. Raises DataError without a
    training file.
    """
    task = task_with_columns(task, config)
    source = find_source(task, "train", config)
    file = next(file for file in files if file.source.path == source.path)
    facts = SplitRows(file.splits[0], file, {})
    read = list(examples_of_file(file, task, config, [facts]))
    columns = facts.columns
    names = {name: name for record, *_ in read for name in record.fields}
    if facts.format in ("tsv", "csv") and not columns.header:
        texts = ("text",) if len(columns.texts.names) == 1 else ("text1", "text2")
        names |= dict(zip([*columns.texts.names, str(columns.label)], [*texts, "label"], strict=False))
    values = [[as_text(record.fields.get(name, "")) for name in names] for record, *_ in read]
    labels = [example.label if isinstance(example, Example) else None for _, example, *_ in read]
    found = (columns.texts.read(record) for record, *_ in read)
    drawn = np.array([is_dev for *_, is_dev in read], bool)
    return Fields([*names.values()], values), [(text.text, text.pair) for text in found], labels, drawn


def _check_holdable(path: Path, fields: Fields, added: Sequence[str]) -> None:
    """Raise DataError, before anything is fitted, if the rows have a column of `added`, or a value that a TSV cannot hold."""
    if clash := next((name for name in added if name in fields.names), None):
        raise DataError(f"{path}: the rows have a column '{escaped(clash)}', which the file adds; rename it first")
    if path.suffix == ".csv":
        return
    for number, line in enumerate([[*fields.names, *added], *fields.rows]):
        for value in line:
            if found := tsv_obstacle(value, "\t"):
                raise DataError(
                    f"{path}: '{escaped(value, 60)}' of row {number} holds {found}, which no TSV can hold; name a .csv"
                )


def _write(
    path: Path, fields: Fields, added: Sequence[str], values: Sequence[Sequence[str]], rows: Iterable[int]
) -> None:
    """Write the `rows` of `fields` with the `added` columns and their `values`, one for each of the rows, as TSV or CSV."""
    lines = [[*fields.names, *added], *([*fields.rows[row], *more] for row, more in zip(rows, values, strict=True))]
    if path.suffix == ".csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        write_atomically(path, buffer.getvalue())
        return
    write_atomically(path, "".join("\t".join(line) + "\n" for line in lines))
