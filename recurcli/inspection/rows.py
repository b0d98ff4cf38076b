"""One pass over the rows of a file: of each row numbers and digests are kept, never its texts."""

from array import array
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns.find import Columns
from recurcli.data.columns.texts import BadRow, is_usual
from recurcli.data.config import DataConfig
from recurcli.data.examples import Example, example_of, opened
from recurcli.data.formats.records import Record, Records
from recurcli.data.sources.find import Source
from recurcli.data.tasks import Task
from recurcli.errors import DataError
from recurcli.inspection.characters import is_missing_word, odd_characters, odd_quotes

DIGEST_BYTES = 16
BAD_ROWS_KEPT = 100
"""How many of the bad rows are kept with their reasons; all are counted."""
PLACES_KEPT = 5
WINDOW_ROWS = 4096
WINDOW_CHARACTERS = 4 << 20
"""Rows are counted in tokens a window of at most so many rows and characters at a time."""

Measure = Callable[[Sequence[tuple[str, str | None]]], NDArray[np.int64]]
"""The lengths of texts and pairs in tokens."""


@dataclass
class Places:
    """How many rows have something, and the lines of the first of them."""

    count: int = 0
    lines: list[int] = field(default_factory=list)

    def note(self, line: int) -> None:
        """One more row."""
        self.count += 1
        if len(self.lines) < PLACES_KEPT:
            self.lines.append(line)

    def __str__(self) -> str:
        """The lines in words, such as `lines 3, 7, …`."""
        shown = ", ".join(f"{line}" for line in self.lines)
        return f"line{'' if self.count == 1 else 's'} {shown}{', …' if self.count > len(self.lines) else ''}"

    def to_json(self) -> dict[str, Any]:
        """As --json has it."""
        return {"rows": self.count, "first_lines": self.lines}


class SplitRows:
    """What is known of the rows of one split; row i of the arrays is the i-th row that can be used."""

    def __init__(self, split: str, path: Path, label_numbers: dict[str, int]) -> None:
        self.split, self.path = split, path
        self.label_numbers = label_numbers
        """Label to number, shared by the splits of a task."""
        self.read = 0
        """Rows of the file, usable or not."""
        self.dropped = 0
        self.bad = 0
        self.first_bad: list[str] = []
        """`file:line: reason` of the first BAD_ROWS_KEPT."""
        self.texts = bytearray()
        """DIGEST_BYTES a row: of its text, or of its two texts."""
        self.ids = bytearray()
        self.lines = array("q")
        self.labels = array("i")
        self.lengths = array("q")
        """Tokens a row, as long as lengths are asked for."""
        self.label_counts: Counter[str] = Counter()
        self.label_lines: dict[str, int] = {}
        """The line of each label's first row."""
        self.places: dict[str, Places] = {}
        """What is odd about rows, by a word for it."""
        self.columns: Columns | None = None
        self.names: tuple[str, ...] = ()
        """The names of the file's columns."""
        self.format = ""
        self.header = False
        self.fault: str | None = None
        """Why the file could not be read, or not to its end."""

    def __len__(self) -> int:
        return len(self.lines)

    def note(self, what: str, line: int) -> None:
        """`line` has something odd."""
        self.places.setdefault(what, Places()).note(line)

    def begin(self, records: Records, columns: Columns, *, header: bool) -> None:
        """How the file was opened."""
        self.columns, self.names, self.format = columns, records.columns, records.format
        self.header = header and records.format in ("tsv", "csv")

    def add_bad(self, place: str, line: int, reason: str) -> None:
        """A row that cannot be used."""
        self.bad += 1
        if len(self.first_bad) < BAD_ROWS_KEPT:
            self.first_bad.append(f"{place}:{line}: {reason}")
        if "quote" in reason and self.format == "csv":
            self.note("quote fault", line)

    def add(self, line: int, example: Example) -> None:
        """A row that can be used."""
        text, pair = example.text, example.pair
        self.lines.append(line)
        self.texts += digest(text if pair is None else f"{text}\0{pair}")
        if self.columns is not None and self.columns.id is not None:
            self.ids += digest(example.id)
            if not example.id:
                self.note("no id", line)
        self.labels.append(-1 if example.label is None else self._number_of(example.label, line))
        odd: set[str] = set(odd_characters(text))
        for part in (text,) if pair is None else (text, pair):
            if part is pair:
                odd.update(odd_characters(part))
            if not part.strip():
                odd.add("blank")
            elif is_missing_word(part):
                odd.add("missing word")
            if self.format == "tsv" and '"' in part:
                odd.update(odd_quotes(part))
            elif self.format == "csv" and "\n" in part:
                odd.add("spans lines")
        for what in odd:
            self.note(what, line)

    def _number_of(self, label: str, line: int) -> int:
        self.label_counts[label] += 1
        self.label_lines.setdefault(label, line)
        return self.label_numbers.setdefault(label, len(self.label_numbers))


def digest(text: str) -> bytes:
    """What stands for a text in memory."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).digest()


def read_rows(
    source: Source,
    task: Task,
    config: DataConfig,
    splits: Mapping[str, SplitRows],
    *,
    labelled: bool | None,
    option: str,
    measure: Measure | None,
) -> Generator[int, None, None]:
    """Fill `splits` – one, or train and dev where the file holds both – with the rows of `source`; yields the rows read.

    `measure` counts tokens. A DataError about the file is the `fault` of its splits.
    """
    main = next(iter(splits.values()))
    try:
        with opened(source, task, config, labelled=labelled, option=option) as (records, columns):
            for rows in splits.values():
                rows.begin(records, columns, header=source.layout.header)
            yield from _read(records, source, task, columns, splits, measure)
    except DataError as error:
        main.fault = str(error)


def _read(
    records: Records,
    source: Source,
    task: Task,
    columns: Columns,
    splits: Mapping[str, SplitRows],
    measure: Measure | None,
) -> Generator[int, None, None]:
    main, other = next(iter(splits.values())), splits.get("dev")
    every = task.dev_every or 10
    divided = len(splits) > 1
    window = _Window(measure)
    used = 0
    for number, record in enumerate(records, 1):
        if number == 1 and not main.header and _names_columns(record, columns):
            main.note("header", record.line)
        example = _usable(record, source, task, columns, main)
        if example is not None:
            rows = other if divided and other is not None and used % every == every - 1 else main
            rows.read += rows is not main
            main.read -= rows is not main
            rows.add(record.line, example)
            window.add(rows, example)
            used += 1
        main.read += 1
        if number % WINDOW_ROWS == 0:
            yield number
    window.count()


def _usable(record: Record, source: Source, task: Task, columns: Columns, rows: SplitRows) -> Example | None:
    """The record as an example; None where it is bad or dropped, and `rows` know of it."""
    try:
        example = example_of(record, task, columns, source.layout.label_names)
    except BadRow as reason:
        rows.add_bad(str(source.path), record.line, str(reason))
        return None
    if example.label is not None and example.label == task.dropped_label:
        rows.dropped += 1
        return None
    return example


def _names_columns(record: Record, columns: Columns) -> bool:
    """Whether the texts of a row are what columns of texts are called."""
    return all(is_usual(record.fields.get(column)) for column in (*columns.texts.text, *columns.texts.pair))


class _Window:
    """Rows that wait to be counted in tokens."""

    def __init__(self, measure: Measure | None) -> None:
        self.measure = measure
        self.texts: list[tuple[str, str | None]] = []
        self.owners: list[SplitRows] = []
        self.characters = 0

    def add(self, rows: SplitRows, example: Example) -> None:
        """One more row; a full window is counted."""
        if self.measure is None:
            return
        self.texts.append((example.text, example.pair))
        self.owners.append(rows)
        self.characters += len(example.text) + len(example.pair or "")
        if len(self.texts) >= WINDOW_ROWS or self.characters > WINDOW_CHARACTERS:
            self.count()

    def count(self) -> None:
        """Give the waiting rows their lengths."""
        if self.measure is None or not self.texts:
            return
        for rows, length in zip(self.owners, self.measure(self.texts).tolist(), strict=True):
            rows.lengths.append(length)
        self.texts, self.owners, self.characters = [], [], 0
