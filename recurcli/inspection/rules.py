"""Findings of `recur check`. An error stops training or loses rows; a warning distorts a result; information does neither."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recurcli.data.columns import unread_in_words
from recurcli.data.config import DataConfig
from recurcli.data.tasks import Task
from recurcli.data.values import check_labels, label_doubts, ordered_labels
from recurcli.errors import DataError, escaped, pluralize
from recurcli.findings import Finding, Level
from recurcli.inspection.counts import LISTED, UNNAMED, CheckedSplit, has_invisible

_ISSUES = {
    "blank": "with an empty text",
    "invisible": "with control, bidi, zero-width or U+FFFD characters",
    "quoted": "with quotes around a whole text, which are part of it in TSV; a file written as CSV needs the ending .csv",
    "no id": "without an id; row numbers are used instead",
    "repeated id": "with an id that an earlier row has; row numbers are used instead",
}

_TEXT = "equal or nearly equal text"
_DEV_RULE = (
    "the fraction data.dev_fraction of each label's rows become dev rows, never the first one; add rows or a dev file"
)


def find_split_issues(
    split: CheckedSplit, facts: Mapping[str, Any], task: Task, config: DataConfig, *, without_dev: bool = False
) -> Iterator[Finding]:
    """Yield the findings about one split. `facts` are the counts of the split that the report shows.

    `without_dev`: whether no other file that was named can hold the dev rows of a training, so that these rows must.
    """
    name = escaped(split.path.name) + (f" ({split.name} rows)" if split.is_drawn else "")
    for level, message in _split_issues(split, facts, task, config, without_dev):
        yield Finding(level, f"{name}: {message}")


def _split_issues(
    split: CheckedSplit, facts: Mapping[str, Any], task: Task, config: DataConfig, without_dev: bool
) -> Iterator[tuple[Level, str]]:
    rows, count = split.rows, len(split.rows.examples)
    for fault in rows.faults:
        yield "error", _without_path(fault, split)
    for note in rows.notes:
        yield "warning" if note.level == "warning" else "information", _without_path(note.text, split)
    if not count:
        if split.is_drawn and split.name == "dev":
            yield "error", f"has no rows; {_DEV_RULE}"
        return
    if facts["official"] not in (None, count):
        yield "warning", _wrong_count(count, task, facts["official"])
    yield from _repeats(facts["repeated"])
    for issue, words in _ISSUES.items():
        lines = split.issues.get(issue, [])
        if issue == "repeated id" and rows.format == "folders":  # a file's name, which may stand in each of the folders
            continue
        if lines and not (issue == "no id" and len(lines) == count):  # a column of ids that no row fills is unused
            yield "warning", f"{pluralize(len(lines), 'row')} {words}: {_lines(lines)}"
    if facts["lengths"] is not None and (cut := facts["lengths"]["cut"]):
        longer = f"longer than {facts['lengths']['max_length']} tokens (data.max_length)"
        yield "information", f"{pluralize(cut, 'row')} ({cut / count:.1%}) {longer}; the rest of each is cut off"
    yield from _labels(split, task)
    yield from _training_rows(split, facts, config, without_dev)
    if rows.header and rows.label in split.labels:
        what = f"line 1 was read as column names, but '{escaped(rows.label, 60)}' looks like a value"
        yield "warning", f"{what}; --no-header reads it as a row"
    if "header" in split.issues:
        yield "warning", "line 1 was read as a row but looks like column names; --header reads it as names"
    if unread := unread_in_words(rows.columns.text, rows.unread):
        yield "information", unread


def _without_path(message: str, split: CheckedSplit) -> str:
    """Return a message of the reader without the path of its file: "what", or "line N: what"."""
    what = message.removeprefix(f"{split.path}:")
    return what.strip() if what.startswith(" ") else f"line {what}"


def _repeats(repeated: Mapping[str, Any]) -> Iterator[tuple[Level, str]]:
    if repeated["conflicting_texts"]:
        first = repeated["first_conflicts"][0]
        labels = ", ".join(escaped(label, 40) for label in first["labels"])
        texts, rows = pluralize(repeated["conflicting_texts"], _TEXT), pluralize(repeated["conflicting_rows"], "row")
        where = f"{_lines(first['lines'])} with the labels {labels}"
        yield "warning", f"{texts} with more than one label, in {rows}; the first: {where}"
    if repeated["texts"]:
        texts, rows = pluralize(repeated["texts"], _TEXT), pluralize(repeated["rows"], "row")
        where = _lines(repeated["first_lines"][0])
        yield (
            "warning",
            f"{texts} in several rows ({rows} beyond the first, {repeated['equal_rows']:,} of them equal); the first: {where}",
        )


def _labels(split: CheckedSplit, task: Task) -> Iterator[tuple[Level, str]]:
    labels, is_trained = ordered_labels(split.labels), split.name in ("train", UNNAMED)
    if not labels:
        if split.name == UNNAMED and split.rows.label is None:
            yield (
                "warning",
                "no column of labels was found, so a training on these rows would stop; --label COLUMN names one",
            )
        return
    if not task.labels and is_trained:
        try:
            check_labels(labels, len(split.rows.examples), f"the label column '{escaped(split.rows.label)}'")
        except DataError as error:
            yield "error", str(error)
    elif len(labels) == 1 and len(split.rows.examples) > 1:
        yield "warning", f"every row has the label '{escaped(labels[0])}'"
    for doubt in label_doubts(labels, lambda group: _name(group, split, " and ")):
        yield "warning", doubt
    for label in labels:
        what = f"line {split.label_lines[label]}: the label '{escaped(label)}'"
        if label != label.strip():
            yield "warning", f"{what} begins or ends with a space"
        if has_invisible(label):
            yield "warning", f"{what} has control, bidi, zero-width or U+FFFD characters"


def _training_rows(
    split: CheckedSplit, facts: Mapping[str, Any], config: DataConfig, without_dev: bool
) -> Iterator[tuple[Level, str]]:
    """Yield messages on the dev rows that training draws from a single file, and on the rows that `data.extra_rows` adds."""
    if split.alone is not None and split.labels:
        dev = split.alone.dev
        if dev is None:
            level: Level = "error" if without_dev else "information"
            yield level, f"training on this file alone stops, since none of its rows is a dev row; {_DEV_RULE}"
        else:
            parts = (
                f"{pluralize(len(split.alone.examples), 'training row')} and {pluralize(len(dev.examples), 'dev row')}"
            )
            divides = f"training on this file alone divides it into {parts} (data.dev_seed {config.dev_seed})"
            yield "information", divides
            if without := len(split.labels) - len(dev.labels):
                labels = pluralize(without, "label", "have", of=len(split.labels))
                what = f"{labels} no dev row there, so dev scores will not show them; add rows or a dev file"
                yield "information", what
    if not config.extra_rows or split.name not in ("train", UNNAMED) or not split.labels:
        return
    names = " and ".join(f"'{escaped(name)}'" for name in config.extra_rows)
    if split.rows.columns.pair:
        yield "error", f"data.extra_rows: the texts of {names} would be single texts, but the rows are pairs"
    elif facts["extra_rows"]:
        texts = pluralize(facts["extra_rows"], "text")
        yield "information", f"{texts} of {names} become training rows, too (data.extra_rows)"
    else:
        yield "warning", f"no training row has a text in {names} (data.extra_rows)"


def find_task_issues(
    splits: Sequence[CheckedSplit], overlaps: Sequence[Mapping[str, Any]], task: Task
) -> Iterator[Finding]:
    """Yield the findings that concern several splits."""
    by_name = {split.name: split for split in splits}
    train, dev = by_name.get("train"), by_name.get("dev")
    if train is not None and dev is not None and dev.is_drawn:
        path, count = escaped(train.path.name), len(train.rows.examples) + len(dev.rows.examples)
        official = task.rows.get("train", 0) + task.rows.get("dev", 0)
        if official and official != count:
            yield Finding("warning", f"{path}: {_wrong_count(count, task, official)}")
        single = ordered_labels(label for label, rows in (train.labels + dev.labels).items() if rows == 1)
        if single:
            what = f"{path}: labels with one row, which is a training row: {_name(single, train)}"
            yield Finding("information", what)
    for split in (dev, by_name.get("test")):
        if train is not None and train.labels and split is not None:
            unknown = sorted(split.labels.keys() - train.labels.keys())
            if unknown:
                level: Level = "warning" if task.labels else "error"
                what = f"{split.name} has labels that no train row has: {_name(unknown, split)}"
                yield Finding(level, f"{escaped(split.path.name)}: {what}")
    for overlap in overlaps:
        if overlap["texts"]:
            one, two = overlap["first"], overlap["second"]
            rows = f"{pluralize(overlap['first_rows'], 'row')} of {one}, {pluralize(overlap['second_rows'], 'row')} of {two}"
            others = f"; {overlap['other_labels']:,} with other labels" if overlap["other_labels"] else ""
            where = "lines {} and {}".format(*overlap["first_lines"][0])
            what = f"{one} and {two} share {pluralize(overlap['texts'], _TEXT)}"
            equal = f", {overlap['equal_rows']:,} of them equal"
            yield Finding("warning", f"{what} ({rows}{equal}{others}); the first: {where}")


def _wrong_count(rows: int, task: Task, official: int) -> str:
    return f"has {rows:,} usable rows; {task.name} officially has {official:,}"


def _name(labels: Sequence[str], split: CheckedSplit, between: str = ", ") -> str:
    """Return the first labels, each with the line of its first row."""
    names = between.join(f"'{escaped(label)}' (line {split.label_lines[label]})" for label in labels[:LISTED])
    return names + (f" and {len(labels) - LISTED:,} more" if len(labels) > LISTED else "")


def _lines(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:LISTED])) + (", …" if len(lines) > LISTED else "")
    return f"line{'' if len(lines) == 1 else 's'} {shown}"
