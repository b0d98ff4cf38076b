"""One pass over the rows of a file; keeps numbers and digests of each row, never its texts."""

import contextlib
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns.find import Columns
from recurcli.data.columns.texts import BadRow, is_usual
from recurcli.data.config import DataConfig
from recurcli.data.dev_split import DevSplitter
from recurcli.data.examples import Example, example_of, opened
from recurcli.data.formats.records import Record, Records
from recurcli.data.tasks import Task
from recurcli.errors import DataError
from recurcli.inspection.locate import DataFile

DIGEST_BYTES = 16
BAD_ROWS_KEPT = 100
"""Bad rows whose reasons are kept; all are counted."""
WINDOW_ROWS = 4096
WINDOW_CHARACTERS = 4 << 20
"""Tokens are counted in windows of at most so many rows and about so many characters."""

TokenCounter = Callable[[Sequence[tuple[str, str | None]]], NDArray[np.int64]]
"""Maps texts and pairs to their lengths in tokens, (rows,)."""

_INVISIBLE = re.compile(  # but U+200C and U+200D, which Persian, Indic scripts and emoji need
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffd]"
)


def has_invisible(text: str) -> bool:
    """Return whether the text has control, bidi, zero-width or U+FFFD characters."""
    return (not text.isprintable() or "\ufffd" in text) and _INVISIBLE.search(text) is not None


class SplitRows:
    """Numbers about the rows of one split; element i of each array is the i-th usable row.

    `label_numbers` maps a label to its number and is shared by the splits of a task.
    """

    def __init__(self, split: str, path: Path, label_numbers: dict[str, int]) -> None:
        self.split, self.path = split, path
        self.label_numbers = label_numbers
        self.read = 0
        """Rows of the file, usable or not."""
        self.dropped = 0
        self.bad = 0
        self.first_bad: list[str] = []
        """`file:line: reason` of the first BAD_ROWS_KEPT bad rows."""
        self.texts = bytearray()
        """DIGEST_BYTES for each row's text or pair."""
        self.ids = bytearray()
        """DIGEST_BYTES for each row's id; empty without a column of ids."""
        self.lines = array("q")
        self.labels = array("i")
        self.lengths = array("q")
        """Tokens of each row; empty if none were counted."""
        self.label_counts: Counter[str] = Counter()
        self.label_lines: dict[str, int] = {}
        """The line of each label's first row."""
        self.issues: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        """The lines of rows with an issue, by the issue's name."""
        self.columns: Columns | None = None
        self.names: tuple[str, ...] = ()
        """The names of the file's columns."""
        self.format = ""
        self.header = False
        self.fault: str | None = None
        """Why the file cannot be read to its end."""

    def __len__(self) -> int:
        return len(self.lines)

    def add_bad(self, line: int, reason: BadRow) -> None:
        """Count a row that cannot be used."""
        self.bad += 1
        if len(self.first_bad) < BAD_ROWS_KEPT:
            self.first_bad.append(f"{self.path}:{line}: {reason}")

    def add(self, line: int, example: Example) -> None:
        """Add a usable row."""
        text, pair, label = example.text, example.pair, example.label
        self.lines.append(line)
        self.texts += digest(text if pair is None else f"{text}\0{pair}")
        if self.columns is not None and self.columns.id is not None:
            self.ids += digest(example.id)
            if not example.id:
                self.issues["no id"].append(line)
        if label is None:
            self.labels.append(-1)
        else:
            self.labels.append(self.label_numbers.setdefault(label, len(self.label_numbers)))
            self.label_counts[label] += 1
            self.label_lines.setdefault(label, line)
        texts = (text,) if pair is None else (text, pair)
        if not all(map(str.strip, texts)):
            self.issues["blank"].append(line)
        if any(map(has_invisible, texts)):
            self.issues["invisible"].append(line)
        if self.format == "tsv" and any(len(part) > 1 and part[0] == part[-1] == '"' for part in texts):
            self.issues["quoted"].append(line)


def digest(text: str) -> bytes:
    """Return DIGEST_BYTES that identify a text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).digest()


def read_rows(
    file: DataFile, task: Task, config: DataConfig, splits: Mapping[str, SplitRows], count_tokens: TokenCounter | None
) -> Generator[int, None, None]:
    """Add the rows of `file` to its `splits` and yield the number of rows read so far.

    A DataError of the file becomes the `fault` of its splits.
    """
    first = splits[file.splits[0]]
    window: list[tuple[SplitRows, tuple[str, str | None]]] = []
    characters = number = 0
    try:
        with _opened(file, task, config) as (records, columns):
            for rows in splits.values():
                rows.columns, rows.names, rows.format = columns, records.columns, records.format
                rows.header = file.source.layout.header and records.format in ("tsv", "csv")
            for number, (record, example, is_dev) in enumerate(_examples(records, columns, file, task, config), 1):
                rows = splits["dev"] if is_dev else first
                rows.read += 1
                if number == 1 and not rows.header and _names_columns(record, columns):
                    rows.issues["header"].append(record.line)
                if isinstance(example, BadRow):
                    rows.add_bad(record.line, example)
                elif example is None:
                    rows.dropped += 1
                else:
                    rows.add(record.line, example)
                    if count_tokens is not None:
                        window.append((rows, (example.text, example.pair)))
                        characters += len(example.text) + len(example.pair or "")
                if count_tokens is not None and (len(window) >= WINDOW_ROWS or characters > WINDOW_CHARACTERS):
                    _add_lengths(window, count_tokens)
                    window, characters = [], 0
                if number % WINDOW_ROWS == 0:
                    yield number
    except DataError as error:
        for rows in splits.values():
            rows.fault = str(error)
    if count_tokens is not None:
        _add_lengths(window, count_tokens)
    yield number


def training_texts(file: DataFile, task: Task, config: DataConfig) -> Iterator[str]:
    """Yield the texts that a vocabulary would be trained on: those of the usable training rows of `file`."""
    with _opened(file, task, config) as (records, columns):
        for _, example, is_dev in _examples(records, columns, file, task, config):
            if isinstance(example, Example) and not is_dev:
                yield example.text
                if example.pair is not None:
                    yield example.pair


def _opened(
    file: DataFile, task: Task, config: DataConfig
) -> contextlib.AbstractContextManager[tuple[Records, Columns]]:
    path = file.source.path
    table = ".tsv" in path.suffixes or ".csv" in path.suffixes
    hint = " (a number from 1, with --no-header, where the first row is no header)" if table else ""
    return opened(file.source, task, config, labelled=_labelled(file, task), option="--{} COLUMN" + hint)


def _labelled(file: DataFile, task: Task) -> bool | None:
    """Return whether the rows of a file have labels; None if a column of labels decides it."""
    split = file.splits[0]
    if split in ("train", "dev"):
        return True
    if split in file.source.layout.unlabelled:
        return False
    return task.has_labels(split) if split in task.files else None


def _examples(
    records: Records, columns: Columns, file: DataFile, task: Task, config: DataConfig
) -> Iterator[tuple[Record, Example | BadRow | None, bool]]:
    """Yield each record, its example (BadRow if unusable, None if dropped) and whether it is a dev row of a train file."""
    splitter = DevSplitter(task.dev_every or 10, config.dev_seed) if len(file.splits) > 1 else None
    example: Example | BadRow | None
    for record in records:
        try:
            example = example_of(record, task, columns, file.source.layout.label_names)
        except BadRow as reason:
            yield record, reason, False
            continue
        if example.label is not None and example.label == task.dropped_label:
            yield record, None, False
        else:
            is_dev = splitter is not None and splitter.is_dev(example.text, example.pair, example.label)
            yield record, example, is_dev


def _names_columns(record: Record, columns: Columns) -> bool:
    """Return whether every text of the row is a usual name of a text column."""
    return all(is_usual(record.fields.get(column)) for column in (*columns.texts.text, *columns.texts.pair))


def _add_lengths(window: Sequence[tuple[SplitRows, tuple[str, str | None]]], count_tokens: TokenCounter) -> None:
    """Count the tokens of rows and append the lengths to their splits."""
    for (rows, _), length in zip(window, count_tokens([texts for _, texts in window]).tolist(), strict=True):
        rows.lengths.append(length)
