"""Inspects the rows of one task: reads each file once and returns counts and findings."""

from collections.abc import Generator, Sequence
from typing import Any

from recurcli.data.config import DataConfig
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, escaped
from recurcli.events import Note, RowsDone
from recurcli.findings import Finding
from recurcli.inspection.lengths import needs_texts, summarize_lengths, token_counter
from recurcli.inspection.locate import UNNAMED, DataFile, Dataset, find_files, official_rows
from recurcli.inspection.overlap import LISTED, repeated_ids, repeated_texts, shared_texts, text_numbers
from recurcli.inspection.rows import SplitRows, TokenCounter, read_rows, training_texts
from recurcli.inspection.rules import find_split_issues, find_task_issues
from recurcli.tokens.config import TokenizerConfig

LARGE = 4 << 20
"""Bytes of training rows from which training a vocabulary takes long enough for a note."""

Tokens = dict[str, Any]
"""`kind` and `max_length` of the tokens, and `vocabulary`: a file or the split it is trained on, None if not needed."""


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
            tokens, count_tokens = yield from _prepare_tokens(files, task, config, tokenizer)
        except DataError as error:
            no_tokens = Finding("warning", escaped(f"no tokens were counted: {error}", limit=1000))
    read = yield from _read(files, task, config, count_tokens)
    splits = [rows for _, rows in read]
    faults = dict.fromkeys(rows.fault for rows in splits if rows.fault is not None)
    if faults and not dataset.path.is_dir():
        raise DataError(*faults)
    findings = [Finding("error", escaped(fault, limit=2000)) for fault in faults]
    numbers = text_numbers(splits)
    reports = []
    for (file, rows), own_numbers in zip(read, numbers, strict=True):
        divided = len(file.splits) > 1
        facts = _facts(rows, own_numbers, official_rows(task, file, rows.split), tokens)
        reports.append(facts)
        if rows.fault is None:
            name = escaped(rows.path.name) + (f" ({rows.split} rows)" if divided else "")
            issues = find_split_issues(rows, facts, task, config, divided=divided)
            findings += [Finding(level, f"{name}: {message}") for level, message in issues]
    overlaps = shared_texts(splits, numbers)
    findings += find_task_issues(splits, overlaps, task, divided=any(len(file.splits) > 1 for file in files))
    if dataset.path.is_dir():
        missing = task.files.keys() - {rows.split for rows in splits}
        what = "there are no {} rows (no {})".format
        findings += [Finding("information", what(split, task.files[split])) for split in sorted(missing)]
    if no_tokens is not None and not faults:
        findings.append(no_tokens)
    report = {
        "task": task.name,
        "task_reason": dataset.reason,
        "tokens": tokens,
        "splits": reports,
        "overlaps": overlaps,
    }
    return report, findings


def _prepare_tokens(
    files: Sequence[DataFile], task: Task, config: DataConfig, tokenizer: TokenizerConfig
) -> Generator[Note, None, tuple[Tokens, TokenCounter]]:
    """Return what counts tokens as a training on these files does; DataError if their texts give no vocabulary."""
    file = next((file for file in files if "train" in file.splits), files[0])
    split, path = file.splits[0], file.source.path
    trains = needs_texts(tokenizer)
    if trains and path.is_file() and path.stat().st_size > LARGE:
        rows = "its rows" if split == UNNAMED else f"the {split} rows"
        yield Note(
            f"{path}: training a {tokenizer.kind} vocabulary on {rows} to count tokens (--no-lengths skips this)"
        )
    tokens = {
        "kind": tokenizer.kind,
        "max_length": config.max_length,
        "vocabulary": tokenizer.vocabulary or (split if trains else None),
    }
    return tokens, token_counter(tokenizer, training_texts(file, task, config))


def _read(
    files: Sequence[DataFile], task: Task, config: DataConfig, count_tokens: TokenCounter | None
) -> Generator[RowsDone, None, list[tuple[DataFile, SplitRows]]]:
    """Read every file once and return the rows of each split."""
    label_numbers: dict[str, int] = {}
    read = []
    done = 0
    for file in files:
        splits = {name: SplitRows(name, file.source.path, label_numbers) for name in file.splits}
        for rows_done in read_rows(file, task, config, splits, count_tokens):
            yield RowsDone(done + rows_done)
        done += sum(rows.read for rows in splits.values())
        read += [(file, rows) for rows in splits.values()]
    return read


def _facts(rows: SplitRows, numbers: Any, official: int | None, tokens: Tokens | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    columns = rows.columns
    labels = dict(sorted(rows.label_counts.items(), key=lambda item: (-item[1], item[0])))
    return {
        "split": rows.split,
        "path": str(rows.path),
        "format": rows.format or None,
        "columns": columns and {**columns.texts.to_json(), "label": columns.label, "id": columns.id},
        "fault": rows.fault,
        "read": rows.read,
        "rows": len(rows),
        "official": official,
        "dropped": rows.dropped,
        "bad": rows.bad,
        "bad_rows": rows.first_bad,
        "labels": labels,
        "majority": max(labels.values()) / sum(labels.values()) if labels else None,
        "repeated": repeated_texts(rows, numbers),
        "repeated_ids": len(repeated_ids(rows)),
        "lengths": None if tokens is None else summarize_lengths(rows.lengths, tokens["max_length"]),
        "issues": {
            issue: {"rows": len(lines), "first_lines": lines[:LISTED].tolist()}
            for issue, lines in sorted(rows.issues.items())
        },
    }
