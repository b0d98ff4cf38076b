"""Reads the rows of each file once, and counts their tokens. Keeps numbers and hashes of each row, not its texts, and finds
repeats with them."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns import Columns, ColumnSchema, find_columns, is_usual
from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.data.rows import Record
from recurcli.data.splits import (
    DevSplitter,
    Example,
    RowHashes,
    canonical_texts,
    examples_of,
    hash_of,
    open_source,
    row_hash,
)
from recurcli.data.tasks import Source, Task, find_source, is_one_file, split_named, splits_of, task_with_columns
from recurcli.data.values import BadRow, TextColumns, Unlabelled
from recurcli.errors import DataError
from recurcli.log import Log
from recurcli.tokens.tokenizer import Tokenizer, encodable, resolved_tokenizer

UNNAMED = "rows"
"""The split of a single file whose name names no split."""
BAD_ROWS_KEPT = 100
"""Bad rows whose reasons are kept; all are counted."""
WINDOW_ROWS = 4096
WINDOW_CHARACTERS = 4 << 20
"""Tokens are counted in windows of at most so many rows and about so many characters."""

LISTED = 5
"""Texts, and lines of each, that are listed; all are counted."""
LABEL_BITS = 31
"""Bits that a label number takes in a packed (text, label) pair: (text number << LABEL_BITS) + label number."""
LARGE = 4 << 20
"""Bytes of training rows from which training a vocabulary takes long enough for a note."""

Numbers = NDArray[np.int64]
TokenCounter = Callable[[Sequence[tuple[str, str | None]]], NDArray[np.int64]]
"""Maps texts and pairs to their lengths in tokens, (rows,)."""

_INVISIBLE = re.compile(  # but U+200C and U+200D, which Persian, Indic scripts and emoji need
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffd]"
)


def has_invisible(text: str) -> bool:
    """Return whether the text has control, bidi, zero-width or U+FFFD characters."""
    return (not text.isprintable() or "\ufffd" in text) and _INVISIBLE.search(text) is not None


class DataFile(NamedTuple):
    """A file (or a folder of label folders) and the splits in it: one split, or train and dev."""

    source: Source
    splits: tuple[str, ...]
    alone: bool = False
    """Whether it is a single file that `recur finetune` would divide into train and dev rows."""


def find_files(task: Task, config: DataConfig) -> list[DataFile]:
    """Return the files of the task's splits. Raises DataError if a named file does not exist.

    They are the files that `config.files` names, else those in the folder `config.path`, or that file alone.
    """
    task = task_with_columns(task, config)
    if config.named_files:
        named = [(split, find_source(task, split, config)) for split in config.named_files]
        return [DataFile(source, (split, "dev") if source.use_dev_split else (split,)) for split, source in named]
    assert config.path is not None
    path = Path(config.path)
    if is_one_file(path):
        split = split_named(task, path) or UNNAMED
        return [DataFile(find_source(task, "train", config), (split,), alone=split in ("train", UNNAMED))]
    files: dict[Path, DataFile] = {}
    for split in splits_of(task):
        try:
            source = find_source(task, split, config)
        except DataError:
            continue
        if source.path not in files:
            files[source.path] = DataFile(source, (split,))
        elif source.use_dev_split:
            files[source.path] = DataFile(source, ("train", "dev"))
    return list(files.values())


class SplitRows:
    """Arrays (N,) of facts about the N usable rows of one split, in their order.

    `label_numbers` maps a label to its number and is shared by the splits of a task.
    """

    def __init__(self, split: str, file: DataFile, label_numbers: dict[str, int]) -> None:
        self.split, self.path = split, file.source.path
        self.drawn = len(file.splits) > 1
        """Whether the dev rows are drawn from the training file."""
        self.alone = file.alone
        self.dev_rows = 0
        """Number of rows that training would draw as dev rows if it were given this file `alone`."""
        self.dev_labels: set[str] = set()
        """Labels of these `dev_rows`."""
        self.extra_rows = 0
        """Number of texts in the columns of `data.extra_rows` that training adds as rows."""
        self.label_numbers = label_numbers
        self.columns = Columns(TextColumns(()), None, None)
        self.format: str | None = None
        """None: the file could not be opened."""
        self.fault: str | None = None
        """Why the file cannot be read to its end."""
        self.read = self.dropped = self.bad = 0
        self.doubt = ""
        """A warning about rows that may be several rows."""
        self.recognised: str | None = None
        """The delimiter of the file if nobody named it and it is not the usual one."""
        self.unlabelled = 0
        """Number of rows without a label. They are bad rows, too, unless `data.unlabelled` drops them."""
        self.hint = ""
        """The end of a message about bad rows, with the likely encoding of the file."""
        self.first_bad: list[str] = []
        """`file:line: reason` of the first BAD_ROWS_KEPT bad rows."""
        self.texts = array("Q")
        """The `row_hash` of each row."""
        self.same = array("Q")
        """The hash of the `canonical_texts` of each row."""
        self.ids = array("Q")
        """The hash of each row's id; empty without a column of ids."""
        self.lines = array("q")
        self.labels = array("i")
        """Label numbers, -1 for a row without a label."""
        self.lengths = array("q")
        """Tokens of each row. It is empty if none were counted."""
        self.uncounted: list[tuple[str, str | None]] = []
        """Texts of the last rows, whose tokens are not yet counted."""
        self.label_counts: Counter[str] = Counter()
        self.label_lines: dict[str, int] = {}
        """The line of each label's first row."""
        self.issues: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        """The lines of the rows with an issue, by the name of the issue."""

    def __len__(self) -> int:
        return len(self.lines)

    def add_bad(self, line: int, reason: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.first_bad) < BAD_ROWS_KEPT:
            self.first_bad.append(f"{self.path}:{line}: {reason}")

    def add(self, line: int, example: Example, digest: int) -> None:
        """Add a usable row and its `row_hash`."""
        text, pair, label = example.text, example.pair, example.label
        self.lines.append(line)
        self.texts.append(digest)
        self.same.append(hash_of(*canonical_texts(text, pair)))
        if self.columns.id is not None:
            self.ids.append(hash_of(example.id))
            if not example.id:
                self.issues["no id"].append(line)
        number = -1 if label is None else self.label_numbers.setdefault(label, len(self.label_numbers))
        self.labels.append(number)
        if label is not None:
            self.label_counts[label] += 1
            self.label_lines.setdefault(label, line)
        texts = (text,) if pair is None else (text, pair)
        if not all(map(str.strip, texts)):
            self.issues["blank"].append(line)
        if any(map(has_invisible, texts)):
            self.issues["invisible"].append(line)
        if self.format == "tsv" and any(len(part) > 1 and part[0] == part[-1] == '"' for part in texts):
            self.issues["quoted"].append(line)


def read_rows(
    file: DataFile,
    task: Task,
    config: DataConfig,
    splits: Mapping[str, SplitRows],
    count_tokens: TokenCounter | None,
    trained: ColumnSchema | None = None,
) -> Generator[int, None, None]:
    """Add the rows of `file` to its `splits` and yield the number of rows read so far.

    `trained`: the rows of another file, which these must be like. A DataError of the file becomes the `fault` of its splits.
    """
    characters = number = 0
    try:
        examples = examples_of_file(file, task, config, splits.values(), trained)
        for number, (record, example, digest, is_dev) in enumerate(examples, 1):
            rows = splits["dev" if is_dev and not file.alone else file.splits[0]]
            rows.read += 1
            if number == 1 and all(is_usual(record.fields.get(column)) for column in rows.columns.texts.names):
                rows.issues["header"].append(record.line)
            rows.unlabelled += isinstance(example, Unlabelled)
            if isinstance(example, Unlabelled) and config.unlabelled == "drop":
                continue
            if isinstance(example, BadRow):
                rows.add_bad(record.line, example)
            elif example is None:
                rows.dropped += 1
            else:
                rows.add(record.line, example, digest)
                rows.dev_rows += is_dev
                if is_dev and example.label is not None:
                    rows.dev_labels.add(example.label)
                rows.extra_rows += 0 if is_dev else len(example.extra)
                if count_tokens is not None:
                    rows.uncounted.append((example.text, example.pair))
                    characters += len(example.text) + len(example.pair or "")
            if number % WINDOW_ROWS == 0 or characters > WINDOW_CHARACTERS:
                _add_lengths(splits, count_tokens)
                characters = 0
                yield number
    except DataError as error:
        for rows in splits.values():
            rows.fault = str(error)
    _add_lengths(splits, count_tokens)
    yield number


def _add_lengths(splits: Mapping[str, SplitRows], count_tokens: TokenCounter | None) -> None:
    """Count the tokens of the uncounted rows, and forget their texts."""
    for rows in splits.values():
        if count_tokens is not None:
            rows.lengths.extend(count_tokens(rows.uncounted).tolist())
        rows.uncounted.clear()


def training_texts(file: DataFile, task: Task, config: DataConfig) -> Iterator[str]:
    """Yield the texts that a vocabulary would be trained on: those of the usable training rows of `file`."""
    for _, example, _, is_dev in examples_of_file(file, task, config, ()):
        if isinstance(example, Example) and not is_dev:
            yield example.text
            if example.pair is not None:
                yield example.pair
            yield from example.extra


def examples_of_file(
    file: DataFile,
    task: Task,
    config: DataConfig,
    splits: Collection[SplitRows],
    trained: ColumnSchema | None = None,
) -> Iterator[tuple[Record, Example | BadRow | None, int, bool]]:
    """Yield each record, its example, its `row_hash` (0 if nothing needs it), and whether training draws it as a dev row.

    The example is a BadRow if the row cannot be used, and None if it is dropped. The columns and the format of the file are
    stored in `splits`.
    """
    split, layout = file.splits[0], file.source.layout
    named = config.named_file(split) is not None
    labelled = named or task.has_labels(split) if split in ("train", "dev", *task.files) else None
    if split in layout.unlabelled:
        labelled = False
    draws = file.alone or len(file.splits) > 1
    with open_source(file.source, task, config) as records:
        training = split in ("train", UNNAMED)
        columns = find_columns(records, task, config, layout, labelled=labelled, training=training, trained=trained)
        for rows in splits:
            rows.columns, rows.format = columns, records.format
            rows.recognised = records.delimiter if records.recognised else None
        drawn = _drawn_pairs(file, task, config, columns) if draws and columns.texts.pair else None
        splitter = DevSplitter(task.dev_fraction, config.dev_seed)
        for record, example in examples_of(records, task, columns, layout.label_names):
            digest, is_dev = 0, False
            if isinstance(example, Example) and (splits or draws):
                digest = row_hash(example.text, example.pair)
                is_dev = draws and (splitter.is_dev(digest, example.label) if drawn is None else next(drawn))
            yield record, example, digest, is_dev
        for rows in splits:
            rows.hint, rows.doubt = records.hint, records.doubt


def _drawn_pairs(file: DataFile, task: Task, config: DataConfig, columns: Columns) -> Iterator[bool]:
    """Return whether each usable row of `file`, up to its first fault, is a dev row. It takes a reading of its own, since
    the first texts that stand in few rows are known at the end only.
    """
    labels: list[str | None] = []

    def pairs() -> Iterator[tuple[str, str | None]]:
        with suppress(DataError), open_source(file.source, task, config) as records:
            if columns.header:
                records.take_header()
            for _, example in examples_of(records, task, columns, file.source.layout.label_names):
                if isinstance(example, Example):
                    labels.append(example.label)
                    yield example.text, example.pair

    hashes = RowHashes.of(pairs())
    return iter(hashes.drawn(labels, task.dev_fraction, config.dev_seed).tolist())


def prepare_tokens(
    files: Sequence[DataFile], task: Task, config: DataConfig, tokenizer: TokenizerConfig, log: Log
) -> tuple[dict[str, Any], TokenCounter]:
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
        log.note(f"{path}: training a {tokenizer.kind} vocabulary on {rows} to count tokens (--no-lengths skips this)")
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
    """Return minimum, quantiles, mean and maximum in tokens, and how many rows `max_length` cuts, or None without rows."""
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


def text_numbers(splits: Sequence[SplitRows]) -> list[Numbers]:
    """Return an array (N,) for each split. Rows of equal or nearly equal texts have equal numbers in all splits."""
    hashes = [np.frombuffer(split.texts, dtype=np.uint64) for split in splits]
    numbers = np.unique(np.concatenate(hashes), return_inverse=True)[1]
    return np.split(numbers, np.cumsum([len(part) for part in hashes])[:-1])


def note_repeated_ids(split: SplitRows) -> None:
    """Add the issue "repeated id" for each row whose id an earlier row has. Rows without an id are ignored."""
    ids = np.frombuffer(split.ids, dtype=np.uint64)
    again = ids != np.uint64(hash_of(""))
    again[np.unique(ids, return_index=True)[1]] = False
    if again.any():
        split.issues["repeated id"].extend(np.array(split.lines)[again].tolist())


def repeated_texts(split: SplitRows, numbers: Numbers) -> dict[str, Any]:
    """Return the repeated texts of a split, and those with more than one label, as counts and first lines."""
    counts = np.bincount(numbers)
    repeated = np.flatnonzero(counts > 1)
    several_labels = np.flatnonzero(np.bincount(_text_labels(split, numbers) >> LABEL_BITS) > 1)
    lines, labels, names = np.array(split.lines), np.array(split.labels), list(split.label_numbers)
    conflicts = [(lines[rows], np.unique(labels[rows])) for rows in _rows_of_first(numbers, several_labels)]
    return {
        "texts": len(repeated),
        "rows": int((counts[repeated] - 1).sum()),  # beyond each text's first
        "equal_rows": len(split.same) - len(set(split.same)),  # beyond the first of the same text
        "first_lines": [lines[rows][:LISTED].tolist() for rows in _rows_of_first(numbers, repeated)],
        "conflicting_texts": len(several_labels),
        "conflicting_rows": int(counts[several_labels].sum()),
        "first_conflicts": [
            {"lines": where[:LISTED].tolist(), "labels": [names[label] for label in found if label >= 0]}
            for where, found in conflicts
        ],
    }


def shared_texts(splits: Sequence[SplitRows], numbers: Sequence[Numbers]) -> list[dict[str, Any]]:
    """Return the texts that each two splits share, as counts and first lines."""
    overlaps = []
    for (one, first), (two, second) in combinations(zip(splits, numbers, strict=True), 2):
        shared = np.intersect1d(first, second)
        in_first, in_second = np.isin(first, shared), np.isin(second, shared)
        other_labels = 0
        if one.label_counts and two.label_counts:
            pairs = np.setxor1d(_text_labels(one, first, in_first), _text_labels(two, second, in_second))
            other_labels = len(np.unique(pairs >> LABEL_BITS))
        rows = [row[0] for row in _rows_of_first(second, shared)]
        overlap = {
            "first": one.split,
            "second": two.split,
            "texts": len(shared),
            "first_rows": int(in_first.sum()),
            "second_rows": int(in_second.sum()),
            "equal_rows": int(np.isin(two.same, one.same).sum()),  # of `second`, with the same text in `first`
            "other_labels": other_labels,  # texts whose labels differ between the splits
            "first_lines": [[one.lines[int(np.argmax(first == second[row]))], two.lines[int(row)]] for row in rows],
        }
        overlaps.append(overlap)
    return overlaps


def _rows_of_first(numbers: Numbers, wanted: Numbers) -> list[Numbers]:
    """Return the rows of the first LISTED texts among `wanted`, in the order in which they first occur."""
    present = numbers[np.isin(numbers, wanted)]
    _, first = np.unique(present, return_index=True)
    return [np.flatnonzero(numbers == present[row]) for row in sorted(first)[:LISTED]]


def _text_labels(split: SplitRows, numbers: Numbers, where: NDArray[np.bool_] | bool = True) -> Numbers:
    """Return the distinct (text, label) pairs of the labelled rows `where`, as (text number << LABEL_BITS) + label number."""
    labels = np.array(split.labels, dtype=np.int64)
    chosen = (labels >= 0) & where
    return np.unique((numbers[chosen] << LABEL_BITS) + labels[chosen])
