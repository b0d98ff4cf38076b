"""A task's split as examples: found, read, its labels checked."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.columns.find import OPTION, Columns, find_columns
from recurcli.data.columns.texts import BadRow, TextColumns
from recurcli.data.config import DataConfig
from recurcli.data.dev_split import DevSplitter
from recurcli.data.formats.readers import Format, Record, Records, kind_of, read_records
from recurcli.data.labels import label_of, ordered_labels, refuse_what_are_no_labels
from recurcli.data.sources.find import Source, adapted, find_source
from recurcli.data.sources.hub import load_hub_split
from recurcli.data.tasks import CUSTOM, PLAIN, Layout, Task
from recurcli.data.tasks.listops import listops_rows
from recurcli.errors import DataError, UsageError, escaped
from recurcli.events import Note
from recurcli.files import sha256_of

BAD_ROWS_ALLOWED = 0.01
BAD_ROWS_SHOWN = 5


class Example(NamedTuple):
    """One row to classify; `label` is None where it is not known."""

    id: str
    text: str
    pair: str | None
    label: str | None


@dataclass(frozen=True)
class Split:
    """The examples of one split, in the order of their file."""

    examples: list[Example]
    path: Path | None
    """The file they are from; None for generated rows and those of the Hub."""
    sha256: str
    """Of the file's bytes, or of the rows where there is no file."""
    columns: TextColumns = field(default=TextColumns(()))
    """Where the texts stood."""
    label: str | None = None
    """Where the label stood, if labels were asked for."""
    dropped: int = 0
    """Rows left out because they have no majority label."""
    bad: list[str] = field(default_factory=list)
    """`file:line: reason` of each row that was skipped."""
    dev: "Split | None" = None
    """Of a train split: the dev rows, where the same file holds both; None where dev rows have a file of their own."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The different labels; numbers in their order, else sorted as text."""
        return ordered_labels({example.label for example in self.examples if example.label is not None})


def load_split(
    task: Task, split: str, config: DataConfig, *, labelled: bool | None = None, divided: bool = False
) -> Split:
    """The `split` ("train", "dev", "test", or another test file that `task` names) of a task.

    `config.path` is a folder with the task's files, a parent of folders named by task, or one file, which then is the split.
    With `divided` one file holds train and dev, as DevSplitter divides them; so do the training rows of a folder or of the
    Hub without dev rows. Without `config.path` the rows are the Hub's or generated. A task without labels takes those of
    the rows. `labelled`: whether labels are read; None: the task's setting. An example's id is the row's id where all rows
    have different ones, else (unless `config.id` is set) the row's number in the file from 0.

    Raises UsageError for task `custom` without a path or a Hub name; DataError for a split without rows, for rows that
    cannot be read, lack a text or have an unknown label (`config.skip_bad_rows` allows 1 % of them), and for a file
    of which no row is a dev row.
    """
    task = adapted(task, config)
    labelled = task.has_labels(split) if labelled is None else labelled
    if config.path is not None:
        source = find_source(task, split, config, divided=divided)
        labelled = labelled and split not in source.layout.unlabelled
        found = _of_source(source, task, config, labelled=labelled)
    elif task.hub is not None:
        name = f"{task.hub[0]} {task.hub[1] or ''} {split}".replace("  ", " ")
        hub = load_hub_split(task, split)
        labelled = labelled and not any(split in layout.unlabelled for layout in task.layouts)
        columns = find_columns(task, hub.columns, config, name, labelled=labelled)
        found = _split_of(hub.records, name, task, columns, config)
        source = Source(Path(name), PLAIN, hub.divided)
    elif task.name == CUSTOM:
        raise UsageError("your own rows come from --data (data.path), a file or folder, or from the Hub (data.hub)")
    else:
        rows = listops_rows(task, split)
        generated = (Record(line, row._asdict()) for line, row in enumerate(rows, 1))
        return _split_of(generated, task.name, task, Columns(TextColumns(("text",)), "label", None), config)
    if not source.divided or split not in ("train", "dev"):
        return found
    splitter = DevSplitter(task.dev_every or 10, config.dev_seed)
    sides: tuple[list[Example], list[Example]] = ([], [])
    for example in found.examples:
        sides[splitter.is_dev(example.text, example.pair, example.label)].append(example)
    dev = replace(found, examples=sides[True])
    if split == "train":
        return replace(found, examples=sides[False], dev=dev if dev.examples else None)
    if not dev.examples:
        raise DataError(
            f"{source.path}: none of its {len(found.examples):,} rows is a dev row; one of every {splitter.every} rows of a "
            "class is one, never the first (data.dev_every); add rows, or a file of dev rows"
        )
    return dev


def with_labels_of(task: Task, train: Split, config: DataConfig) -> Task:
    """`task` as `config` has it, with its own labels or else with those of the training rows.

    Raises DataError where these are too few or too many to be classes.
    """
    task = adapted(task, config)
    if task.labels:
        return task
    where = f"{train.path or task.name}: the label column '{escaped(train.label)}'"
    refuse_what_are_no_labels(train.labels, len(train.examples), where)
    return replace(task, labels=train.labels)


def notes_on_dev_rows(train: Split, task: Task, config: DataConfig) -> Iterator[Note]:
    """How the dev rows were drawn where the training file holds them, and which labels have none for want of rows."""
    if train.dev is None:
        return
    every = task.dev_every or 10 if config.dev_every is None else config.dev_every
    drawn = f"every {every}th row of each class, drawn by data.dev_seed {config.dev_seed}"
    name = "the Hub" if train.path is None else train.path.name
    yield Note(f"{name} holds train and dev rows: {len(train.dev.examples):,} rows are dev rows, {drawn}")
    counts = Counter(example.label for example in (*train.examples, *train.dev.examples))
    single = ordered_labels(str(label) for label, count in counts.items() if count == 1)
    if single:
        shown = ", ".join(f"'{escaped(label)}'" for label in single[:8]) + (", …" if len(single) > 8 else "")
        yield Note(f"labels with one row, which is a training row: {shown}", "warning")


def _of_source(source: Source, task: Task, config: DataConfig, *, labelled: bool) -> Split:
    """All rows of a file or folder."""
    path, layout = source.path, source.layout
    with opened(source, task, config, labelled=labelled) as (records, columns):
        sha256 = None if records.format == "folders" else sha256_of(path)
        found = _split_of(records, str(path), task, columns, config, layout, sha256)
    return replace(found, path=path)


@contextlib.contextmanager
def opened(
    source: Source, task: Task, config: DataConfig, *, labelled: bool | None, option: str = OPTION
) -> Iterator[tuple[Records, Columns]]:
    """The records of a file or folder, and the columns that matter (see `find_columns`); `task` is adapted to `config`.

    Raises DataError for a file that is something else, or that lacks a column.
    """
    path, layout = source.path, source.layout
    format: Format | None = "folders" if path.is_dir() else None
    folders = task.labels if task.name != CUSTOM or config.labels else ()  # task `custom`: every folder is a label
    with read_records(path, format, header=layout.header, delimiter=layout.delimiter, labels=folders) as records:
        yield (
            records,
            find_columns(
                task,
                records.columns,
                config,
                records.name,
                labelled=labelled,
                layout=layout,
                records=records,
                option=option,
            ),
        )


def _split_of(
    records: Iterable[Record],
    name: str,
    task: Task,
    columns: Columns,
    config: DataConfig,
    layout: Layout = PLAIN,
    sha256: str | None = None,
) -> Split:
    """The examples among `records`; without the `sha256` of their file it is that of the rows."""
    examples: list[Example] = []
    numbers: list[int] = []
    bad: list[str] = []
    dropped = 0
    number = -1
    for number, record in enumerate(records):
        try:
            example = example_of(record, task, columns, layout.label_names)
        except BadRow as reason:
            bad.append(f"{name}:{record.line}: {reason}")
            continue
        if example.label is not None and example.label == task.dropped_label:
            dropped += 1
            continue
        examples.append(example)
        numbers.append(number)
    judge_bad_rows(bad, rows=number + 1, name=name, skip=config.skip_bad_rows)
    if not examples:
        raise DataError(f"{name}: has no rows" if number < 0 else f"{name}: no row is left of {number + 1}")
    if len({example.id for example in examples} - {""}) < len(examples):
        if config.id is not None:
            raise DataError(_about_ids(examples, numbers, name, str(config.id)))
        examples = [example._replace(id=str(number)) for example, number in zip(examples, numbers, strict=True)]
    return Split(
        examples,
        path=None,
        sha256=sha256 or _sha256_of_rows(examples),
        columns=columns.texts,
        label=columns.label,
        dropped=dropped,
        bad=bad,
    )


def _about_ids(examples: list[Example], numbers: list[int], name: str, column: str) -> str:
    """Which row has no id of its own."""
    counts = Counter(example.id for example in examples)
    at, row_id = next(
        (number, example.id)
        for number, example in zip(numbers, examples, strict=True)
        if not example.id or counts[example.id] > 1
    )
    what = f"the id '{escaped(row_id)}' is that of {counts[row_id]} rows" if row_id else "there is none"
    return f"{name}: not every row has an id of its own in '{escaped(column)}': {what}, the first is row {at} from 0"


def judge_bad_rows(bad: Sequence[str], *, rows: int, name: str, skip: bool, count: int | None = None) -> None:
    """Raise DataError with the first of the `bad` rows (`count` in all), unless there are few and they may be skipped."""
    count = len(bad) if count is None else count
    if not bad or (skip and count <= BAD_ROWS_ALLOWED * rows):
        return
    listed = "; ".join(bad[:BAD_ROWS_SHOWN]) + ("; …" if len(bad) > BAD_ROWS_SHOWN else "")
    raise DataError(
        f"{name}: {count} of {rows} rows cannot be used"
        + (f", more than the {BAD_ROWS_ALLOWED:.0%} that may be skipped" if skip else "")
        + f": {listed}"
    )


def example_of(record: Record, task: Task, columns: Columns, renamed: Mapping[str, str]) -> Example:
    """The record as an example, its id "" if it has none; BadRow if it is none. `renamed`: labels as this file has them."""
    text, pair, fault = columns.texts.read(record)
    if fault is not None:
        raise BadRow(fault)
    fields = record.fields
    row_id = _id_of(fields.get(columns.id)) if columns.id is not None else ""
    label = label_of(fields, columns.label, task, renamed) if columns.label is not None else None
    return Example(row_id, text, pair, label)


def _id_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise BadRow(f"its id is {kind_of(value)}, not a string or a whole number")


def _sha256_of_rows(examples: list[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps(example, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
