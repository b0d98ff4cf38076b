"""From what was counted to what it means: errors that stop a training, warnings, and things worth knowing."""

from collections.abc import Iterator, Sequence

from recurcli.data.columns.texts import is_usual
from recurcli.data.config import DataConfig
from recurcli.data.labels import labels_that_look_alike, ordered_labels, refuse_what_are_no_labels
from recurcli.data.tasks import Task
from recurcli.errors import DataError, escaped
from recurcli.findings import Finding, Findings, Level
from recurcli.inspection.characters import KINDS, odd_characters
from recurcli.inspection.locate import ROWS
from recurcli.inspection.overlap import Overlap
from recurcli.inspection.report import SplitReport
from recurcli.inspection.rows import SplitRows

LONGEST_NAME = 40
"""Characters of a column's name; what is longer reads like a text."""
LABELS_SHOWN = 5

_ODD: dict[str, tuple[Level, str]] = {
    "blank": ("warning", "an empty or blank text: a model sees no token of it"),
    "missing word": ("information", "a text like NA or null, which other readers lose; here it stays text"),
    "lone quote": ("warning", "a quote at one end of a field alone; here a TAB alone ends a field, quotes are text"),
    "quoted field": ("warning", "quotes around a whole field; in a TSV they are text: was it written as CSV?"),
    "odd quotes": ("information", "an odd number of quotes; a reader that obeys them joins rows, recur does not"),
    "spans lines": ("information", "a quoted field that goes on over several lines"),
    "quote fault": (
        "warning",
        "a quote that is not closed where a field ends; the rows after it are read as they stand",
    ),
    "no id": ("warning", "no id: rows are known by their numbers instead"),
    **{kind: (level, words) for kind, (_, level, words) in KINDS.items()},
}


def apply_rules(
    task: Task, config: DataConfig, splits: Sequence[SplitReport], overlaps: Sequence[Overlap]
) -> list[Finding]:
    """All findings about the rows of a task, split by split; `task` is adapted to `config`."""
    found: list[Finding] = []
    for split in splits:
        mine = Findings(_name(split, splits))
        _judge_rows(split, task, mine)
        if split.rows.fault is None:
            _judge_labels(split.rows, task, mine)
            _judge_ids(split, config, mine)
            _judge_header(split.rows, config, mine)
        _judge_bytes(split, mine)
        found += mine.ordered()
    together = Findings(" and ".join(dict.fromkeys(split.rows.split for split in splits)))
    _judge_together([split.rows for split in splits], task, together)
    return [*found, *together.ordered(), *_judge_overlaps(overlaps)]


def _name(split: SplitReport, splits: Sequence[SplitReport]) -> str:
    """What messages call a split: its file, and the split where the file holds two."""
    shared = sum(other.rows.path == split.rows.path for other in splits) > 1
    return escaped(split.rows.path.name) + (f" ({split.rows.split} rows)" if shared else "")


def _judge_rows(split: SplitReport, task: Task, found: Findings) -> None:
    rows, repeats = split.rows, split.repeats
    if rows.fault is not None:
        found.add("error", "fault", escaped(rows.fault, limit=2000))
        return
    if rows.bad:
        what = f"{_rows(rows.bad)} of {rows.read:,} cannot be used; a training stops at them, or leaves out 1 % at most"
        found.add("error", "bad", f"{what} with --set data.skip_bad_rows=true")
    if not len(rows):
        found.add("error", "none", f"no row is left of {rows.read:,}" if rows.read else "has no rows")
        return
    if split.official is not None and split.official != len(rows):
        found.add(
            "warning", "official", f"has {_rows(len(rows))} to use; {task.name} has {split.official:,} officially"
        )
    if repeats.conflicting_texts:
        first = repeats.first_conflicts[0]
        lines = ", ".join(f"{line}" for line in first["lines"])
        labels = ", ".join(escaped(label, 40) for label in first["labels"])
        what = f"{_texts(repeats.conflicting_texts)} more than one label, in {_rows(repeats.conflicting_rows)}"
        found.add("warning", "conflicts", f"{what}; the first: lines {lines} with the labels {labels}")
    if repeats.texts:
        lines = ", ".join(f"{line}" for line in repeats.first_lines[0])
        what = f"{_texts(repeats.texts)} several rows ({repeats.rows:,} beyond the first); the first: lines {lines}"
        found.add("warning", "repeats", what)
    for what, places in rows.places.items():
        if what not in _ODD or (what == "no id" and places.count == len(rows)):
            continue  # JSON rows that have no such key at all: nobody meant to give ids
        level, words = _ODD[what]
        found.add(level, what, f"{_rows(places.count)} with {words}: {places}")
    if split.lengths is not None and split.lengths.cut:
        what = (
            f"{_rows(split.lengths.cut)} ({split.lengths.cut / len(rows):.1%}) longer than {split.lengths.max_length}"
        )
        found.add("information", "cut", f"{what} tokens, the preset's data.max_length; the rest is cut off")


def _judge_labels(rows: SplitRows, task: Task, found: Findings) -> None:
    labels = ordered_labels(rows.label_counts)
    if not labels:
        if rows.split == ROWS and rows.columns is not None and rows.columns.label is None and len(rows):
            found.add("information", "unlabelled", "no column of labels was found; --label COLUMN names one")
        return
    column = escaped(rows.columns.label if rows.columns is not None else "")
    if not task.labels and rows.split in ("train", ROWS):
        try:
            where = f"the label column '{column}'"
            refuse_what_are_no_labels(labels, len(rows), where, option="--label COLUMN")
        except DataError as error:
            found.add("error", "classes", str(error))
    elif len(labels) == 1 and len(rows) > 1:
        found.add("warning", "one class", f"every row has the label '{escaped(labels[0])}'")
    for group in labels_that_look_alike(labels):
        names = " and ".join(f"'{escaped(label)}' (line {rows.label_lines[label]})" for label in group)
        what = f"the labels {names} differ by case or spaces alone; they are taken as {len(group)} classes"
        found.add("warning", f"alike {group[0]}", what)
    for label in labels:
        if label != label.strip():
            what = f"the label '{escaped(label)}' begins or ends with a space"
            found.add("warning", "spaces", what, line=rows.label_lines[label])
        for kind in odd_characters(label):
            what = f"the label '{escaped(label)}' has {KINDS[kind][2]}"
            found.add("warning", f"label {kind}", what, line=rows.label_lines[label])


def _judge_ids(split: SplitReport, config: DataConfig, found: Findings) -> None:
    rows = split.rows
    if split.repeated_ids:
        what = (
            f"{_rows(split.repeated_ids)} with an id that an earlier row has; rows are known by their numbers instead"
        )
        found.add("warning", "ids", what)
    if config.id is not None and ("no id" in rows.places or split.repeated_ids):
        found.add(
            "error", "told ids", f"not every row has an id of its own in '{escaped(config.id)}', as --id asks for"
        )


def _judge_header(rows: SplitRows, config: DataConfig, found: Findings) -> None:
    """Whether the first row of a TSV or CSV is what it was taken for."""
    columns = rows.columns
    if columns is None or rows.format not in ("tsv", "csv"):
        return
    if rows.header:
        texts = (*columns.texts.text, *columns.texts.pair)
        by_number = config.text is not None and str(config.text).isdecimal() and str(config.text) not in rows.names
        unusual = [name for name in texts if len(name) > LONGEST_NAME or (by_number and not is_usual(name))]
        if columns.label in rows.label_counts or unusual:
            cause = f"'{escaped(unusual[0] if unusual else columns.label, 60)}'"
            what = f"was taken for the names of the columns, but {cause} looks like a row's own: --no-header"
            found.add("warning", "header", what, line=1)
    elif "header" in rows.places:
        found.add("warning", "header", "looks like the names of the columns but was taken for a row: --header", line=1)


def _judge_bytes(split: SplitReport, found: Findings) -> None:
    there = split.bytes
    if there is None:
        return
    if there.crlf:
        mixed = f" and {there.lf:,} in LF alone" if there.lf else ""
        found.add("information", "crlf", f"{there.crlf:,} lines end in CR LF{mixed}; the CR is no part of a row")
    if there.marks and "byte order mark" not in split.rows.places:
        what = f"begins with a byte order mark, as {there.marks:,} of the later lines do: were files joined?"
        found.add("warning", "marks", what, line=there.first_mark)


def _judge_together(splits: Sequence[SplitRows], task: Task, found: Findings) -> None:
    """What shows only when the splits of a task are seen side by side."""
    by_name = {rows.split: rows for rows in splits}
    train = by_name.get("train")
    if train is None or not train.label_counts:
        return
    for name in ("dev", "test"):
        rows = by_name.get(name)
        unknown = sorted(rows.label_counts.keys() - train.label_counts.keys()) if rows is not None else []
        if rows is None or not unknown:
            continue
        names = ", ".join(f"'{escaped(label)}' (line {rows.label_lines[label]})" for label in unknown[:LABELS_SHOWN])
        more = f" and {len(unknown) - LABELS_SHOWN:,} more" if len(unknown) > LABELS_SHOWN else ""
        level: Level = "warning" if task.labels else "error"
        found.add(level, f"unknown {name}", f"{name} has labels that no train row has: {names}{more}")


def _judge_overlaps(overlaps: Sequence[Overlap]) -> Iterator[Finding]:
    for overlap in overlaps:
        if not overlap.texts:
            continue
        what = f"{overlap.first} and {overlap.second}: {_texts(overlap.texts, 'are', 'is')} in both"
        rows = f"{_rows(overlap.first_rows)} of {overlap.first}, {_rows(overlap.second_rows)} of {overlap.second}"
        first, second = overlap.first_lines[0]
        others = f"; {overlap.other_labels:,} with other labels" if overlap.other_labels else ""
        yield Finding("warning", f"{what} ({rows}{others}); the first: lines {first} and {second}")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _texts(count: int, verb: str = "have", one: str = "has") -> str:
    return f"{count:,} {'text' if count == 1 else 'different texts'} {one if count == 1 else verb}"
