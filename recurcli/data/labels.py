"""The label of a record (`label_of`), what the labels of a file are (`kind_of_cells`), and what is doubtful about them."""

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from recurcli.config import DataConfig
from recurcli.data.columns import BadRow, Unlabelled, folded, value_of
from recurcli.data.rows import Format, kind_of, open_file
from recurcli.data.tasks import Task
from recurcli.errors import DataError, UsageError, did_you_mean, escaped, pluralize, quoted
from recurcli.targets import TARGETS, Cell, SeveralLabels, Target
from recurcli.targets.one_label import ordered_labels
from recurcli.targets.target import MAX_LABELS
from recurcli.validation import parse_config

JOINTS = ";|,"  # marks that may join several labels in one cell
JOINT_LABELS = 3
"""Joint labels that have a part in common if they are several labels a row (see `label_doubts`)."""
UNLABELLED = "unsup"
"""The folder of texts without a label beside those of the labels, as Maas et al. (2011) named it."""

_LOOK_LATIN = str.maketrans("авекмнорстухіјѕαβεηικμνορτυχ", "abekmhopctyxijsabehikmnoptyx")
"""Cyrillic and Greek letters, case-folded, that look like Latin ones as small or as capital letters."""
FEWEST_NUMBERS = 20
"""Numbers are taken as classes up to so many different ones, and as numbers above it if some are not whole. Ours."""
_YES_NO = {
    **dict.fromkeys(("0", "0.0", "false", "no", "n", ""), False),
    **dict.fromkeys(("1", "1.0", "true", "yes", "y"), True),
}
"""The values of a column that says whether a row has a label."""


def label_of(
    fields: dict[str, Any],
    columns: Sequence[str],
    labels: Collection[str],
    renamed: Mapping[str, str],
    kind: type[Target] | None,
    separator: str | None = None,
) -> Cell:
    """Return the label of a row in the `columns`: one column, or several of 0 and 1, one for each label.

    `kind`: what it is to be; None: that is not decided, and the cell is returned as it was read. A string is one label, or
    labels joined by the `separator`. `renamed`: label in this file to one of the task's `labels`, () if these are not known.

    Raises Unlabelled for a label that is missing, null or blank; BadRow for one that is not of this kind.
    """
    try:
        values = {column: value_of(fields, column) for column in columns}
    except BadRow as reason:
        raise Unlabelled(str(reason)) from None
    for column, value in values.items():
        if value is None:
            what = (
                "its label is null, not a string" if len(columns) == 1 else f"'{escaped(column)}' is null, not 0 or 1"
            )
            raise Unlabelled(what)
    cell: Cell = tuple(sorted(_yes_or_no(values))) if len(columns) > 1 else _cell_of(value, separator)
    if isinstance(cell, tuple):
        cell = tuple(sorted(renamed.get(label, label) for label in cell))
    elif isinstance(cell, str) and cell not in labels:
        cell = renamed.get(cell, cell)
        if labels and (whole := _whole(cell)) in labels:
            cell = whole
        elif cell not in labels and not cell.strip():
            raise Unlabelled("its label is empty")
    try:
        return cell if kind is None else kind.cell_of(cell)
    except ValueError as reason:
        raise BadRow(str(reason)) from None


def read_label_names(path: Path) -> tuple[str, ...] | dict[str, str]:
    """Return the names of labels in a file, as `data.label_names` has them.

    It holds a name a line, or a number and its name; or a JSON list of names, a JSON object of number to name, or a JSON object
    a line whose first two values are a label and its name (CLUE's labels.json). Raises DataError for another file.
    """
    with open_file(path) as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    names: Any = lines
    try:
        if text.lstrip().startswith(("{", "[")):
            with suppress(json.JSONDecodeError):
                names = json.loads(text)
            if names is lines:
                names = {str(label): name for label, name, *_ in (json.loads(line).values() for line in lines)}
        elif all(numbered := [re.fullmatch(r"(-?\d+)(?:\t([^\t]+)(?:\t.*)?|\s+(.+))", line) for line in lines]):
            names = {each[1]: each[2] or each[3] for each in numbered if each}
        return parse_config(DataConfig, {"label_names": names}).label_names or ()
    except (ValueError, UsageError):
        what = "neither a name a line, nor a number and a name, nor a JSON list or object of names"
        raise DataError(f"{path}: holds {what}") from None


def answer_of(fields: Mapping[str, Any]) -> str | None:
    """Return the answer of an annotator to a row of Prodigy, None for another row."""
    is_task = "text" in fields and ("label" in fields or "accept" in fields)
    return fields["answer"] if is_task and fields.get("answer") in ("accept", "reject", "ignore") else None


def check_known(cell: Cell, task: Task, target: Target) -> None:
    """Raise BadRow for a cell with a label that is not one of those of the `target` of a task."""
    if (unknown := target.unknown_in(cell)) is not None:
        owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
        known = f"{owner} {len(target.labels)} labels{did_you_mean(unknown, target.labels)}"
        raise BadRow(f"label '{escaped(unknown)}' is not one of {known}")


def _cell_of(value: Any, separator: str | None) -> Cell:
    """Return a value of a label column as a string or a tuple of strings. Raises BadRow if it is neither a label nor labels."""
    if isinstance(value, str):
        return value if separator is None else _several(part.strip() for part in value.split(separator))
    if type(value) in (int, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, list) and all(isinstance(each, str | int) for each in value):
        return _several(each if isinstance(each, str) else str(each).lower() for each in value)
    if isinstance(value, dict) and value:  # the cats of spaCy
        return tuple(sorted(_yes_or_no(value)))
    raise BadRow(f"its label is {kind_of(value)}, not a string, a number or a list of strings")


def _several(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels of a row in the order of their names, without blank ones."""
    return tuple(sorted({label for label in labels if label.strip()}))


def _yes_or_no(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels that a row has, given 0 or 1, or false or true, for each label. Raises BadRow for another value."""
    for label, value in values.items():
        has = _YES_NO.get(str(value).strip().lower())
        if has is None:
            way_out = "several label columns hold 0 or 1, one column a label"
            raise BadRow(f"'{escaped(label)}' is '{escaped(value, 40)}', not 0 or 1; {way_out}")
        if has:
            yield label


def _whole(label: str) -> str:
    """Return `5` for `5.0`, and any other label as it is."""
    whole, point, zeros = label.partition(".")
    return whole if point and zeros and not zeros.strip("0") and whole.removeprefix("-").isdecimal() else label


def _numbers(cells: Collection[Cell]) -> list[float]:
    """Return different cells as finite numbers, or [] if one of them is none."""
    try:
        numbers = [float(cell) for cell in cells if not isinstance(cell, tuple)]
    except ValueError:
        return []
    return numbers if len(numbers) == len(cells) and all(map(math.isfinite, numbers)) else []


def _are_mostly_numbers(labels: Sequence[str]) -> bool:
    """Return whether more than half of different labels are numbers."""
    return 2 * sum(bool(_numbers([label])) for label in labels) > len(labels)


def kind_of_cells(cells: Sequence[Cell]) -> tuple[str, str]:
    """Return the kind of the labels with these `cells`, a key of TARGETS, and a note that says why, or "" for one label a row.

    Lists are several labels a row, unless each has one. Numbers are numbers to predict if more than FEWEST_NUMBERS differ and
    some are not whole.
    """
    different = {*cells}
    if any(isinstance(cell, tuple) and len(cell) != 1 for cell in different):
        counts = Counter(len(cell) if isinstance(cell, tuple) else 1 for cell in cells)
        most = max(counts)
        rows = f"{pluralize(counts[most], 'row', 'have', of=len(cells))} {most}, {counts[0]:,} none"
        return "several", f"the labels are taken as several a row: {rows}; --target one takes one a row"
    if len(different) > FEWEST_NUMBERS and (numbers := _numbers(different)):
        shown = f"{len(different):,} different numbers from {min(numbers):g} to {max(numbers):g}"
        if not all(number.is_integer() for number in numbers):
            return "number", f"the labels are taken as numbers to predict: {shown}; --target one takes classes"
        return "one", f"the labels are taken as classes: {shown}; --target number predicts numbers"
    return "one", ""


def decided_cells(cells: Sequence[Cell], kind: type[Target], labels: Collection[str] = ()) -> list[Cell]:
    """Return cells, as they were read, as the target `kind` has them. `5` and `5.0` are one class, unless named in `labels`."""
    own = {cell: kind.cell_of(cell) for cell in {*cells}}
    if kind is TARGETS["one"]:
        numbers = _numbers([*own])
        are_whole = bool(numbers) and all(number.is_integer() for number in numbers)
        for cell, label in own.items():
            whole = _whole(str(label))
            own[cell] = whole if label not in labels and (are_whole or whole in own) else label
    return [own[cell] for cell in cells]


def check_labels(labels: Sequence[str], rows: int, where: str) -> None:
    """Raise DataError if the values of a label column are too few or too many to be classes."""
    if len(labels) < 2:
        only = f"only '{escaped(labels[0])}'" if labels else "nothing"
        every = "its only row" if rows == 1 else f"all {rows:,} rows"
        raise DataError(f"{where} holds {only} in {every}; a classifier needs two labels or more")
    too_many = len(labels) > MAX_LABELS
    if too_many or (rows > 100 and len(labels) > rows / 2):
        most = f"; at most {MAX_LABELS:,} classes are supported" if too_many else ""
        numbers = ", or predict numbers: --target number" if _are_mostly_numbers(labels) else ""
        raise DataError(
            f"{where} holds {len(labels):,} different values in {rows:,} rows, which cannot be classes{most}"
            f"; name the right column: --label COLUMN{numbers}"
        )


def joint_doubt(labels: Sequence[str]) -> str:
    """Return a warning about a label that looks like several ones joined by a mark, or "" if none does.

    It looks so if each part is a label alone, or if each is part of another label too and one of JOINT_LABELS joint ones
    (ours): "bad,desk" beside "bad,lamp", "bad,tap" and "good,desk", but not "Paris, France" beside other towns of France.
    """
    for mark in JOINTS:
        parts = {label: {*map(str.strip, label.split(mark))} - {""} for label in labels}
        counts = Counter(chain.from_iterable(parts.values()))
        joint = Counter(chain.from_iterable(own for own in parts.values() if len(own) > 1))
        for label, own in parts.items():
            if len(own) < 2:
                continue
            recurs = all(counts[part] > 1 for part in own) and max(joint[part] for part in own) >= JOINT_LABELS
            if recurs or own <= parts.keys():
                taken = f"it is taken as one class; --label-separator '{mark}' takes several labels a row"
                return f"the label '{escaped(label)}' looks like several labels a row, joined by '{mark}'; {taken}"
    return ""


def label_doubts(labels: Sequence[str]) -> Iterator[str]:
    """Yield warnings about labels that look alike, like several labels in one, or like numbers to predict (regression).

    Labels look alike if they differ in case, surrounding spaces, Unicode's forms (NFC, NFD, full and half width), or letters of
    other scripts that look like Latin ones (the commonest of Unicode's confusables.txt; ours).
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
    if doubt := joint_doubt(labels):
        yield doubt
        return
    with suppress(ValueError):
        fractions = [label for label in labels if float(label.replace(",", ".")) % 1 > 0]
        if fractions:
            what = f"each of the {len(labels):,} values is taken as a class; --target number predicts numbers"
            yield f"the label '{escaped(fractions[0])}' looks like regression; {what}"


def absent_labels(
    split: str,
    trained: Mapping[str, int],
    labels: Iterable[str],
    target: Target | None,
    format: Format,
) -> str:
    """Return a warning about the labels of the training rows that no row of `split` has, or "" if it has all.

    `trained` is the number of training rows of each label. `target` and `format` are those of the training rows. If labels are
    folders, the warning says how to leave out the folder UNLABELLED.
    """
    if not (absent := ordered_labels(trained.keys() - {*labels})):
        return ""
    share = sum(map(trained.__getitem__, absent)) / sum(trained.values())
    what = f"{split} has no row of {len(absent):,} of {len(trained):,} labels of the train rows: {quoted(absent)}"
    others = ",".join(escaped(label) for label in ordered_labels(trained) if label != UNLABELLED)
    way_out = f"; if its texts have no label, move the folder away or train with --set 'data.labels=[{others}]'"
    of = "labels of the train rows" if isinstance(target, SeveralLabels) else "train rows"
    return f"{what} ({share:.1%} of the {of}){way_out if format == 'folders' and UNLABELLED in absent else ''}"
