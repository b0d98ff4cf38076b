"""Inspects the rows of one task: reads each file once and returns counts and findings."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns import TrainingRows
from recurcli.data.config import DataConfig
from recurcli.data.sources import is_one_file, task_with_columns
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, escaped
from recurcli.events import Note, RowsDone
from recurcli.findings import Finding
from recurcli.inspection.locate import UNNAMED, DataFile, Dataset, find_files
from recurcli.inspection.rows import (
    LISTED,
    Numbers,
    SplitRows,
    TokenCounter,
    note_repeated_ids,
    read_rows,
    repeated_texts,
    shared_texts,
    text_numbers,
    training_texts,
)
from recurcli.inspection.rules import find_split_issues, find_task_issues
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer, choose_max_length, encodable, resolved_tokenizer

LARGE = 4 << 20
"""Bytes of training rows from which training a vocabulary takes long enough for a note."""


def inspect(
    dataset: Dataset, config: DataConfig, tokenizer: TokenizerConfig | None
) -> Generator[Note | RowsDone, None, tuple[dict[str, Any], list[Finding]]]:
    """Read every file of a data set; return the counts as `--json` prints them, and the findings.

    `tokenizer` None counts no tokens. Raises DataError if there is no file, or if a single file cannot be read; an
    unreadable file of a folder is a finding.
    """
    task = task_with_columns(task_named(dataset.task), config)
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
    trained = None
    for file in files:
        done = sum(rows.read for rows in splits)
        by_name = {split: SplitRows(split, file, label_numbers) for split in file.splits}
        for number in read_rows(file, task, config, by_name, count_tokens, trained):
            yield RowsDone(done + number)
        first = next(iter(by_name.values()))
        if trained is None and first.format is not None:
            trained = TrainingRows(str(file.source.path), first.columns.texts, is_run=False)
        splits += by_name.values()
    faults = dict.fromkeys(rows.fault for rows in splits if rows.fault is not None)
    if faults and len(files) == 1 and is_one_file(dataset.path):
        raise DataError(*faults)
    findings = [Finding("error", escaped(fault, limit=2000)) for fault in faults]
    train = next((rows for rows in splits if rows.split == "train"), splits[0])
    if tokens is not None and tokens["max_length"] == "auto":
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
    if dataset.path.is_dir() and not is_one_file(dataset.path) and not config.named_files:
        missing = task.files.keys() - {rows.split for rows in splits}
        what = "there are no {} rows (no {})".format
        findings += [Finding("information", what(split, task.files[split])) for split in sorted(missing)]
    if no_tokens is not None and not faults and len(train):  # else no text is the reason, which is told
        findings.append(no_tokens)
    report = {"task": task.name, "task_reason": dataset.reason, "tokens": tokens}
    return {**report, "splits": reports, "overlaps": overlaps}, findings


def prepare_tokens(
    files: Sequence[DataFile], task: Task, config: DataConfig, tokenizer: TokenizerConfig
) -> Generator[Note, None, tuple[dict[str, Any], TokenCounter]]:
    """Return the description of the tokenizer for the report, and a function that counts tokens as training would.

    `vocabulary` in the description is a file, or the split that the vocabulary is trained on; None: lengths do not depend
    on a vocabulary. Raises DataError if the texts give no vocabulary.
    """
    file = next((file for file in files if "train" in file.splits), files[0])
    split, path = file.splits[0], file.source.path
    tokenizer = resolved_tokenizer(tokenizer, training_texts(file, task, config))
    trained = needs_texts(tokenizer)
    if trained and path.is_file() and path.stat().st_size > LARGE:
        rows = "its rows" if split == UNNAMED else f"the {split} rows"
        yield Note(
            f"{path}: training a {tokenizer.kind} vocabulary on {rows} to count tokens (--no-lengths skips this)"
        )
    vocabulary = tokenizer.vocabulary or (split if trained else None)
    tokens = {"kind": tokenizer.kind, "max_length": config.max_length, "vocabulary": vocabulary}
    return tokens, token_counter(tokenizer, training_texts(file, task, config))


def needs_texts(config: TokenizerConfig) -> bool:
    """Return whether lengths depend on a vocabulary that must be trained first."""
    return config.kind not in ("char", "byte", "whitespace") and config.vocabulary is None


def token_counter(config: TokenizerConfig, texts: Iterable[str]) -> TokenCounter:
    """Return a function that counts the tokens of rows before truncation, including the separator of a pair.

    Raises DataError if a vocabulary is needed and `texts` give none.
    """
    if config.kind in ("char", "byte", "whitespace"):  # lengths do not depend on the vocabulary
        config, texts = replace(config, min_frequency=1, vocabulary=None), ["a"]
    tokenizer = Tokenizer.train(texts, config)
    if config.kind not in ("char", "byte"):
        return tokenizer.lengths

    def length(text: str) -> int:  # equal to the number of tokens, without building them
        if config.kind == "byte":
            return len(encodable(text).encode())
        return len(tokenizer.backend.normalizer.normalize_str(encodable(text)))

    def lengths(rows: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
        counts = [length(text) + (0 if pair is None else 1 + length(pair)) for text, pair in rows]
        return np.array(counts, dtype=np.int64)

    return lengths


def summarize_lengths(lengths: Sequence[int], max_length: int) -> dict[str, Any] | None:
    """Return minimum, quantiles, mean and maximum in tokens, and how many rows `max_length` cuts; None without rows."""
    if not lengths:
        return None
    array = np.array(lengths)
    median, p95, p99 = (round(float(number), 2) for number in np.percentile(array, (50, 95, 99)))
    return {
        "minimum": int(array.min()),
        "median": median,
        "mean": round(float(array.mean()), 2),
        "p95": p95,
        "p99": p99,
        "maximum": int(array.max()),
        "cut": int((array > max_length).sum()),
        "max_length": max_length,
    }


def _facts(rows: SplitRows, numbers: Numbers, task: Task, tokens: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    columns = rows.columns
    labels = dict(sorted(rows.label_counts.items(), key=lambda item: (-item[1], item[0])))
    return {
        "split": rows.split,
        "path": str(rows.path),
        "format": rows.format,
        "columns": rows.format and {**columns.texts.to_json(), "label": columns.label, "id": columns.id},
        "fault": rows.fault,
        "read": rows.read,
        "rows": len(rows),
        "official": None if rows.drawn else task.rows.get(rows.split),
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "dev_rows": rows.dev_rows if rows.alone else None,
        "extra_rows": rows.extra_rows,
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
