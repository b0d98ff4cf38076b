"""The splits of a data set that `recur check` reads, and what it counts in them: issues, lengths, repeated and shared texts."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns import ColumnSchema, is_usual
from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.data.splits import Example, Split, canonical_texts, draw_dev_rows, hash_of, load_split
from recurcli.data.tasks import Source, Task, find_source, is_one_file, split_named, splits_of
from recurcli.errors import DataError
from recurcli.log import Log
from recurcli.tokens.tokenizer import Tokenizer, resolved_tokenizer

UNNAMED = "rows"
"""The split of a single file whose name names no split."""
LISTED = 5
"""Texts, and lines of each, that are listed; all are counted."""
LARGE = 4 << 20
"""Characters of training texts from which training a vocabulary takes long enough for a note."""
_INVISIBLE = re.compile(  # but U+200C and U+200D, which Persian, Indic scripts and emoji need
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffd]"
)


def has_invisible(text: str) -> bool:
    """Return whether the text has control, bidi, zero-width or U+FFFD characters."""
    return (not text.isprintable() or "\ufffd" in text) and _INVISIBLE.search(text) is not None


@dataclass(frozen=True)
class CheckedSplit:
    """One split of a data set, and what is counted in its rows."""

    name: str
    rows: Split
    path: Path
    fault: str | None = None
    """Why the file cannot be read; it has no rows then."""
    is_drawn: bool = False
    """Whether dev rows are drawn from its file."""
    alone: Split | None = None
    """The training rows, with their `dev` rows, of a training on this file alone. None: it is no file of training rows."""

    @cached_property
    def labels(self) -> Counter[str]:
        """The number of rows of each label."""
        return Counter(row.label for row in self.rows.examples if row.label is not None)

    @cached_property
    def label_lines(self) -> dict[str, int]:
        """The line of each label's first row."""
        return {row.label: row.line for row in reversed(self.rows.examples) if row.label is not None}

    @cached_property
    def issues(self) -> dict[str, list[int]]:
        """The lines of the rows with an issue, by the name of the issue."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        found |= {issue: [*lines] for issue, lines in self.rows.id_issues.items()}
        for row in self.rows.examples:
            texts = (row.text,) if row.pair is None else (row.text, row.pair)
            if not all(map(str.strip, texts)):
                found["blank"].append(row.line)
            if any(map(has_invisible, texts)):
                found["invisible"].append(row.line)
            if self.rows.format == "tsv" and any(len(text) > 1 and text[0] == text[-1] == '"' for text in texts):
                found["quoted"].append(row.line)
            if row.line == 1 and self.rows.format in ("tsv", "csv") and all(map(is_usual, texts)):
                found["header"].append(row.line)
        return found

    @cached_property
    def by_text(self) -> dict[int, list[Example]]:
        """The rows of each text by its hash; equal and nearly equal texts are one."""
        found: dict[int, list[Example]] = {}
        for digest, row in zip(self.rows.hashes.tolist(), self.rows.examples, strict=True):
            found.setdefault(digest, []).append(row)
        return found

    @cached_property
    def canonical(self) -> list[int]:
        """The hash of the `canonical_texts` of each row."""
        return [hash_of(*canonical_texts(*texts)) for texts in self.rows.texts]


def find_files(task: Task, config: DataConfig) -> dict[str, Source]:
    """Return the file of each split. One that holds train and dev rows stands once, as train.

    They are the files that `config.files` names, else those in the folder `config.path`, or that file alone. Raises DataError
    if a named file does not exist.
    """
    if config.named_files:
        return {split: find_source(task, split, config) for split in config.named_files}
    path = Path(str(config.path))
    if is_one_file(path):
        return {split_named(task, path) or UNNAMED: find_source(task, "train", config)}
    found: dict[str, Source] = {}
    for split in splits_of(task):
        with suppress(DataError):
            source = find_source(task, split, config)
            if all(source.path != other.path for other in found.values()):
                found[split] = source
    return found


def read_splits(files: Mapping[str, Source], task: Task, config: DataConfig, log: Log) -> list[CheckedSplit]:
    """Read every file; one that cannot be read has a fault. Later files must be like the first that can be read.

    Bad rows that a training may skip are faults, too, since they would be lost.
    """
    config = replace(config, skip_bad_rows=False)
    splits: list[CheckedSplit] = []
    trained: ColumnSchema | None = None
    for name, source in files.items():
        is_known = name in ("train", "dev", *task.files) or config.named_file(name) is not None
        try:
            rows = load_split(
                task,
                "train" if name == UNNAMED else name,
                config,
                labelled=None if is_known else "optional",
                trained=trained,
                keep_faults=True,
                after_rows=partial(log.rows, before=sum(split.rows.read for split in splits)),
            )
        except DataError as error:
            splits.append(CheckedSplit(name, Split([], source.path, ""), source.path, str(error)))
            continue
        trained = trained or rows.column_schema
        alone = None
        if name in ("train", UNNAMED) and not config.named_files and config.path == str(source.path):
            alone = draw_dev_rows(rows, task.dev_fraction, config.dev_seed)[0]
        splits.append(CheckedSplit(name, rows, source.path, is_drawn=source.use_dev_split, alone=alone))
        if source.use_dev_split:
            dev = rows.dev or replace(rows, examples=[], read=0, faults=[], notes=())
            splits.append(CheckedSplit("dev", dev, source.path, is_drawn=True))
    return splits


def count_tokens(
    splits: Sequence[CheckedSplit], config: DataConfig, tokenizer: TokenizerConfig, log: Log
) -> tuple[dict[str, Any], list[NDArray[np.int64]]]:
    """Return the description of the tokenizer for the report, and the tokens of each row of each split as a training has them.

    `vocabulary` in the description is a file, or the split that the vocabulary is trained on; None: lengths do not depend
    on a vocabulary. Raises DataError if the texts give no vocabulary.
    """
    train = next((split for split in splits if split.name == "train"), splits[0])
    rows = train.alone or train.rows
    texts = [text for row in rows.with_extra_rows(rows.dev).texts for text in row if text is not None]
    tokenizer = resolved_tokenizer(tokenizer, texts)
    is_trained = tokenizer.kind not in ("char", "byte", "whitespace") and tokenizer.vocabulary is None
    tokens = {
        "kind": tokenizer.kind,
        "max_length": config.max_length,
        "vocabulary": train.name if is_trained else tokenizer.vocabulary,
    }
    if is_trained and sum(map(len, texts)) > LARGE:
        whose = "its rows" if train.name == UNNAMED else f"the {train.name} rows"
        log.note(
            f"{train.path}: training a {tokenizer.kind} vocabulary on {whose} to count tokens (--no-lengths skips this)"
        )
    if tokenizer.kind in ("char", "byte", "whitespace"):  # lengths do not depend on the vocabulary
        tokenizer, texts = replace(tokenizer, min_frequency=1, vocabulary=None), ["a"]
    trained = Tokenizer.train(texts, tokenizer)
    return tokens, [trained.lengths(split.rows.texts) for split in splits]


def summarize_lengths(lengths: NDArray[np.int64], max_length: int) -> dict[str, Any] | None:
    """Return minimum, quantiles, mean and maximum in tokens, and how many rows `max_length` cuts, or None without rows."""
    if not len(lengths):
        return None
    median, p95, p99 = (round(float(number), 2) for number in np.percentile(lengths, (50, 95, 99)))
    return {
        "minimum": int(lengths.min()),
        "median": median,
        "mean": round(float(lengths.mean()), 2),
        "p95": p95,
        "p99": p99,
        "maximum": int(lengths.max()),
        "cut": int((lengths > max_length).sum()),
        "max_length": max_length,
    }


def repeated_texts(split: CheckedSplit) -> dict[str, Any]:
    """Return the repeated texts of a split, and those with more than one label, as counts and first lines."""
    repeated = [rows for rows in split.by_text.values() if len(rows) > 1]
    conflicts = [(rows, labels) for rows in repeated if len(labels := _labels_of(rows)) > 1]
    return {
        "texts": len(repeated),
        "rows": sum(map(len, repeated)) - len(repeated),  # beyond each text's first
        "equal_rows": len(split.canonical) - len(set(split.canonical)),  # beyond the first of the same text
        "first_lines": [[row.line for row in rows[:LISTED]] for rows in repeated[:LISTED]],
        "conflicting_texts": len(conflicts),
        "conflicting_rows": sum(len(rows) for rows, _ in conflicts),
        "first_conflicts": [
            {"lines": [row.line for row in rows[:LISTED]], "labels": [*labels]} for rows, labels in conflicts[:LISTED]
        ],
    }


def shared_texts(splits: Sequence[CheckedSplit]) -> list[dict[str, Any]]:
    """Return the texts that each two splits share, as counts and first lines."""
    overlaps = []
    for one, two in combinations(splits, 2):
        shared = [(one.by_text[digest], rows) for digest, rows in two.by_text.items() if digest in one.by_text]
        differing = sum(_labels_of(first).keys() != _labels_of(second).keys() for first, second in shared)
        known = set(one.canonical)
        overlap = {
            "first": one.name,
            "second": two.name,
            "texts": len(shared),
            "first_rows": sum(len(first) for first, _ in shared),
            "second_rows": sum(len(second) for _, second in shared),
            "equal_rows": sum(text in known for text in two.canonical),  # of `second`, with the same text in `first`
            "other_labels": differing if one.labels and two.labels else 0,  # texts whose labels differ
            "first_lines": [[first[0].line, second[0].line] for first, second in shared[:LISTED]],
        }
        overlaps.append(overlap)
    return overlaps


def _labels_of(rows: Sequence[Example]) -> dict[str, None]:
    """Return the different labels of the rows, in their order."""
    return dict.fromkeys(row.label for row in rows if row.label is not None)
