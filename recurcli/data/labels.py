"""Labels: those of the task as strings, or those that the training rows have."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recurcli.data.columns.texts import BadRow, value_of
from recurcli.data.formats.records import kind_of
from recurcli.data.tasks import Task
from recurcli.errors import DataError, did_you_mean, escaped

MOST_LABELS = 10_000


def label_of(fields: dict[str, Any], column: str, task: Task, renamed: Mapping[str, str]) -> str:
    """The label as the task writes it (`renamed`: as this file writes it, to that), or its `dropped_label`.

    BadRow if it is none of the task's, or, where the task takes any, if it is no string or blank.
    """
    value = value_of(fields, column)
    label = str(value).lower() if type(value) in (int, bool) else value
    if not isinstance(label, str):
        raise BadRow(f"its label is {kind_of(value)}, not a string")
    label = label if label in task.labels else renamed.get(label, label)
    if label in task.labels or (label and label == task.dropped_label):
        return label
    if not task.labels and label.strip():
        return label
    if not task.labels:
        raise BadRow("its label is empty")
    owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
    known = f"is not one of {owner} {len(task.labels)} labels{did_you_mean(label, task.labels)}"
    raise BadRow(f"label '{escaped(label)}' {known}" if label else f"its label is empty: it {known}")


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels in the order of their classes: by value if all are whole numbers, else as text."""
    found = set(labels)
    numbers = all(label.isascii() and label.isdecimal() and len(label) < 10 for label in found)
    return tuple(sorted(found, key=lambda label: (int(label), label)) if numbers else sorted(found))


def refuse_what_are_no_labels(
    labels: Sequence[str], rows: int, where: str, *, option: str = "--set data.label=COLUMN"
) -> None:
    """Raise DataError where the values of a label column are too few or too many to be classes."""
    if len(labels) < 2:
        only = f"only '{escaped(labels[0])}'" if labels else "nothing"
        raise DataError(f"{where} holds {only} in all {rows:,} rows; a classifier needs two labels or more")
    if len(labels) > MOST_LABELS or (rows > 100 and len(labels) > rows / 2):
        raise DataError(
            f"{where} holds {len(labels):,} different values in {rows:,} rows, which are no classes; "
            f"name the right column: {option}"
        )


def labels_that_look_alike(labels: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Groups of labels that differ by case or by spaces around them alone."""
    folded: dict[str, list[str]] = {}
    for label in labels:
        folded.setdefault(label.strip().casefold(), []).append(label)
    return (tuple(group) for group in folded.values() if len(group) > 1)
