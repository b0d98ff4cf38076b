"""Reads and checks labels: those of the task, or those of the training rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recurcli.data.formats.rows import kind_of
from recurcli.data.tasks import Task
from recurcli.data.texts import BadRow, value_of
from recurcli.errors import DataError, did_you_mean, escaped

MOST_LABELS = 10_000


def label_of(fields: dict[str, Any], column: str, task: Task, renamed: Mapping[str, str]) -> str:
    """Return the task's label of a row, or its `dropped_label`; `renamed`: label in this file to the task's label.

    Raises BadRow for a label that is not one of the task's; if the task has no labels, for a blank one or a value that is
    neither a string nor a whole number.
    """
    value = value_of(fields, column)
    label = str(value).lower() if type(value) in (int, bool) else value
    if not isinstance(label, str):
        raise BadRow(f"its label is {kind_of(value)}, not a string")
    label = label if label in task.labels else renamed.get(label, label)
    if label in task.labels or (label and label == task.dropped_label):
        return label
    if not task.labels:
        if label.strip():
            return label
        raise BadRow("its label is empty")
    if not label:
        shown = f"; labels: {', '.join(map(escaped, task.labels))}" if len(task.labels) <= 20 else ""
        raise BadRow(f"its label is empty{shown}")
    owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
    known = f"is not one of {owner} {len(task.labels)} labels{did_you_mean(label, task.labels)}"
    raise BadRow(f"label '{escaped(label)}' {known}")


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in the order of their classes: by value if all are whole numbers, else as text."""
    known = set(labels)
    numbers = all(label.isascii() and label.isdecimal() and len(label) < 10 for label in known)
    return tuple(sorted(known, key=lambda label: (int(label), label)) if numbers else sorted(known))


def refuse_what_are_no_labels(
    labels: Sequence[str], rows: int, where: str, *, option: str = "--set data.label=COLUMN"
) -> None:
    """Raise DataError if the values of a label column are too few or too many to be classes."""
    if len(labels) < 2:
        only = f"only '{escaped(labels[0])}'" if labels else "nothing"
        raise DataError(f"{where} holds {only} in all {rows:,} rows; a classifier needs two labels or more")
    if len(labels) > MOST_LABELS or (rows > 100 and len(labels) > rows / 2):
        raise DataError(
            f"{where} holds {len(labels):,} different values in {rows:,} rows, which are no classes; "
            f"name the right column: {option}"
        )


def labels_that_look_alike(labels: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield groups of labels that differ only in case or surrounding spaces."""
    folded: dict[str, list[str]] = {}
    for label in labels:
        folded.setdefault(label.strip().casefold(), []).append(label)
    return (tuple(group) for group in folded.values() if len(group) > 1)
