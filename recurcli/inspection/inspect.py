"""Inspects the rows of one task: reads each file once and returns counts and findings."""

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from recurcli.data.config import DataConfig
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, escaped
from recurcli.events import Note, RowsDone
from recurcli.findings import Finding
from recurcli.inspection.lengths import prepare_tokens, summarize_lengths
from recurcli.inspection.locate import Dataset, find_files
from recurcli.inspection.overlap import LISTED, Numbers, note_repeated_ids, repeated_texts, shared_texts, text_numbers
from recurcli.inspection.rows import SplitRows, read_rows
from recurcli.inspection.rules import find_split_issues, find_task_issues
from recurcli.tokens.auto import choose_max_length
from recurcli.tokens.config import TokenizerConfig


def inspect(
    dataset: Dataset, config: DataConfig, tokenizer: TokenizerConfig | None
) -> Generator[Note | RowsDone, None, tuple[dict[str, Any], list[Finding]]]:
    """Read every file of a data set; return the counts as `--json` prints them, and the findings.

    `tokenizer` None counts no tokens. Raises DataError if there is no file, or if a single file cannot be read; an
    unreadable file of a folder is a finding.
    """
    task = adapted(task_named(dataset.task), config)
    files = find_files(task, config)
    if not files:
        names = ", ".join(dict.fromkeys(name for layout in task.layouts for name in layout.files.values()))
        raise DataError(f"{dataset.path}: has no file of {task.name}" + (f" (looked for {names})" if names else ""))
    tokens, count_tokens, no_tokens = None, None, None
    if tokenizer is not None:
        try:
            tokens, count_tokens = yield from prepare_tokens(files, task, config, tokenizer)
        except DataError as error:
            no_tokens = Finding("warning", escaped(f"no tokens were counted: {error}", limit=1000))
    label_numbers: dict[str, int] = {}
    splits: list[SplitRows] = []
    for file in files:
        done = sum(rows.read for rows in splits)
        by_name = {split: SplitRows(split, file, label_numbers) for split in file.splits}
        for number in read_rows(file, task, config, by_name, count_tokens):
            yield RowsDone(done + number)
        splits += by_name.values()
    faults = dict.fromkeys(rows.fault for rows in splits if rows.fault is not None)
    if faults and not dataset.path.is_dir():
        raise DataError(*faults)
    findings = [Finding("error", escaped(fault, limit=2000)) for fault in faults]
    if tokens is not None and tokens["max_length"] == "auto":
        train = next((rows for rows in splits if rows.split == "train"), splits[0])
        tokens["max_length"] = choose_max_length(np.array(train.lengths))
    reports = []
    numbers = text_numbers(splits)
    for rows, row_numbers in zip(splits, numbers, strict=True):
        note_repeated_ids(rows)
        reports.append(_facts(rows, row_numbers, task, tokens))
        if rows.fault is None:
            findings += find_split_issues(rows, reports[-1], task, config)
    overlaps = shared_texts(splits, numbers)
    findings += find_task_issues(splits, overlaps, task)
    if dataset.path.is_dir():
        missing = task.files.keys() - {rows.split for rows in splits}
        what = "there are no {} rows (no {})".format
        findings += [Finding("information", what(split, task.files[split])) for split in sorted(missing)]
    if no_tokens is not None and not faults:
        findings.append(no_tokens)
    report = {"task": task.name, "task_reason": dataset.reason, "tokens": tokens}
    return {**report, "splits": reports, "overlaps": overlaps}, findings


def _facts(rows: SplitRows, numbers: Numbers, task: Task, tokens: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    columns = rows.columns
    labels = dict(sorted(rows.label_counts.items(), key=lambda item: (-item[1], item[0])))
    return {
        "split": rows.split,
        "path": str(rows.path),
        "format": rows.format,
        "columns": columns and {**columns.texts.to_json(), "label": columns.label, "id": columns.id},
        "fault": rows.fault,
        "read": rows.read,
        "rows": len(rows),
        "official": None if rows.drawn else task.rows.get(rows.split),
        "dropped": rows.dropped,
        "bad": rows.bad,
        "bad_rows": rows.first_bad,
        "labels": labels,
        "majority": max(labels.values()) / sum(labels.values()) if labels else None,
        "repeated": repeated_texts(rows, numbers),
        "lengths": None if tokens is None else summarize_lengths(rows.lengths, tokens["max_length"]),
        "issues": {
            issue: {"rows": len(lines), "first_lines": [*lines[:LISTED]]} for issue, lines in rows.issues.items()
        },
    }
