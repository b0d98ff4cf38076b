"""Findings of `recur check`. An error stops training or loses rows; a warning distorts a result; information does neither."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recurcli.data.columns import doubt_of_label, unread_in_words
from recurcli.data.config import DataConfig
from recurcli.data.readers import recognised_in_words
from recurcli.data.splits import BAD_ROWS_ALLOWED, way_out_of_unlabelled
from recurcli.data.tasks import Task
from recurcli.data.values import check_labels, label_doubts, ordered_labels
from recurcli.errors import DataError, escaped, pluralize
from recurcli.findings import Finding, Level
from recurcli.inspection.rows import LISTED, UNNAMED, SplitRows, has_invisible

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
    rows: SplitRows, facts: Mapping[str, Any], task: Task, config: DataConfig, *, without_dev: bool = False
) -> Iterator[Finding]:
    """Yield the findings about one split. `facts` are the counts of the split that the report shows.

    `without_dev`: whether no other file that was named can hold the dev rows of a training, so that these rows must.
    """
    name = escaped(rows.path.name) + (f" ({rows.split} rows)" if rows.drawn else "")
    for level, message in _split_issues(rows, facts, task, config, without_dev):
        yield Finding(level, f"{name}: {message}")


def _split_issues(
    rows: SplitRows, facts: Mapping[str, Any], task: Task, config: DataConfig, without_dev: bool
) -> Iterator[tuple[Level, str]]:
    if rows.bad:
        first = rows.first_bad[0].removeprefix(f"{rows.path}:")
        skip = ""
        if rows.bad <= BAD_ROWS_ALLOWED * rows.read:
            skip = "; training skips up to 1 % of the rows with --set data.skip_bad_rows=true"
        what = f"{pluralize(rows.bad, 'row', of=rows.read)} cannot be used, the first in line {first}"
        unlabelled = "" if config.unlabelled == "drop" else way_out_of_unlabelled(rows.unlabelled)
        yield "error", f"{what}{skip}{rows.hint}{unlabelled}"
    if rows.unlabelled and config.unlabelled == "drop":
        yield (
            "information",
            f"{pluralize(rows.unlabelled, 'row', 'are')} without a label, and left out (data.unlabelled)",
        )
    if rows.recognised is not None:
        yield "information", recognised_in_words(rows.recognised)
    if rows.doubt and not (rows.drawn and rows.split == "dev"):
        yield "warning", "line " + rows.doubt.removeprefix(f"{rows.path}:")
    if not len(rows):
        hint = f"; {_DEV_RULE}" if rows.drawn and rows.split == "dev" else ""
        yield "error", f"none of {pluralize(rows.read, 'row')} can be used" if rows.read else f"has no rows{hint}"
        return
    if facts["official"] not in (None, len(rows)):
        yield "warning", _wrong_count(len(rows), task, facts["official"])
    yield from _repeats(facts["repeated"])
    for issue, words in _ISSUES.items():
        lines = rows.issues.get(issue, ())
        if issue == "repeated id" and rows.format == "folders":  # a file's name, which may stand in each of the folders
            continue
        if lines and not (issue == "no id" and len(lines) == len(rows)):  # a column of ids that no row fills is unused
            yield "warning", f"{pluralize(len(lines), 'row')} {words}: {_lines(lines)}"
    if facts["lengths"] is not None and (cut := facts["lengths"]["cut"]):
        longer = f"longer than {facts['lengths']['max_length']} tokens (data.max_length)"
        yield "information", f"{pluralize(cut, 'row')} ({cut / len(rows):.1%}) {longer}; the rest of each is cut off"
    yield from _labels(rows, task)
    yield from _training_rows(rows, config, without_dev)
    if config.id is not None and rows.issues.keys() & {"no id", "repeated id"}:
        yield "error", f"--id {escaped(config.id)}: this column does not give each row a different id"
    yield from _header(rows)
    if unread := unread_in_words(rows.columns.texts.text, rows.columns.unread):
        yield "information", unread


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


def _labels(rows: SplitRows, task: Task) -> Iterator[tuple[Level, str]]:
    labels = ordered_labels(rows.label_counts)
    if not labels:
        if rows.split == UNNAMED and rows.columns.label is None:
            yield (
                "warning",
                "no column of labels was found, so a training on these rows would stop; --label COLUMN names one",
            )
        return
    if not task.labels and rows.split in ("train", UNNAMED):
        try:
            where = f"the label column '{escaped(rows.columns.label)}'"
            check_labels(labels, len(rows), where)
        except DataError as error:
            yield "error", str(error)
    elif len(labels) == 1 and len(rows) > 1:
        yield "warning", f"every row has the label '{escaped(labels[0])}'"
    for doubt in label_doubts(labels, lambda group: _name(group, rows, " and ")):
        yield "warning", doubt
    for label in labels:
        what = f"line {rows.label_lines[label]}: the label '{escaped(label)}'"
        if label != label.strip():
            yield "warning", f"{what} begins or ends with a space"
        if has_invisible(label):
            yield "warning", f"{what} has control, bidi, zero-width or U+FFFD characters"


def _training_rows(rows: SplitRows, config: DataConfig, without_dev: bool) -> Iterator[tuple[Level, str]]:
    """Yield messages on the dev rows that training draws from a single file, and on the rows that `data.extra_rows` adds."""
    if rows.alone and rows.label_counts:
        if not rows.dev_rows:
            level: Level = "error" if without_dev else "information"
            yield level, f"training on this file alone stops, since none of its rows is a dev row; {_DEV_RULE}"
        else:
            parts = f"{pluralize(len(rows) - rows.dev_rows, 'training row')} and {pluralize(rows.dev_rows, 'dev row')}"
            yield (
                "information",
                f"training on this file alone divides it into {parts} (data.dev_seed {config.dev_seed})",
            )
            if without := len(rows.label_counts) - len(rows.dev_labels):
                labels = pluralize(without, "label", "have", of=len(rows.label_counts))
                yield (
                    "information",
                    f"{labels} no dev row there, so dev scores will not show them; add rows or a dev file",
                )
    if not config.extra_rows or rows.split not in ("train", UNNAMED) or not rows.label_counts:
        return
    names = " and ".join(f"'{escaped(name)}'" for name in config.extra_rows)
    if rows.columns.texts.pair:
        yield "error", f"data.extra_rows: the texts of {names} would be single texts, but the rows are pairs"
    elif rows.extra_rows:
        yield (
            "information",
            f"{pluralize(rows.extra_rows, 'text')} of {names} become training rows, too (data.extra_rows)",
        )
    else:
        yield "warning", f"no training row has a text in {names} (data.extra_rows)"


def _header(rows: SplitRows) -> Iterator[tuple[Level, str]]:
    """Check whether the first row of a TSV or CSV file was rightly read as column names or as a row, and say how."""
    label = rows.columns.label
    if rows.columns.header and label in rows.label_counts:
        what = f"line 1 was read as column names, but '{escaped(label, 60)}' looks like a value"
        yield "warning", f"{what}; --no-header reads it as a row"
    elif rows.format in ("tsv", "csv") and not rows.columns.header and "header" in rows.issues:
        yield "warning", "line 1 was read as a row but looks like column names; --header reads it as names"
    elif rows.columns.note and not (rows.drawn and rows.split == "dev"):
        yield "information", rows.columns.note
    first = next((label for label, line in rows.label_lines.items() if line == 1), None)
    if first is not None and (doubt := doubt_of_label(rows.columns, first, rows.label_counts[first])):
        yield "warning", doubt


def find_task_issues(
    splits: Sequence[SplitRows], overlaps: Sequence[Mapping[str, Any]], task: Task
) -> Iterator[Finding]:
    """Yield the findings that concern several splits."""
    by_name = {rows.split: rows for rows in splits}
    train, dev = by_name.get("train"), by_name.get("dev")
    if train is not None and dev is not None and dev.drawn:
        path = escaped(train.path.name)
        official = task.rows.get("train", 0) + task.rows.get("dev", 0)
        if official and official != len(train) + len(dev):
            yield Finding("warning", f"{path}: {_wrong_count(len(train) + len(dev), task, official)}")
        counts = train.label_counts + dev.label_counts
        single = ordered_labels(label for label, count in counts.items() if count == 1)
        if single:
            what = f"{path}: labels with one row, which is a training row: {_name(single, train)}"
            yield Finding("information", what)
    for rows in (dev, by_name.get("test")):
        if train is not None and train.label_counts and rows is not None:
            unknown = sorted(rows.label_counts.keys() - train.label_counts.keys())
            if unknown:
                level: Level = "warning" if task.labels else "error"
                what = f"{rows.split} has labels that no train row has: {_name(unknown, rows)}"
                yield Finding(level, f"{escaped(rows.path.name)}: {what}")
    for overlap in overlaps:
        if overlap["texts"]:
            one, two = overlap["first"], overlap["second"]
            rows_of = f"{pluralize(overlap['first_rows'], 'row')} of {one}, {pluralize(overlap['second_rows'], 'row')} of {two}"
            others = f"; {overlap['other_labels']:,} with other labels" if overlap["other_labels"] else ""
            where = "lines {} and {}".format(*overlap["first_lines"][0])
            what = f"{one} and {two} share {pluralize(overlap['texts'], _TEXT)}"
            equal = f", {overlap['equal_rows']:,} of them equal"
            yield Finding("warning", f"{what} ({rows_of}{equal}{others}); the first: {where}")


def _wrong_count(rows: int, task: Task, official: int) -> str:
    return f"has {rows:,} usable rows; {task.name} officially has {official:,}"


def _name(labels: Sequence[str], rows: SplitRows, between: str = ", ") -> str:
    """Return the first labels, each with the line of its first row."""
    names = between.join(f"'{escaped(label)}' (line {rows.label_lines[label]})" for label in labels[:LISTED])
    return names + (f" and {len(labels) - LISTED:,} more" if len(labels) > LISTED else "")


def _lines(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:LISTED])) + (", …" if len(lines) > LISTED else "")
    return f"line{'' if len(lines) == 1 else 's'} {shown}"
