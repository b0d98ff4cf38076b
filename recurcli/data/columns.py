"""The values in the columns of a record: its texts (`TextColumns`) and its label (`label_of`), and what labels seem to be."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from recurcli.data.rows import Record, kind_of
from recurcli.data.tasks import Task
from recurcli.errors import DataError, did_you_mean, escaped, quoted
from recurcli.validation import STRICT

JOINTS = ";|,"  # marks that may join several labels in one cell
JOINT_LABELS = 3
"""Joint labels that have a part in common if they are several labels a row (see `label_doubts`)."""
UNLABELLED = "unsup"
"""The folder of texts without a label beside those of the labels, as Maas et al. (2011) named it."""
MAX_LABELS = 10_000
"""The largest number of classes, which a test trains."""

_LOOK_LATIN = str.maketrans("авекмнорстухіјѕαβεηικμνορτυχ", "abekmhopctyxijsabehikmnoptyx")
"""Cyrillic and Greek letters, case-folded, that look like Latin ones as small or as capital letters."""


class BadRow(Exception):
    """The reason why a row cannot be used."""


class Unlabelled(BadRow):
    """A row is sound, but has no label."""


class Text(NamedTuple):
    """The text of a row, its second text (None: not a pair), and the reason why one of them cannot be read."""

    text: str
    pair: str | None
    fault: str | None


@dataclass(frozen=True)
class TextColumns:
    """The columns of the text and of the second text of a pair; several columns are joined by a space."""

    __pydantic_config__ = STRICT

    text: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text to mark (see `marked`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of both texts."""
        return (*self.text, *self.pair)

    def read(self, record: Record) -> Text:
        """Return the texts of a record; a text that cannot be read is empty, and the first fault is returned."""
        text, pair, fault = "", None, record.fault
        try:
            text = joined(record.fields, self.text)
            if self.spans is not None:
                text = marked(text, value_of(record.fields, self.spans))
        except BadRow as reason:
            fault = fault or str(reason)
        try:
            pair = joined(record.fields, self.pair) if self.pair else None
        except BadRow as reason:
            pair, fault = "", fault or str(reason)
        return Text(text, pair, fault)

    def read_for_label(self, record: Record) -> Text:
        """Return the texts of a record that is to be labelled. A row without a character to read has a fault."""
        found = self.read(record)
        if found.fault or found.text.strip() or (found.pair or "").strip():
            return found
        return found._replace(fault="its text is empty" if found.pair is None else "both of its texts are empty")


def value_of(fields: Mapping[str, Any], column: str) -> Any:
    """Return the value of `column`. Raises BadRow, with the nearest name, if it is missing."""
    if column not in fields:
        raise BadRow(f"has no '{escaped(column)}'{escaped(did_you_mean(column, fields), limit=400)}")
    return fields[column]


def joined(fields: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Join the texts of `columns`, strings or lists of strings (CSL's keywords), by spaces. Raises BadRow for other values."""
    parts: list[str] = []
    for column in columns:
        value = value_of(fields, column)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            parts += value
        else:
            raise BadRow(f"'{escaped(column)}' is {kind_of(value)}, not a string")
    return " ".join(parts)


def marked(text: str, target: Any) -> str:
    """Mark `_first span_` and `[second span]` in `text`, as CLUE's baselines do for WSC.

    `target` holds span1_text, span1_index, span2_text, span2_index; indexes count characters from 0. Raises BadRow if a
    span is neither at its index nor exactly once elsewhere in the text, and if the two overlap.
    """
    spans: list[tuple[int, str, str]] = []
    target = target if isinstance(target, Mapping) else {}
    for number, marks in ((1, "__"), (2, "[]")):
        span, index = target.get(f"span{number}_text"), target.get(f"span{number}_index")
        if not isinstance(span, str) or type(index) is not int:
            raise BadRow(f"names no span{number}_text and span{number}_index")
        if index < 0 or not text.startswith(span, index):
            if text.count(span) != 1:  # a span that occurs once needs no index
                raise BadRow(f"'{escaped(span)}' is not at character {index}, as span{number}_index says")
            index = text.index(span)
        spans.append((index, span, marks))
    (first, word, _), (second, _, _) = sorted(spans)
    if first + len(word) > second:
        raise BadRow("its two spans overlap")
    for index, span, marks in sorted(spans, reverse=True):  # from the end, so that earlier indexes stay valid
        text = f"{text[:index]}{marks[0]}{span}{marks[1]}{text[index + len(span) :]}"
    return text


def label_of(fields: dict[str, Any], column: str, task: Task, renamed: Mapping[str, str]) -> str:
    """Return the task's label of a row, or its `dropped_label`; `renamed`: label in this file to the task's label.

    Raises Unlabelled for a label that is missing, null or blank; BadRow for one that is not one of the task's, or, if the
    task has no labels, for a value that is neither a string nor a whole number.
    """
    try:
        value = value_of(fields, column)
    except BadRow as reason:
        raise Unlabelled(str(reason)) from None
    if value is None:
        raise Unlabelled("its label is null, not a string")
    label = str(value).lower() if type(value) in (int, bool) else value
    if not isinstance(label, str):
        raise BadRow(f"its label is {kind_of(value)}, not a string")
    label = label if label in task.labels else renamed.get(label, label)
    if label in task.labels or (label and label == task.dropped_label):
        return label
    if not label.strip():
        raise Unlabelled("its label is empty")
    if not task.labels:
        return label
    owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
    known = f"{owner} {len(task.labels)} labels{did_you_mean(label, task.labels)}"
    raise BadRow(f"label '{escaped(label)}' is not one of {known}")


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in the order of their classes: by value if all are whole numbers, else as text."""
    known = sorted(set(labels))
    are_numbers = all(is_number(label) and len(label) < 10 for label in known)
    return tuple(sorted(known, key=int) if are_numbers else known)


def check_labels(labels: Sequence[str], rows: int, where: str) -> None:
    """Raise DataError if the values of a label column are too few or too many to be classes."""
    if len(labels) < 2:
        only = f"only '{escaped(labels[0])}'" if labels else "nothing"
        every = "its only row" if rows == 1 else f"all {rows:,} rows"
        raise DataError(f"{where} holds {only} in {every}; a classifier needs two labels or more")
    too_many = len(labels) > MAX_LABELS
    if too_many or (rows > 100 and len(labels) > rows / 2):
        most = f"; at most {MAX_LABELS:,} classes are supported" if too_many else ""
        raise DataError(
            f"{where} holds {len(labels):,} different values in {rows:,} rows, which cannot be classes{most}"
            "; name the right column: --label COLUMN"
        )


def folded(name: str) -> str:
    """Return `name` in one case and without surrounding spaces."""
    return name.strip().casefold()


def label_doubts(labels: Sequence[str]) -> Iterator[str]:
    """Yield warnings about labels that look alike, like several labels in one, or like numbers to predict (regression).

    Labels look alike if they differ in case, surrounding spaces, Unicode's forms (NFC, NFD, full and half width), or letters of
    other scripts that look like Latin ones (the commonest of Unicode's confusables.txt; ours). A label looks like several
    ones joined by a mark if each part is a label alone, or if each is part of another label too and one of JOINT_LABELS joint
    ones (ours): "bad,desk" beside "bad,lamp", "bad,tap" and "good,desk", but not "Paris, France" beside other towns of France.
    """
    groups: dict[str, list[str]] = {}
    for label in labels:
        letters = folded(unicodedata.normalize("NFKC", label)).translate(_LOOK_LATIN)
        groups.setdefault(unicodedata.normalize("NFKC", letters), []).append(label)
    for group in groups.values():
        if len(group) > 1:
            names = " and ".join(f"'{escaped(label)}'" for label in group)
            what = "differ only by case, spaces, or letters that look alike"
            yield f"the labels {names} {what}; they are taken as {len(group)} classes"
    for mark in JOINTS:
        parts = {label: {*map(str.strip, label.split(mark))} - {""} for label in labels}
        counts = Counter(chain.from_iterable(parts.values()))
        joint = Counter(chain.from_iterable(own for own in parts.values() if len(own) > 1))
        for label, own in parts.items():
            if len(own) < 2:
                continue
            recurs = all(counts[part] > 1 for part in own) and max(joint[part] for part in own) >= JOINT_LABELS
            if not (recurs or own <= parts.keys()):
                continue
            yield f"the label '{escaped(label)}' looks like several labels a row, joined by '{mark}'; it is taken as one class"
            return
    with suppress(ValueError):
        fractions = [label for label in labels if float(label.replace(",", ".")) % 1 > 0]
        if fractions:
            what = f"each of the {len(labels):,} values is taken as a class"
            yield f"the label '{escaped(fractions[0])}' looks like regression; {what}"


def absent_labels(split: str, trained: Mapping[str, int], labels: Iterable[str], *, are_folders: bool = False) -> str:
    """Return a warning about the labels of the training rows that no row of `split` has, or "" if it has all.

    `trained`: the number of training rows of each label. If the labels `are_folders`, the warning says how to leave out the
    folder UNLABELLED.
    """
    if not (absent := ordered_labels(trained.keys() - {*labels})):
        return ""
    share = sum(map(trained.__getitem__, absent)) / sum(trained.values())
    what = f"{split} has no row of {len(absent):,} of {len(trained):,} labels of the train rows: {quoted(absent)}"
    others = ",".join(escaped(label) for label in ordered_labels(trained) if label != UNLABELLED)
    way_out = f"; if its texts have no label, move the folder away or train with --set 'data.labels=[{others}]'"
    return f"{what} ({share:.1%} of the train rows){way_out if are_folders and UNLABELLED in absent else ''}"


def is_number(word: str) -> bool:
    """Return whether `word` consists of ASCII digits."""
    return word.isascii() and word.isdigit()
