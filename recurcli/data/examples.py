"""A task's split as examples: found, read, its labels checked."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.config import DataConfig
from recurcli.data.hub import load_hub_split
from recurcli.data.listops import listops_mini
from recurcli.data.parquet import read_parquet
from recurcli.data.readers import Record, Records, kind_of, read_records
from recurcli.data.tasks import Task
from recurcli.errors import DataError, UsageError, did_you_mean, visible
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
    dropped: int = 0
    """Rows left out because they have no majority label."""
    bad: list[str] = field(default_factory=list)
    """`file:line: reason` of each row that was skipped."""


class Columns(NamedTuple):
    """What the columns that matter are called in this file; None for one that is not there or not wanted."""

    text: str
    pair: str | None
    label: str | None
    id: str | None


class _BadRow(Exception):
    """Why a row makes no example."""


def load_split(task: Task, split: str, config: DataConfig) -> Split:
    """The `split` ("train", "dev", "test", or another test file that `task` names) of a task.

    `config.path` is a folder with the task's files, a parent of folders named by task, or one file, which then is the
    split; without it the rows are generated (listops-mini) or the Hub's. An example's id is the row's own where all rows
    have one and no two the same, else (unless `config.id` asks for it) the row's number in the file from 0.

    Raises DataError if there are no rows, or if some cannot be read, lack a text or have an unknown label;
    `config.skip_bad_rows` forgives 1 % of them.
    """
    if split not in task.files:
        raise UsageError(f"{task.name} has no split '{visible(split)}'{did_you_mean(split, task.files)}")
    columns = Columns(
        text=config.text or task.text,
        pair=config.pair or task.pair,
        label=(config.label or task.label) if task.has_labels(split) else None,
        id=config.id or task.id,
    )
    if task.dev_every and split in ("train", "dev"):
        return _part(_load(task, split, columns, config), task.dev_every, dev=split == "dev")
    return _load(task, split, columns, config)


def _part(found: Split, every: int, *, dev: bool) -> Split:
    """The dev rows of a training file, every n-th of them, or the others."""
    kept = [example for number, example in enumerate(found.examples) if (number % every == every - 1) == dev]
    return replace(found, examples=kept)


def _load(task: Task, split: str, columns: Columns, config: DataConfig) -> Split:
    """All rows of the file, the Hub's split or the generated one that holds `split`."""
    if config.path is not None:
        path = find_file(task, split, Path(config.path))
        if path.suffix == ".parquet":
            found = _split_of(read_parquet(path), str(path), task, columns, config)
            return replace(found, path=path, sha256=sha256_of(path))
        with read_records(path) as records:
            if records.format == "tsv":
                columns = _in_header(columns, records, config)
            found = _split_of(records, str(path), task, columns, config)
        return replace(found, path=path, sha256=sha256_of(path))
    if task.hub is not None:
        return _split_of(load_hub_split(task, split), f"{task.hub[0]} {task.name} {split}", task, columns, config)
    generated = (Record(line, row._asdict()) for line, row in enumerate(listops_mini()[split], 1))
    return _split_of(generated, task.name, task, Columns("text", None, "label", None), config)


def find_file(task: Task, split: str, path: Path) -> Path:
    """The file of a task's split at `path`: itself, in it, or in its folder named by the task, perhaps gzipped."""
    try:
        if not path.exists():
            raise DataError(f"{path}: does not exist; --data (data.path) names the folder or file of the data")
        if not path.is_dir():
            return path
        name = task.files[split]
        names = [name, f"{name}.gz", f"{task.name}/{name}", f"{task.name}/{name}.gz"]
        found = next((path / name for name in names if (path / name).exists()), None)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if found is None:
        raise DataError(
            f"{path}: has none of {', '.join(names)}; --data (data.path) names a folder with these files or one file"
        )
    return found


def _in_header(columns: Columns, records: Records, config: DataConfig) -> Columns:
    """`columns` as a TSV file's header has them; an id must be there only if the configuration names it."""
    known_id = columns.id if columns.id in records.columns else None
    return Columns(
        text=records.column(columns.text),
        pair=columns.pair and records.column(columns.pair),
        label=columns.label and records.column(columns.label),
        id=records.column(config.id) if config.id is not None else known_id,
    )


def _split_of(records: Iterable[Record], name: str, task: Task, columns: Columns, config: DataConfig) -> Split:
    examples: list[Example] = []
    numbers: list[int] = []
    bad: list[str] = []
    dropped = 0
    number = -1
    for number, record in enumerate(records):
        try:
            example = _example(record, task, columns)
        except _BadRow as reason:
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
            raise DataError(f"{name}: not every row has an id of its own in '{visible(config.id)}'")
        examples = [example._replace(id=str(number)) for example, number in zip(examples, numbers, strict=True)]
    return Split(examples, path=None, sha256=_sha256_of_rows(examples), dropped=dropped, bad=bad)


def judge_bad_rows(bad: list[str], *, rows: int, name: str, skip: bool) -> None:
    """Raise DataError with the first of the `bad` rows, unless there are few and they may be skipped."""
    if not bad or (skip and len(bad) <= BAD_ROWS_ALLOWED * rows):
        return
    listed = "; ".join(bad[:BAD_ROWS_SHOWN]) + ("; …" if len(bad) > BAD_ROWS_SHOWN else "")
    raise DataError(
        f"{name}: {len(bad)} of {rows} rows cannot be used"
        + (f", more than the {BAD_ROWS_ALLOWED:.0%} that may be skipped" if skip else "")
        + f": {listed}"
    )


def _example(record: Record, task: Task, columns: Columns) -> Example:
    """The record as an example, its id "" if it has none; _BadRow if it is none."""
    if record.fault is not None:
        raise _BadRow(record.fault)
    fields = record.fields
    return Example(
        id=_id_of(fields.get(columns.id)) if columns.id is not None else "",
        text=_text_of(fields, columns.text),
        pair=_text_of(fields, columns.pair) if columns.pair is not None else None,
        label=_label_of(fields, columns.label, task) if columns.label is not None else None,
    )


def _value_of(fields: dict[str, Any], column: str) -> Any:
    if column not in fields:
        raise _BadRow(f"has no '{visible(column)}'{visible(did_you_mean(column, fields), limit=400)}")
    return fields[column]


def _text_of(fields: dict[str, Any], column: str) -> str:
    value = _value_of(fields, column)
    if not isinstance(value, str):
        raise _BadRow(f"'{visible(column)}' is {kind_of(value)}, not a string")
    return value


def _id_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise _BadRow(f"its id is {kind_of(value)}, not a string or a whole number")


def _label_of(fields: dict[str, Any], column: str, task: Task) -> str:
    """The label as the task writes it, or its `dropped_label`."""
    value = _value_of(fields, column)
    label = str(value) if type(value) is int else value
    if isinstance(label, str) and (label in task.labels or label == task.dropped_label):
        return label
    if not isinstance(label, str):
        raise _BadRow(f"its label is {kind_of(value)}, not a string")
    owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
    known = f"is not one of {owner} {len(task.labels)} labels{did_you_mean(label, task.labels)}"
    raise _BadRow(f"label '{visible(label)}' {known}" if label else f"its label is empty: it {known}")


def _sha256_of_rows(examples: list[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps(example, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
