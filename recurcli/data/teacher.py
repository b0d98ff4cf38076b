"""A teacher's file: the soft labels that another model gave to rows, from which `recur finetune --teacher` learns.

Shapes: N training rows, C logits of a row.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig
from recurcli.data.columns import BadRow, Unlabelled
from recurcli.data.labels import label_of
from recurcli.data.splits import Example, RowHashes, Split, canonical_texts, hash_of, hashes_of, load_split, text_key
from recurcli.data.tasks import Task
from recurcli.errors import DataError, did_you_mean, escaped, pluralize
from recurcli.log import Log
from recurcli.targets import Number, SeveralLabels, Target
from recurcli.targets.target import labels_in

PREFIX = "probability_"
SEPARATE = f"{PREFIX}LABEL"
SUM_TOLERANCE = 0.01
"""How far from 1 the probabilities of a row may sum. Ours: `recur predict` writes six digits of each."""
SAME_SOFT_LABEL = 0.01
"""How far apart the probabilities of the same text may be. Ours: bf16 and the rows beside a row change its last digits."""
Row = NDArray[np.float32]
"""The soft label of a row: the probability of each label (C,), or the number (1,)."""


@dataclass(frozen=True)
class Teacher:
    """The soft labels of a file for the training rows, of which the file may have added some."""

    probabilities: NDArray[np.float32]
    """(N, C) the soft label of each training row. NaN: the file has none."""
    gold: NDArray[np.bool_]
    """(N,) whether the label of a training row is its own. The label of any other row is what the teacher decides."""
    facts: Mapping[str, Any]
    """For result.json: path, sha256, the column of the soft labels, and numbers of rows."""

    def row_weights(self, teacher_weight: float) -> NDArray[np.float64]:
        """Return the weight of each training row in the linear model (N,): 1, or `teacher_weight` without a gold label."""
        return np.where(self.gold, 1.0, teacher_weight)


def read_teacher(
    path: Path, train: Split, held_out: Sequence[Split], task: Task, config: DataConfig, log: Log
) -> tuple[Teacher, Split]:
    """Read the soft labels at `path`. Return them, and the training rows with those of the file after them.

    The texts are in the columns of `train`. The soft label is in `probability_LABEL` (TSV, CSV) or `probabilities` (JSON
    lines), as `recur predict --probabilities` writes them, else in `prediction`, else in `label`. A number is in one of the
    last two. A row without a prediction, or without a text, has no soft label. Rows whose texts are those of a training row
    (see `canonical_texts`) have its soft label; the others become training rows. Rows that are equal or nearly equal (by
    `row_hash`) to one of `held_out`, the dev and test rows, are left out. So are pairs with the first text of drawn dev rows,
    where these were kept together (see `RowHashes`).

    Raises DataError with file and line for a text that cannot be read, an unknown label, probabilities that are no
    distribution, two soft labels for one text, and a file without these columns or without a usable soft label.
    """
    never = {digest for split in held_out for digest in split.hashes.tolist()}
    first_texts = _first_texts_of_drawn(train)
    soft_labels: dict[tuple[str, str], tuple[Row, Example]] = {}
    target, without, left_out = task.target, 0, 0
    assert target is not None
    scale = target.std if isinstance(target, Number) else 1.0
    own = replace(config, path=str(path), files=None, header=True, skip_bad_rows=False, label=None, id=None)
    rows = load_split(task, "train", own, labelled=False, like=train.source, keep_records=True)
    names = tuple(rows.records[0].fields)
    column = _column_of(names, str(path), target)
    places = {label: place for place, label in enumerate(target.labels)}
    for record, (text, pair), digest in zip(rows.records, rows.texts, rows.hashes.tolist(), strict=True):
        try:
            probabilities = _read_soft_label(record.fields, column, target, places)
        except ValueError as reason:
            raise DataError(f"{path}:{record.line}: {reason}") from None
        if probabilities is None or not (text.strip() or pair):  # such as a row that `recur predict` could not read
            without += 1
        elif digest in never or (first_texts and hash_of(text_key(text)) in first_texts):
            left_out += 1
        else:
            [label] = target.decode(target.decide(probabilities[None].astype(np.float64)))
            example = Example(f"teacher-{record.line}", text, pair, label, line=record.line)
            first = soft_labels.setdefault(canonical_texts(text, pair), (probabilities, example))
            if not np.allclose(first[0], probabilities, atol=SAME_SOFT_LABEL * scale, rtol=0):
                what = f"has another soft label for the text of line {first[1].line}; keep one row of each text"
                raise DataError(f"{path}:{record.line}: {what}")
    if not soft_labels:
        counts = f"{left_out:,} are dev or test rows, and {without:,} have no soft label"
        raise DataError(f"{path}: none of its rows can teach: {counts}")
    known = [canonical_texts(*row) for row in train.texts]
    new = soft_labels.keys() - set(known)
    added = {key: example for key, (_, example) in soft_labels.items() if key in new}
    hashes = np.concatenate([train.hashes, hashes_of((row.text, row.pair) for row in added.values())])
    longer = train.with_examples([*train.examples, *added.values()], hashes)
    probabilities = np.full((len(hashes), target.width), np.nan, np.float32)
    for number, key in enumerate([*known, *added]):
        if key in soft_labels:
            probabilities[number] = soft_labels[key][0]
    gold = np.arange(len(hashes)) < len(train.examples)
    facts: dict[str, Any] = {
        "path": str(path),
        "sha256": rows.sha256,
        "column": column,
        "training_rows": int((~np.isnan(probabilities[gold, 0])).sum()),
        "added": len(added),
        "left_out": left_out,
        "without_soft_label": without,
    }
    known_rows, new_rows = pluralize(facts["training_rows"], "training row"), pluralize(len(added), "row")
    unused = f"{pluralize(left_out, 'dev or test row')} left out, {pluralize(without, 'row')} without a soft label"
    log.note(f"{path}: soft labels for {known_rows}, {new_rows} more to train on, {unused} (column {column})")
    return Teacher(probabilities, gold, facts), longer


def _first_texts_of_drawn(train: Split) -> set[int]:
    """Return the hashes of the first texts of drawn dev rows that the draw kept apart from the training rows."""
    if train.dev is None:
        return set()
    hashes = RowHashes.of([*train.texts, *train.dev.texts])
    drawn = slice(len(train.examples), None)
    return set(hashes.group_ids[drawn][hashes.group_ids[drawn] != hashes.rows[drawn]].tolist())


def _column_of(names: Collection[str], source: str, target: Target) -> str:
    """Return the name of the column of the soft labels, of which probabilities in TSV and CSV have one for each label."""
    of_labels = ("probabilities", *(name for name in names if name.startswith(PREFIX))) if target.has_labels else ()
    for name in (*of_labels, "prediction", "label"):
        if name in names:
            return SEPARATE if name.startswith(PREFIX) else name
    known = f"{SEPARATE}, probabilities, prediction and label" if target.has_labels else "prediction and label"
    raise DataError(f"{source}: has none of the columns {known}")


def _read_soft_label(fields: dict[str, Any], column: str, target: Target, numbers: Mapping[str, int]) -> Row | None:
    """Return the soft label in the `column` of a row; None: it has none. Raises ValueError if it cannot be used.

    `numbers` maps the labels of the `target` to their places.
    """
    shares: Any
    separator = target.separator if isinstance(target, SeveralLabels) else None
    answer = fields.get("prediction", True)
    if answer is None or (
        answer == "" and (separator is None or fields.get("reason"))
    ):  # "" may be no label of several
        return None
    if column in ("probabilities", SEPARATE):
        shares = fields.get("probabilities")
        if column == SEPARATE:
            shares = {name.removeprefix(PREFIX): share for name, share in fields.items() if name.startswith(PREFIX)}
        if shares is None:
            return None
        if not isinstance(shares, dict):
            raise ValueError("probabilities is not an object of labels and numbers")
    else:
        if "probabilities" in fields:  # of a JSON row, whose keys are its own
            raise ValueError("has probabilities, which the first row has not; give all rows the same keys")
        try:
            cell = label_of(fields, (column,), (), {}, type(target), separator)
        except Unlabelled:
            return None
        except BadRow as reason:
            raise ValueError(str(reason)) from None
        if isinstance(target, Number):
            return np.array([cell], np.float32)
        shares = dict.fromkeys(labels_in(cell), 1.0)
    probabilities = np.zeros(len(numbers))
    for label, share in shares.items():
        if label not in numbers:
            raise ValueError(
                f"'{escaped(label, 60)}' is not a label of the training rows{did_you_mean(label, numbers)}"
            )
        try:
            probabilities[numbers[label]] = float(share)
        except (TypeError, ValueError):
            shown = escaped(str(share), 60)
            raise ValueError(f"the probability of '{escaped(label, 60)}' is not a number: '{shown}'") from None
    if (probabilities < 0).any():
        label = [*numbers][int(probabilities.argmin())]
        raise ValueError(f"the probability of '{escaped(label, 60)}' is below 0: {probabilities.min():g}")
    if isinstance(target, SeveralLabels):
        if not (probabilities <= 1).all():  # nor is NaN
            raise ValueError(
                f"the probability of a label must be at most 1, but the largest is {probabilities.max():g}"
            )
        return probabilities.astype(np.float32)
    total = probabilities.sum()
    if not abs(total - 1) <= SUM_TOLERANCE:  # nor is NaN
        raise ValueError(f"the probabilities must have the sum 1, but the sum is {total:g}")
    return (probabilities / total).astype(np.float32)
