"""Reads the rows of a split as examples, draws dev rows from training rows, and finds equal and bad rows.

Training, `check` and `eval` read rows by these functions, so they agree on every row.
"""

import hashlib
import json
import math
import os
import re
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, compress, islice, repeat, starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, LabelNames, names_in
from recurcli.data.columns import BadRow, LeftOut, TextColumns, Unlabelled, joined
from recurcli.data.labels import (
    answer_of,
    check_known,
    check_labels,
    decided_cells,
    joint_doubt,
    kind_of_cells,
    label_of,
)
from recurcli.data.listops import SIZES, listops_rows
from recurcli.data.packed_texts import PackedTexts
from recurcli.data.readers import dataset_records, format_of, parts_of_document, with_labels
from recurcli.data.rows import Format, Record, Records, file_and_part, kind_of, path_shown, uncompressed
from recurcli.data.source import AS_ROW, UNKNOWN, Source, find_source
from recurcli.data.tasks import CUSTOM, PLAIN, STEMS, Task, find_place, is_local, task_with_columns
from recurcli.errors import DataError, UsageError, escaped, pluralize, quoted
from recurcli.files import sha256_of_all
from recurcli.log import AfterBatch, Log, Note, ignore
from recurcli.targets import TARGETS, Cell, OneLabel, SeveralLabels, Target
from recurcli.targets.one_label import ordered_labels
from recurcli.targets.target import Y, labels_in

Line = TypeVar("Line")


def drawn_rows(
    group_ids: NDArray[np.uint64],
    labels: Iterable[str],
    fraction: float,
    seed: int,
    *,
    keep_fraction: bool = False,
) -> Iterator[bool]:
    """Yield whether each row is a dev row: a `fraction` of the rows of each class is, at most a half (ours).

    The rows of a class form blocks of 1 / fraction rows in their order; where that is not a whole number, the blocks' lengths
    differ by one. One row of each block is drawn, by the seed, the label and the block's number. So a class of n different
    texts has fraction * n dev rows, give or take less than one. The first row of a class is always a training row, so that
    training knows every label. Rows of one group (see `RowHashes`) stay together. The one exception is a class's first row: it
    stays a training row even if another label's row draws its group.

    With `keep_fraction` a class keeps its fraction where many rows stay together. A drawn row that must stay a training row
    passes its place to the next free row of its class. A row that follows its group to the dev rows uses up one place.
    """
    rows: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    deficits: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    drawn: dict[str, int] = {}
    dev: set[int] = set()
    is_first = np.zeros(len(group_ids), np.bool_)
    is_first[np.unique(group_ids, return_index=True)[1]] = True

    def start_of(block: int) -> int:
        return math.floor(block / fraction + 0.5)

    for group_id, begins, label in zip(group_ids.data, is_first.data, labels, strict=True):
        row = rows[label]
        rows[label] += 1
        if row == ends[label]:  # a block begins
            block = blocks[label]
            first, ends[label] = max(1, row), start_of(block + 1)  # a class's first row is never drawn
            drawn[label] = first + hash_of(seed, label, block) % (ends[label] - first)
            blocks[label] += 1
        deficit = (row == drawn[label]) + deficits[label]
        # every second free row, so that no order of the rows keeps one sort of them from the draw
        is_due = deficit > 0 and (row == drawn[label] or hash_of(seed, group_id) % 2 == 0)
        is_dev = row > 0 and (is_due if begins else group_id in dev)
        if keep_fraction:
            deficits[label] = deficit - is_dev
        if is_dev:
            dev.add(group_id)
        elif not begins:
            dev.discard(group_id)  # a class's first row, after which its group is a training one
        yield is_dev


def divide_lines(lines: Sequence[Line], fraction: float, name: str) -> tuple[Sequence[Line], Sequence[Line]]:
    """Return the training lines and the dev lines of a text: the last `fraction`, since each line goes on from the one before
    (ours). Raises DataError, which begins with `name`, for a text of one line.
    """
    if len(lines) < 2:
        raise DataError(f"{name}: has one line; a dev text takes a second one, or a file of its own")
    last = max(1, int(len(lines) * fraction))
    return lines[:-last], lines[-last:]


class _Shown(dict[int, str | None]):
    """Maps a code point to its character, or to None if it is not shown. Each is worked out once."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        is_hidden = category in ("Cc", "Cf") and not character.isspace()
        # the tokenizers read a lone surrogate as a question mark (see `encodable`)
        self[code] = None if is_hidden else "?" if category == "Cs" else character
        return self[code]


_SHOWN = _Shown()


def text_key(text: str) -> str:
    """Return the form in which equal and nearly equal texts are one: it decides leaks, and which rows the draw keeps together.

    The form is NFKC and case-folded, with one space for each run of white space and none at the ends, and without control
    and format characters, which are not shown. All marks stay, since another mark makes another word in most scripts. The
    two joiners U+200C and U+200D are left out, though a few Persian words differ by one alone: a text is often written both
    with and without it, and a leak that is missed costs more than two sentences that are kept together. Soft labels never
    pass from one to the other (see `canonical_texts`).
    """
    if text.isascii() and text.isprintable():  # the form is NFKC already
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", text.translate(_SHOWN)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


SAMPLE = 1000
"""Number of texts that `separates_words` reads."""
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


def separates_words(texts: Iterable[str]) -> bool:
    """Return whether fewer than half of the letters of the first SAMPLE texts are of scripts without spaces."""
    letters = foreign = 0
    for text in islice(texts, SAMPLE):
        letters += sum(map(str.isalpha, text))
        foreign += len(_WITHOUT_SPACES.findall(text))
    return foreign * 2 < max(letters, 1)


def canonical_texts(text: str, pair: str | None) -> tuple[str, str]:
    """Return the texts of a row in the form in which they are the same: NFC, without white space at the ends."""
    return unicodedata.normalize("NFC", text).strip(), unicodedata.normalize("NFC", pair or "").strip()


def row_hash(text: str, pair: str | None) -> int:
    """Return a 64-bit hash of the `text_key` of a row's texts, without its label, the same on every machine."""
    return hash_of(text_key(text), text_key(pair or ""))


def hashes_of(texts: Iterable[tuple[str, str | None]]) -> NDArray[np.uint64]:
    """Return the `row_hash` of each text or pair, (N,)."""
    return np.fromiter(starmap(row_hash, texts), np.uint64)


class RowHashes(NamedTuple):
    """The `row_hash` of each row of a file, and the id of its group, both (N,).

    Rows of one group are training rows together, or dev rows together. The group id of a pair is the hash of its first text, if
    few rows have that text. Any other group id is the `row_hash`. A model learns the labels of a first text, so dev rows with
    first texts of training rows mislead. A first text of many rows, such as a topic, will also be known to the model in use.
    """

    rows: NDArray[np.uint64]
    group_ids: NDArray[np.uint64]

    @property
    def are_grouped(self) -> bool:
        """Whether rows of equal first texts stay together, beside rows of equal texts."""
        return not np.array_equal(self.rows, self.group_ids)

    def drawn(self, target: Target | None, cells: Sequence[Cell], fraction: float, seed: int) -> NDArray[np.bool_]:
        """Return whether each row (N,) is a dev row. Where rows are grouped, those of a group are drawn at its first row.

        `target` None: the rows have no labels.
        """
        labels: Sequence[str] = ["None"] * len(self.rows)
        if target is not None:
            y = target.encode(cells)
            if (parts := target.divide(y, self.group_ids, (1 - fraction, fraction), seed)) is not None:
                return parts == 1
            labels = target.strata_names(y)
        draw = partial(drawn_rows, fraction=fraction, seed=seed, keep_fraction=self.are_grouped)
        if not self.are_grouped:
            return np.fromiter(draw(self.group_ids, labels), np.bool_, len(labels))
        _, firsts, numbers = np.unique(self.group_ids, return_index=True, return_inverse=True)
        order, drawn = np.argsort(firsts[numbers], kind="stable"), np.zeros(len(labels), np.bool_)
        drawn[order] = [*draw(self.group_ids[order], map(labels.__getitem__, order.tolist()))]
        return drawn

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str | None]]) -> "RowHashes":
        """Return the hashes of all texts or pairs of a file."""
        rows, firsts, are_pairs = array("Q"), array("Q"), False
        for text, pair in texts:
            key = text_key(text)
            rows.append(hash_of(key, text_key(pair or "")))
            firsts.append(rows[-1] if pair is None else hash_of(key))
            are_pairs = are_pairs or pair is not None
        digests, starts = np.asarray(rows), np.asarray(firsts)
        if not are_pairs:
            return cls(digests, digests)
        _, numbers, counts = np.unique(starts, return_inverse=True, return_counts=True)
        few = min(MAX_ROWS_OF_FIRST_TEXT, len(rows) // ROWS_PER_FIRST_TEXT)
        return cls(digests, np.where(counts[numbers] <= few, starts, digests))


def hash_of(*parts: object) -> int:
    """Return a 64-bit hash of `parts`, the same on every machine.

    Two of a hundred million different texts have the same hash with a probability of 0.03 %.
    """
    content = "\0".join(map(str, parts)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


MAX_ROWS_OF_FIRST_TEXT = 20
ROWS_PER_FIRST_TEXT = 20
"""A first text in more rows, or in more than one of so many, does not keep them together (ours; 15 is the most in OCNLI)."""
BAD_ROWS_ALLOWED = 0.01
BAD_ROWS_SHOWN = 5
HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""Maps a split to its name on the Hub."""
OF_FILE = 1 << 40
"""A split of several files stores line n of its file number f, counted from 0, as f * OF_FILE + n."""
ROWS_AT_ONCE = 4096
"""Rows after which the caller of `load_split` hears of the progress."""


class Example(NamedTuple):
    """One row to classify. Its `label` is None if it is not known."""

    id: str
    text: str
    pair: str | None
    label: Cell | None
    extra: tuple[str, ...] = ()
    """Texts of the columns `data.extra_rows`, without empty ones."""
    line: int = 0
    """The number of its first line in its file, from 1; 0: it has no file."""
    weight: float = 1.0
    """Factor of its loss in training."""


@dataclass(eq=False)
class Examples(Sequence[Example]):
    """The examples of a split, one list per field of `Example`.

    A row of one text and one label whose id is its number has few bytes beside those of its text.
    """

    ids: "list[str] | array[Any]" = field(default_factory=list)
    """An integer id stands for its decimal string."""
    texts: PackedTexts = field(default_factory=PackedTexts)
    labels: list[Cell | None] = field(default_factory=list)
    extra: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By number of a row that has any."""
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    weights: "array[float]" = field(default_factory=lambda: array("d"))
    """Empty where all are 1."""

    @classmethod
    def of(cls, rows: Iterable[Example]) -> "Examples":
        """Return a copy of the `rows`."""
        found = cls()
        for row in rows:
            found.append(row)
        return found

    def append(self, row: Example) -> None:
        """Add a row at the end."""
        if row.weight != 1 and not self.weights:
            self.weights.extend(repeat(1.0, len(self)))
        if row.weight != 1 or self.weights:
            self.weights.append(row.weight)
        if row.extra:
            self.extra[len(self)] = row.extra
        self.ids.append(row.id)
        self.texts.append(row.text, row.pair)
        self.labels.append(row.label)
        self.lines.append(row.line)

    def take(self, rows: NDArray[np.bool_]) -> "Examples":
        """Return the examples that the mask `rows` (N,) selects. They share the bytes of the texts."""

        def taken(column: Any) -> Any:
            kept = compress(column, rows.tobytes())
            return array(column.typecode, kept) if isinstance(column, array) else [*kept]

        numbers = {old: new for new, old in enumerate(np.flatnonzero(rows).tolist())} if self.extra else {}
        extra = {numbers[row]: texts for row, texts in self.extra.items() if row in numbers}
        texts, columns = self.texts.take(rows), map(taken, (self.lines, self.weights))
        return Examples(taken(self.ids), texts, taken(self.labels), extra, *columns)

    @property
    def factors(self) -> NDArray[np.float64]:
        """The weight of each row, (N,)."""
        return np.asarray(self.weights) if self.weights else np.broadcast_to(1.0, len(self))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(len(self))[row]]
        row = range(len(self))[row]
        extra, weight = self.extra.get(row, ()), self.weights[row] if self.weights else 1.0
        text, pair = self.texts[row]
        return Example(str(self.ids[row]), text, pair, self.labels[row], extra, self.lines[row], weight)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]


@dataclass(frozen=True)
class Split:
    """The examples of one split, in the order of their file."""

    examples: Examples
    source: Source
    """What their file was decided to be like."""
    read: int = 0
    """Number of rows of the file, with those that are not among the examples."""
    dropped: int = 0
    """Number of rows left out because they have no majority label."""
    bad: list[str] = field(default_factory=list)
    """`file:line: reason` of each row that was skipped."""
    faults: list[DataError] = field(default_factory=list)
    """What `load_split` raises for this split, if it is to `keep_faults`."""
    notes: tuple[Note, ...] = ()
    unlabelled: int = 0
    """Number of rows that have no label. They are bad rows, too, unless `data.unlabelled` leaves them out."""
    records: list[Record] = field(default_factory=list)
    """All rows of the file as they were read, if `load_split` is to keep them."""
    dev: "Split | None" = None
    """The dev rows if this is a train split whose file holds both. None for other splits."""
    target: Target | None = None
    """How the labels are encoded, learned and scored. None: the rows have no labels."""
    files: tuple[str, ...] = ()
    """The names of the files in messages if there are several, of which `path` is the first."""
    y: Y = field(default_factory=lambda: np.zeros(0), compare=False)
    """The label of each example, as a target encodes it (`encoded`). It is empty before."""

    @property
    def path(self) -> Path | None:
        """The file or folder of the rows. None for generated rows and for rows of the Hub."""
        return None if self.source.path is None else Path(self.source.path)

    @property
    def sha256(self) -> str:
        """SHA-256 of the file's bytes. If `path` is not a file, it is that of the rows."""
        return self.source.sha256

    def place_of(self, line: int) -> int | str:
        """Return the number of a line as messages show it. Where the rows are of several files, it is `file:line`."""
        number, own = divmod(line, OF_FILE)
        return f"{self.files[number]}:{own}" if self.files else line

    @property
    def count_with_dev(self) -> int:
        """The number of these training rows and of the dev rows of their file."""
        return len(self.examples) + (0 if self.dev is None else len(self.dev.examples))

    @property
    def texts(self) -> PackedTexts:
        """The text and second text of each example."""
        return self.examples.texts

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The `row_hash` of each example, (N,)."""
        return hashes_of(self.texts)

    def with_examples(self, rows: Iterable[Example], hashes: NDArray[np.uint64], **changes: Any) -> "Split":
        """Return the split with other examples, the `rows`, whose `hashes` are known, and with other `changes`."""
        examples = rows if isinstance(rows, Examples) else Examples.of(rows)
        split = replace(self, **{"examples": examples, "y": np.zeros(0), **changes})
        vars(split)["hashes"] = hashes  # where cached_property keeps them
        return split

    def take(self, rows: NDArray[np.bool_], **changes: Any) -> "Split":
        """Return the split with the examples that the mask `rows` (N,) selects, and with other `changes`."""
        y = self.y[rows] if len(self.y) else self.y
        return self.with_examples(self.examples.take(rows), self.hashes[rows], y=y, **changes)

    def encoded(self, target: Target) -> "Split":
        """Return the split with its labels as the `target` encodes them."""
        return self.with_examples(self.examples, self.hashes, y=target.encode(self.cells), target=target)

    def with_extra_rows(self, dev: "Split | None" = None) -> "Split":
        """Return the split with the extra texts of its examples as examples of their own, after all others.

        Texts of `dev` rows are left out.
        """
        extra = [row._replace(text=text, pair=None, extra=(), line=0) for row in self.examples for text in row.extra]
        hashes = hashes_of((row.text, None) for row in extra)
        kept = np.isin(hashes, [] if dev is None else dev.hashes, invert=True)
        examples = [*self.examples, *compress(extra, kept)]
        return self.with_examples(examples, np.concatenate([self.hashes, hashes[kept]]))

    @property
    def cells(self) -> list[Cell]:
        """The label of each labelled example."""
        return [cell for cell in self.examples.labels if cell is not None]

    @property
    def labels(self) -> tuple[str, ...]:
        """The different labels in the order of `ordered_labels`."""
        return ordered_labels(label for cell in {*self.cells} for label in labels_in(cell))


def load_split(
    task: Task,
    split: str,
    config: DataConfig,
    *,
    labelled: bool | None = None,
    use_dev_split: bool = False,
    like: Source = UNKNOWN,
    keep_faults: bool = False,
    keep_records: bool = False,
    any_label: bool = False,
    after_rows: AfterBatch = ignore,
) -> Split:
    """Read the `split` ("train", "dev", "test", or another test file that `task` names) of a task.

    The file is the one that `config.files` names; the rows of several follow each other, and those after the first have its
    columns by name. Else `config.path` is a folder with the task's files, a parent of folders named by task, or one file, which
    is the split. The labels may be in files of their own (`config.label_files`), or be the names of the files.
    With `use_dev_split` one file holds train and dev rows (see `drawn_rows`), as do the training rows of a folder or of the Hub
    without dev rows. `config.path` None: the rows of the Hub or of the generator. `labelled`: whether labels are read;
    None: the task's setting. The id of an example is the row's id if all rows have different ids, else (unless
    `config.id` is set) the row's number in the file from 0. `like`: see `find_source`. With `any_label` a row may
    have a label that the task does not have. `after_rows` is called with the number of rows read so far.

    Raises UsageError for task `custom` without a path or a Hub name; DataError for a split without rows, for rows that
    cannot be read, lack a text or have an unknown label (`config.skip_bad_rows` allows 1 % of them), and for a file
    of which no row is a dev row. With `keep_faults` these are the `faults` of the split, which has the rows that can be used.
    """
    task = task_with_columns(task, config)
    if labelled is None:
        labelled = task.has_labels(split) or bool(config.files_of(split))
    rows: Sequence[Path | Records]
    layout = PLAIN
    for name, files in (config.files or {}).items() if config.path is None else ():
        for file in names_in(files):
            if not Path(file).is_absolute():
                raise UsageError(
                    f"data.files.{name}: {file} is not an absolute path, and no --data (data.path) names its folder"
                )
    if is_local(config, split):
        rows, layout, is_divided = find_place(task, split, config, use_dev_split=use_dev_split)
        labelled = labelled and split not in layout.unlabelled
    elif task.hub is not None:
        records, is_divided = load_hub_split(task, split)
        rows, is_divided = [records], is_divided and not config.has_own_dev_file
        labelled = labelled and all(split not in layout.unlabelled for layout in task.layouts)
    elif task.name == CUSTOM:
        raise UsageError("task custom has no data; name a FILE (--data PATH), or --set data.hub=OWNER/NAME")
    else:
        from recurcli.data.recurrence_tasks import recurrence_rows  # it multiplies groups

        made: Sequence[tuple[str, str]] = (
            listops_rows(task, split, close_brackets=config.close_brackets)
            if task.name in SIZES
            else recurrence_rows(task, split)
        )
        numbered = (Record(line, {"text": text, "label": label}) for line, (text, label) in enumerate(made, 1))
        rows, is_divided = [Records(task.name, "jsonl", ("text", "label"), numbered)], False
    reader = _LabelReader.of(task, config, {**layout.label_names, **like.label_names}, any_label=any_label)
    beside: Sequence[Path | str] = config.label_files_of(split) if labelled else ()
    if labelled and config.label_by == "file":
        beside = [Path(uncompressed(each.name)).stem for each in rows]

    find = partial(find_source, task=task, config=config, layout=layout, training=split == "train")

    def sources(like: Source) -> Iterator[tuple[Source, Records]]:
        for each, labels in zip(rows, chain(beside, repeat(None)), strict=False):
            is_text = labels is not None and isinstance(each, Path) and each.is_file() and format_of(each.name) is None
            form: Format | None = "fasttext" if is_text else None  # a text a line
            source, records = find(each, like=like, labelled=labelled and labels is None, format=form)
            if labels is not None:
                source = replace(source, label=("label",))
                records.rows = with_labels(records, records.rows, labels, config.encoding)
            yield source, records
            like = source if like is UNKNOWN else like

    paths = [file_and_part(each)[0] for each in (*rows, *beside) if isinstance(each, Path)]
    kept: list[Record] | None = [] if keep_records else None
    everything = _read_split(sources(like), paths, reader, config, after_rows, kept)
    if everything.faults and not keep_faults:
        raise everything.faults[0]
    parts = parts_of_document(Path(config.path)) if split == "train" and config.path is not None else ()
    if left := [part for part in parts if part.casefold() not in {*chain.from_iterable(STEMS.values())}]:
        name = path_shown(Path(str(config.path)))
        note = Note(f"{name}: not read: {quoted(left)}; {name}#{escaped(left[0])} names such rows")
        everything = replace(everything, notes=(*everything.notes, note))
    if config.label_names and everything.source.label and not like.label_names:
        everything = _with_label_names(everything, config.label_names)
    if everything.source.label and everything.examples:
        everything = _with_target(everything, reader, task, config)
    if not is_divided:
        return everything
    share = dev_share(task, config, len(everything.examples))
    train, dev = draw_dev_rows(everything, share, config.dev_seed)
    if split == "train":
        return train
    return check_dev_rows(dev, everything, everything.source.name, share)


def split_in_memory(
    rows: Iterable[tuple[str, str | None, Cell]],
    weights: Iterable[float] | None = None,
    target: Target | None = None,
) -> Split:
    """Return a split of rows in memory: (text, second text or None, label). `weights` are factors of the rows' losses.

    `target` None: they have one label a row.
    """
    weighted = zip(rows, repeat(1.0) if weights is None else weights, strict=False)
    examples = Examples.of(Example(str(number), *row, weight=weight) for number, (row, weight) in enumerate(weighted))
    pairs = any(pair is not None for _, pair in examples.texts)
    columns = TextColumns(("text",), ("pair",) if pairs else ())
    source = Source(name="texts", format="jsonl", columns=columns, label=("label",), sha256=_sha256_of_rows(examples))
    split = Split(examples, source)
    return replace(split, target=target or OneLabel.of(split.cells, DataConfig()))


def dev_share(task: Task, config: DataConfig, rows: int) -> float:
    """Return the share of `rows` rows that become dev rows: `data.dev_fraction`, or else that of `task` within
    `data.max_dev_rows`.
    """
    return config.dev_fraction or min(task.dev_fraction, config.max_dev_rows / max(1, rows))


def draw_dev_rows(everything: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Return the training rows, whose `dev` is set if there are dev rows, and the dev rows (see `drawn_rows`)."""
    hashes = RowHashes.of(everything.texts)
    vars(everything)["hashes"] = hashes.rows  # where cached_property keeps them
    drawn = hashes.drawn(everything.target, everything.cells, fraction, seed)
    parts = [(everything.examples.take(side), hashes.rows[side]) for side in (~drawn, drawn)]
    size = int(drawn.sum())
    dev = everything.with_examples(*parts[1], read=size)
    # what the file has is counted once, with the training rows
    own = dev.with_examples(*parts[1], dropped=0, bad=[], faults=[], notes=(), unlabelled=0)
    return everything.with_examples(*parts[0], read=everything.read - size, dev=own if size else None), dev


def check_dev_rows(dev: Split, everything: Split, name: str, fraction: float) -> Split:
    """Return the rows `dev` that were drawn from `everything`, called `name`. Raises DataError if there are none."""
    if not dev.examples:
        raise DataError(f"{name}: {no_dev_rows_in_words(everything, fraction)}")
    return dev


def no_dev_rows_in_words(everything: Split, fraction: float) -> str:
    """Return why the draw makes no row of a file of training rows a dev row, with the way out."""
    rows = zip(everything.examples.labels, everything.hashes.tolist(), strict=True)
    texts = Counter(label for label, _ in {*rows})  # the different ones of each label
    target = everything.target
    if isinstance(target, OneLabel | None) and max(texts.values(), default=0) == 1 < len(texts):
        why = (
            f"none of its {len(texts):,} labels has two different texts; a class needs one to train on and one to score"
        )
    else:
        stratum = "class" if target is None else target.stratum
        kept = "never all of its rows" if isinstance(target, SeveralLabels) else "never its first row"
        share = f"the share {fraction:g} of a {stratum} does (data.dev_fraction), {kept}"
        why = f"none of its {len(everything.examples):,} rows becomes a dev row; {share}, and equal texts stay together"
    return f"{why}; add rows, or a file of dev rows"


def draw_share(train: Split, share: float, seed: int) -> Split:
    """Return the `share` of the training rows of each class, in their order; the rows of a smaller share are among them.

    The rows of a class are ranked by hashes of `seed` and their texts. Raises DataError if a class would have no row. A
    stratum of several labels or numbers (`Target.strata`) keeps a row instead.
    """
    assert train.target is not None
    labels = train.target.strata_names(train.target.encode(train.cells))
    counts = Counter(labels)
    least = 0 if isinstance(train.target, OneLabel) else 1
    kept = {label: max(least, math.floor(share * count + 0.5)) for label, count in counts.items()}
    if missing := [label for label, count in kept.items() if not count]:
        label = min(missing, key=counts.__getitem__)
        raise DataError(
            f"data.train_share {share:g} leaves no training row of the label '{escaped(label)}', which has "
            f"{pluralize(counts[label], 'row')}; give a larger share"
        )
    order = np.array([hash_of(seed, digest) for digest in train.hashes.tolist()], np.uint64).argsort(kind="stable")
    chosen = np.zeros(len(labels), np.bool_)
    for row in order.tolist():
        label = labels[row]
        if kept[label]:
            kept[label] -= 1
            chosen[row] = True
    return train.take(chosen)


def with_labels_of(task: Task, train: Split, config: DataConfig) -> Task:
    """Return `task` with the settings of `config`, and with the target of the training rows if it has none.

    Raises DataError if their labels are too few or too many to be classes.
    """
    task = task_with_columns(task, config)
    target = task.target or train.target
    assert target is not None
    if isinstance(target, OneLabel) and not task.labels:
        where = f"{train.path or task.name}: the label column '{escaped(' + '.join(train.source.label))}'"
        check_labels(target.labels, train.count_with_dev, where)
    return replace(task, labels=target.labels, target=target)


FEWEST_DEV_ROWS = 200
"""Drawn dev rows below which a model without an encoder is cross-validated instead. Ours."""


def notes_on_dev_rows(train: Split, task: Task, config: DataConfig, log: Log) -> None:
    """Note how the dev rows were drawn if the training file holds them."""
    if train.dev is None:
        return
    own = dev_share(task, config, len(train.examples) + len(train.dev.examples))
    is_capped = own < (config.dev_fraction or task.dev_fraction)
    stratum = "class" if train.target is None else train.target.stratum
    share = f"the share {own:g} of each {stratum} (data.{'max_dev_rows' if is_capped else 'dev_fraction'})"
    name = train.path.name if train.path is not None else "the data" if task.hub is None else "the Hub"
    drawn = pluralize(len(train.dev.examples), "row", of=len(train.dev.examples) + len(train.examples))
    log.note(f"{name}: {drawn} are held out to choose and score the model (dev rows); --dev FILE names your own")
    log.detail(
        f"dev rows: {share}, drawn by data.dev_seed {config.dev_seed}; equal or nearly equal texts stay together"
    )


def load_hub_split(task: Task, split: str) -> tuple[Records, bool]:
    """Return the rows of a task's split, and whether they are the rows of both train and dev (no validation split).

    Labels are strings, None where the Hub hides them. `HF_HUB_OFFLINE=1` restricts the search to the cache, as does a
    missing network. Raises DataError if neither has the rows.
    """
    if task.hub is None or split not in HUB_SPLITS:
        raise DataError(f"the Hub has no split {split} of {task.name}; name a folder or file with --data")
    import datasets

    repository, configuration = task.hub
    try:
        splits = datasets.load_dataset(repository, configuration)
    except Exception as error:  # a dozen types of five libraries, for no network, no cache, no repository
        reason = escaped(str(error).strip().partition("\n")[0] or type(error).__name__, limit=300)
        raise DataError(
            f"{task.name} can be loaded neither from the Hub nor from its cache ({repository}, {configuration}: {reason}); "
            "name a folder or file with --data"
        ) from None
    without_dev = HUB_SPLITS["dev"] not in splits
    hub_split = "train" if split == "dev" and without_dev else HUB_SPLITS[split]
    if hub_split not in splits:
        known = ", ".join(map(escaped, splits))
        raise DataError(f"{escaped(repository)} has no split '{hub_split}'; known: {known}")
    name = " ".join(filter(None, (repository, configuration, split)))
    return dataset_records(name, splits[hub_split]), without_dev and split in ("train", "dev")


def kind_before_reading(task: Task, config: DataConfig) -> type[Target] | None:
    """Return the kind of labels that the settings of a task determine. None: its training rows determine it.

    Raises UsageError for settings that do not fit a known task, which has one label a row, or each other.
    """
    if task.target is not None:
        return type(task.target)
    kind: type[Target] | None = OneLabel if task.labels else None
    if config.target != "auto":
        kind = TARGETS[config.target]
    elif config.label_separator is not None or len(task.label) > 1 or config.at_least_one:
        kind = SeveralLabels
    if task.name != CUSTOM and (kind not in (None, OneLabel) or config.label_names):
        raise UsageError(
            f"task {task.name} has one label a row, and names of its own; leave data.target, label_separator, at_least_one "
            "and label_names out, or take --task custom"
        )
    if kind is not SeveralLabels and config.at_least_one:
        raise UsageError(f"data.at_least_one is for several labels a row, and data.target is {config.target}")
    return kind


NOT = "not "
"""What a label begins with that an annotator rejected. Ours."""


class _LabelReader(NamedTuple):
    """What is known of the labels of a file before it is read."""

    task: Task
    kind: type[Target] | None
    """The kind of its labels. None: it is decided after all rows are read."""
    target: Target | None
    """The target whose labels they must be among. None: any label will do."""
    renamed: Mapping[str, str]
    separator: str | None

    @classmethod
    def of(cls, task: Task, config: DataConfig, renamed: Mapping[str, str], *, any_label: bool) -> "_LabelReader":
        kind = kind_before_reading(task, config)
        target = task.target or (OneLabel(task.labels) if kind is OneLabel and task.labels else None)
        separator = config.label_separator
        if separator is None and isinstance(task.target, SeveralLabels):
            separator = task.target.separator
        return cls(task, kind, None if any_label else target, renamed, separator)

    def read(self, fields: dict[str, Any], columns: Sequence[str]) -> Cell | None:
        """Return the label of a row; None: it is the task's `dropped_label`. A label that is rejected becomes `not LABEL`.

        Raises BadRow as `label_of` does, and LeftOut for a row of Prodigy that is ignored and for choices that are rejected.
        """
        labels, answer = self.task.labels, answer_of(fields)
        if answer == "ignore" or (answer == "reject" and not isinstance(fields.get("label"), str)):
            raise LeftOut(f"are left out, since their 'answer' is {answer}, as Prodigy has it")
        cell = label_of(fields, columns, labels, self.renamed, self.kind, self.separator)
        if answer == "reject":
            cell = f"{NOT}{cell}"
        if cell == self.task.dropped_label:
            return None
        if self.target is not None and cell not in labels:
            check_known(cell, self.task, self.target)
        return sys.intern(cell) if isinstance(cell, str) else cell  # one string for all rows of a class


def _with_target(split: Split, reader: _LabelReader, task: Task, config: DataConfig) -> Split:
    """Return the split with its target, and its labels as that has them. Raises DataError for labels that are none."""
    if task.target is not None:
        return replace(split, target=task.target)
    notes, kind = [*split.notes], reader.kind
    if kind is None:
        name, note = kind_of_cells(split.cells)
        kind = TARGETS[name]
        notes += [Note(f"{split.source.name}: {note}", "detail")] if note else []
    cells = decided_cells(split.cells, kind, task.labels)
    split.examples.labels[:] = cells
    name = split.source.name
    try:
        named = split.source.label if len(split.source.label) > 1 else ()
        target = kind.of(cells, config, task.labels or named)
        for cell, line in zip(cells, split.examples.lines, strict=True) if task.labels and kind is not OneLabel else ():
            name = f"{split.source.name}:{split.place_of(line)}"
            check_known(cell, task, target)
    except (DataError, BadRow) as error:
        raise DataError(f"{name}: {error}") from None
    notes += [Note(f"{split.source.name}: {each}", "warning") for each in target.doubts()]
    return replace(split, target=target, notes=(*notes,))


def _read_split(
    sources: Iterable[tuple[Source, Records]],
    paths: Sequence[Path],
    reader: _LabelReader,
    config: DataConfig,
    after_rows: AfterBatch,
    kept: list[Record] | None,
) -> Split:
    """Read the examples of the records of each source, from the columns that it names. All records are appended to `kept`, if
    given. `paths`: the files that are read, whose hash the split has if all are files."""
    opened: list[tuple[Source, Records]] = []

    def rows() -> Iterator[tuple[Source, Record]]:
        for number, (source, records) in enumerate(sources):
            opened.append((source, records))
            with records:
                for record in records:
                    yield source, record._replace(line=record.line + number * OF_FILE) if number else record

    examples = Examples()
    numbers = array("I")  # of the examples among all rows
    rejected = bytearray()
    counts = Counter[str]()  # rows of which a user must know something
    bad: list[str] = []
    read = dropped = unlabelled = 0
    leaves_out = config.unlabelled == "drop"
    for read, (source, record) in enumerate(rows(), 1):
        if kept is not None:
            kept.append(record)
        try:
            example = _example_of(record, source, reader)
        except BadRow as reason:
            unlabelled += isinstance(reason, Unlabelled)
            if isinstance(reason, LeftOut):
                counts[str(reason)] += 1
            elif not (leaves_out and isinstance(reason, Unlabelled)):
                bad.append(f"{source.name}:{record.line % OF_FILE}: {reason}")
            continue
        if example is None:
            dropped += 1
        else:
            examples.append(example)
            numbers.append(read - 1)
            rejected.append(answer_of(record.fields) == "reject")
        if read % ROWS_AT_ONCE == 0:
            after_rows(read)
    after_rows(read)
    if any(rejected) and len({str(label).removeprefix(NOT) for label in examples.labels}) > 1:
        counts["are left out, since their 'answer' is reject and there are several labels"] += sum(rejected)
        kept_rows = ~np.frombuffer(rejected, np.bool_)
        examples, numbers = examples.take(kept_rows), array("I", compress(numbers, kept_rows))
    (first_source, first_records), *others = opened
    name = first_source.name + (f" and {pluralize(len(others), 'more file')}" if others else "")
    hint = next((records.hint for _, records in opened if records.hint), "")
    guess = next((found for _, records in opened if records.decoder and (found := records.decoder.guess)), None)
    if unlabelled and not leaves_out:
        without = pluralize(unlabelled, "row")
        hint += f"; a training with --set data.unlabelled=drop leaves out the {without} without a label"
        if doubt := joint_doubt(sorted(cell for cell in {*examples.labels} if isinstance(cell, str))):
            hint += f"; {doubt}"
    why = bad_rows_in_words(bad, rows=read, name=name, skip=config.skip_bad_rows, hint=hint)
    faults = [DataError(why, options=("--encoding", guess.encoding) if guess else ())] if why else []
    if not examples:
        faults.append(DataError(f"{name}: no row is left of {read}" if read else f"{name}: has no rows"))
    ids: set[str] = set()
    for row_id in examples.ids:
        if not row_id or row_id in ids:
            break
        ids.add(row_id)
    if len(ids) < len(examples):
        if config.id is not None:
            number, line = divmod(examples.lines[len(ids)], OF_FILE)
            what = f"the ids in '{escaped(config.id)}' must differ, and no row may be without one"
            faults.append(DataError(f"{opened[number][0].name}:{line}: {what}"))
        examples.ids = numbers
    if not others:
        examples.lines = array("I", examples.lines)
    notes: list[Note] = []
    for _, records in opened:
        notes += [Note(records.doubt, "warning")] if records.doubt else []
        notes += records.notes
        counts += records.counts
    notes += [Note(f"{name}: {count:,} of {read:,} rows {what}") for what, count in counts.items()]
    as_row = any(note.text.endswith(AS_ROW) for note in first_records.notes)
    first = examples.labels[0] if examples and not numbers[0] and as_row else None
    if first is not None and examples.labels.count(first) == 1:
        shown = f"'{escaped(first, 60)}'"
        what = f"its label {shown} stands in no other row; --label {shown} takes it as names"
        notes.append(Note(f"{first_source.name}: line 1 may be a header: {what}", "warning"))
    if unlabelled and leaves_out:
        what = f"{pluralize(unlabelled, 'row', of=read)} without a label left out (data.unlabelled)"
        notes.append(Note(f"{name}: {what}"))
    sha256 = sha256_of_all(paths) if paths and all(path.is_file() for path in paths) else _sha256_of_rows(examples)
    folder = os.path.commonpath([path.parent for path in paths]) if others else ""
    return Split(
        examples=examples,
        source=replace(first_source, name=name, sha256=sha256),
        files=tuple(str(path.relative_to(folder)) for path in paths[: len(opened)]) if others else (),
        read=read,
        dropped=dropped,
        bad=bad,
        faults=faults,
        notes=(*notes,),
        unlabelled=unlabelled,
        records=kept or [],
    )


def _with_label_names(split: Split, given: LabelNames) -> Split:
    """Return training rows with the names of their labels. Raises DataError with the line of a label without a name."""
    rows, name = split.examples, split.source.name
    if not isinstance(given, dict):
        if {"0", str(len(given))}.isdisjoint(split.labels):
            what = f"no row has the label 0 or {len(given)}, so that it is not known where the {len(given)} names begin"
            raise DataError(f"{name}: {what}; name them as lines of number TAB name")
        given = {str(number): each for number, each in enumerate(given, 0 if "0" in split.labels else 1)}
    known = {*given, *given.values()}
    for row, (cell, line) in enumerate(zip(split.cells, rows.lines, strict=True)):
        for label in labels_in(cell):
            if label not in known:
                what = f"the label '{escaped(label)}' has no name among the {len(given)} of --label-names (data.label_names)"
                raise DataError(f"{name}:{split.place_of(line)}: {what}")
        named = sorted(given.get(label, label) for label in labels_in(cell))
        rows.labels[row] = tuple(named) if isinstance(cell, tuple) else named[0]
    return replace(split, source=replace(split.source, label_names=given))


def bad_rows_in_words(
    bad: Sequence[str], *, rows: int, name: str, skip: bool, count: int | None = None, hint: str = ""
) -> str:
    """Return a message with the first `bad` rows; "" if there are none, or if they may be skipped (at most 1 % of `rows`).

    `count` is the number of bad rows; None means the length of `bad`. The message ends with `hint`.
    """
    count = len(bad) if count is None else count
    few = count <= BAD_ROWS_ALLOWED * rows
    if not bad or (skip and few):
        return ""
    others = [escaped(row.replace(f"{name}:", "line ", 1), 100) for row in bad[1:BAD_ROWS_SHOWN]]
    listed = "; ".join([bad[0].replace(name, Path(name).name, 1), *others, *["…"][: len(bad) > BAD_ROWS_SHOWN]])
    way_out = f"; a training with data.skip_bad_rows=true skips up to {BAD_ROWS_ALLOWED:.0%} of the rows" if few else ""
    if bad[0].endswith("is blank") and not few:
        way_out = "; remove the blank lines"
    return f"{name}: {pluralize(count, 'row', of=rows)} cannot be used: {listed}{way_out}{hint}"


def _example_of(record: Record, source: Source, reader: _LabelReader) -> Example | None:
    """Return the example of a row, without an id where no column has ids; None: its label is to be dropped."""
    text, pair, fault = source.columns.read(record)
    if fault is not None:
        raise BadRow(fault)
    row_id = "" if source.id is None else _id_of(record.fields.get(source.id))
    if not source.label:
        return Example(row_id, text, pair, None, (), record.line)
    if (label := reader.read(record.fields, source.label)) is None:
        return None
    extra = [joined(record.fields, (key,)) for key in source.extra if record.fields.get(key) is not None]
    return Example(row_id, text, pair, label, tuple(filter(str.strip, extra)), record.line)


def _id_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise BadRow(f"its id is {kind_of(value)}, not a string or a whole number")


def _sha256_of_rows(examples: Examples) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([*example[:4], *example.extra], ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
