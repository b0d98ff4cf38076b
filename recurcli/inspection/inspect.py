"""The rows of one task at one place, inspected from its files to the findings."""

from collections.abc import Generator, Sequence
from pathlib import Path

from recurcli.data.config import DataConfig
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import Task
from recurcli.errors import DataError
from recurcli.findings import Finding
from recurcli.inspection.lengths import lengths_of
from recurcli.inspection.line_ends import FileBytes, line_ends_of
from recurcli.inspection.locate import Part, Place, official_rows
from recurcli.inspection.overlap import numbered, overlaps, repeated_ids, repeats
from recurcli.inspection.report import Report, SplitReport, Tokens
from recurcli.inspection.rows import Measure, SplitRows, read_rows
from recurcli.inspection.rules import apply_rules
from recurcli.tokens.config import TokenizerConfig


def inspect(
    place: Place,
    parts: Sequence[Part],
    task: Task,
    config: DataConfig,
    *,
    measure: Measure | None,
    tokens: Tokens | None,
) -> Generator[int, None, Report]:
    """Read every part once and judge what was found; yields how many rows are read.

    `measure` counts tokens, and `tokens` says of what kind. Raises DataError where the place is one file that cannot be
    read; a file of a folder that cannot be read is a finding, and the others are still inspected.
    """
    task = adapted(task, config)
    label_numbers: dict[str, int] = {}
    read: list[tuple[Part, SplitRows]] = []
    done = 0
    for part in parts:
        splits = {name: SplitRows(name, part.source.path, label_numbers) for name in part.splits}
        count = read_rows(
            part.source,
            task,
            config,
            splits,
            labelled=labelled(task, part),
            option=_option(part.source.path),
            measure=measure,
        )
        for rows in count:
            yield done + rows
        done += sum(rows.read for rows in splits.values())
        yield done
        read += [(part, rows) for rows in splits.values()]
    if not place.path.is_dir() and (fault := read[0][1].fault) is not None:
        raise DataError(fault)
    numbers = numbered([rows for _, rows in read])
    reports = [
        SplitReport(
            rows=rows,
            official=official_rows(task, part, rows.split),
            repeats=repeats(rows, own),
            lengths=None if tokens is None else lengths_of(rows, tokens.max_length),
            bytes=_bytes_of(rows) if rows.split == part.splits[0] else None,
            repeated_ids=len(repeated_ids(rows)),
        )
        for (part, rows), own in zip(read, numbers, strict=True)
    ]
    shared = overlaps([rows for _, rows in read], numbers)
    return Report(
        kind="data",
        path=place.path,
        task=task.name,
        reason=place.reason,
        tokens=tokens,
        splits=reports,
        overlaps=shared,
        findings=[*apply_rules(task, config, reports, shared), *_missing(place, task, read)],
    )


def labelled(task: Task, part: Part) -> bool | None:
    """Whether the rows of a file have labels; None: where a column of labels is found."""
    split = part.splits[0]
    if split in ("train", "dev"):
        return True
    if split in part.source.layout.unlabelled or (split in task.files and not task.has_labels(split)):
        return False
    return True if split in task.files else None


def _option(path: Path) -> str:
    """How to name a column on the command line of `recur check`."""
    table = ".tsv" in path.suffixes or ".csv" in path.suffixes
    return "--{} COLUMN" + (" (a number from 1, with --no-header, where the first row is no header)" if table else "")


def _bytes_of(rows: SplitRows) -> FileBytes | None:
    """The line ends of a split's file; None where it has no lines."""
    if rows.format not in ("tsv", "csv", "jsonl") or rows.fault is not None:
        return None
    return line_ends_of(rows.path)


def _missing(place: Place, task: Task, read: Sequence[tuple[Part, SplitRows]]) -> list[Finding]:
    """Splits that the task has and the folder has not."""
    there = {rows.split for _, rows in read}
    return [
        Finding("information", f"there are no {split} rows (no {name})")
        for split, name in task.files.items()
        if place.path.is_dir() and split not in there
    ]


def trained_on(parts: Sequence[Part]) -> Part:
    """The part that a vocabulary would be made from: the training rows, or else what there is."""
    return next((part for part in parts if "train" in part.splits), parts[0])


def tokens_of(config: TokenizerConfig, max_length: int, *, trained_on: str | None) -> Tokens:
    """How lengths are counted, for a report."""
    return Tokens(kind=config.kind, max_length=max_length, vocabulary=config.vocabulary or trained_on)
