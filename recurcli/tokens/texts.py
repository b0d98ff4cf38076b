"""The texts of a language model: files of plain text, which may be larger than memory, or the texts of a task's rows.

Masked tokens: the files of one text a line are tokenised once into Arrow. `datasets` maps the tokens of a file in the cache
into memory, so that a training reads only the rows of its batches.

Causal language modelling: a text is one stream of tokens, cut into windows. Each text ends with <eos>, for which [SEP] stands.
Every token of the stream, <eos> included, is predicted once; the first from an <eos> that stands before the stream (as in
Mikolov's RNNLM toolkit, whose counts of the Penn Treebank are the usual ones).
"""

import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.cache import cached
from recurcli.config import UTF8, DataConfig, TokenizerConfig, Truncation, canonical_encoding
from recurcli.data.readers import is_fasttext
from recurcli.data.rows import COMPRESSED, TextDecoder, open_file, rows_of_file, uncompressed
from recurcli.data.splits import BAD_ROWS_SHOWN, bad_rows_in_words, divide_lines, hashes_of, load_split
from recurcli.data.tasks import STEMS, Task, has_split, is_label_folder, task_with_columns
from recurcli.errors import DataError, UsageError, pluralize
from recurcli.files import OpenedFile, sha256_of
from recurcli.log import Log, Note
from recurcli.tokens.tokenizer import (
    MANY_UNKNOWN,
    ROWS_AT_ONCE,
    Tokenizer,
    Tokens,
    facts_of,
    note_on_bad_rows,
    offsets_of,
)


@dataclass
class Corpus:
    """Text files, and the counts of the last reading."""

    path: Path
    files: list[Path]
    sha256: str
    """Hash of the file's bytes, or of the names and bytes of several files."""
    skip_bad_rows: bool = False
    encoding: str = UTF8
    rows: int = 0
    """Number of lines, blank ones included."""
    bad: list[str] = field(default_factory=list)
    """`file:line: reason` of the first lines that could not be read."""
    bad_rows: int = 0

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def depends_on(self) -> tuple[object, ...]:
        """What the lines that are read depend on, for the cache."""
        return self.sha256, self.skip_bad_rows, canonical_encoding(self.encoding)

    def texts(self, *, blank: bool = False) -> Iterator[str]:
        """Yield the lines that hold text, and with `blank` the blank lines too.

        Raises DataError at the end if lines could not be read, or if no line holds text; `skip_bad_rows` allows 1 % of
        unreadable lines. Raises DataError at once if the file is not text in its encoding.
        """
        self.rows, self.bad, self.bad_rows = 0, [], 0
        has_text, hint = False, ""
        for path in self.files:
            decoder = TextDecoder(self.encoding)
            for number, row in enumerate(rows_of_file(path, decoder), 1):
                self.rows += 1
                text, fault = decoder.decode(row.content) if row.whole else ("", "is too long")
                if fault:
                    self.bad_rows += 1
                    if len(self.bad) <= BAD_ROWS_SHOWN:
                        self.bad.append(f"{path}:{number}: {fault}")
                elif text.strip() or blank:
                    has_text = has_text or bool(text.strip())
                    yield text
            hint = hint or decoder.hint
        counts = {"count": self.bad_rows, "rows": self.rows}
        if fault := bad_rows_in_words(self.bad, **counts, name=str(self.path), skip=self.skip_bad_rows, hint=hint):
            raise DataError(fault)
        if not has_text:
            raise DataError(f"{self.path}: has no lines with text")


def is_text_file(path: Path) -> bool:
    """Return whether the name of `path` ends in .txt, or in .txt and the ending of a compression."""
    return uncompressed(path.name).lower().endswith(".txt")


def text_files(path: Path) -> list[Path]:
    """Return the text file `path`, or the text files of the folder `path` and its folders by name, or [] if there are none."""
    if not path.is_dir():
        return [path] if is_text_file(path) else []
    return sorted(found for found in path.rglob("*") if is_text_file(found) and found.is_file())


def read_corpus(path: Path, *, skip_bad_rows: bool = False, encoding: str = UTF8, files: Sequence[Path] = ()) -> Corpus:
    """Return the text at `path`, a file or a folder, of which `files` are read; () means all text files.

    Raises DataError if a file cannot be opened.
    """
    files = list(files) or text_files(path) or [path]
    for file in files:
        open_file(file).close()
    if files == [path]:
        return Corpus(path, files, sha256_of(path), skip_bad_rows, encoding)
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{sha256_of(file)}\n".encode(errors="surrogateescape"))
    return Corpus(path, files, digest.hexdigest(), skip_bad_rows, encoding)


class StoredTokens:
    """Token ids of rows in an Arrow file, which is mapped into memory. `Tokens` holds such rows in memory instead."""

    def __init__(self, file: OpenedFile, truncated: int) -> None:
        import datasets
        import pyarrow

        table = datasets.table.InMemoryTable.from_buffer(pyarrow.py_buffer(file.content))  # views of the mapped file
        rows = datasets.Dataset(table, fingerprint=file.path.name)  # without one it would copy the rows to hash them
        self._rows = rows.with_format("arrow")
        chunks = rows.data.column("ids").chunks
        self.lengths = np.concatenate([np.diff(chunk.offsets).astype(np.int32) for chunk in chunks])
        """Tokens a row, (rows,); the only values in memory for every row."""
        self.truncated = truncated

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: np.ndarray) -> Tokens:
        """Read the given rows, in the order of `rows`."""
        ids = self._rows[rows.tolist()].column("ids").combine_chunks()
        return Tokens(ids.flatten().to_numpy().astype(np.int32), offsets_of(self.lengths[rows]))


def corpus_tokenizer(corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer on the texts of `corpus`, or read it from the cache.

    Raises DataError as `Corpus.texts` and `Tokenizer.train` do, and StorageError if the cache cannot be written.
    """
    vocabulary = "" if config.vocabulary is None else sha256_of(Path(config.vocabulary))

    def write(path: Path) -> dict[str, Any]:
        path.write_text(Tokenizer.train(corpus.texts(), config).to_json(), encoding="utf-8")
        return {}

    depends_on = (*corpus.depends_on, dataclasses.astuple(config), vocabulary)
    file, _ = cached(depends_on, ".tokenizer.json", write)
    return Tokenizer.load(file)


def stored_tokens(corpus: Corpus, tokenizer: Tokenizer, max_length: int, truncate: Truncation = "head") -> StoredTokens:
    """Return the rows of `corpus` as ids, at most `max_length` each: from the cache, or tokenised now.

    One of several processes tokenises and the others wait. Raises DataError as `Corpus.texts`, StorageError if the cache
    cannot be written.
    """

    import pyarrow

    kind = pyarrow.uint16() if tokenizer.vocab_size <= 1 << 16 else pyarrow.int32()
    schema = pyarrow.schema({"ids": pyarrow.list_(kind)})

    def write(path: Path) -> dict[str, Any]:
        truncated = 0
        with path.open("wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
            texts_left = corpus.texts()
            while texts := list(islice(texts_left, ROWS_AT_ONCE)):  # so that memory holds one batch
                tokens = tokenizer.encode([(text, None) for text in texts], max_length, truncate)
                offsets, ids = pyarrow.array(tokens.offsets, pyarrow.int32()), pyarrow.array(tokens.ids).cast(kind)
                rows = pyarrow.ListArray.from_arrays(offsets, ids)
                writer.write_batch(pyarrow.record_batch([rows], schema=schema))
                truncated += tokens.truncated
        return {"rows": corpus.rows, "bad_rows": corpus.bad_rows, "bad": corpus.bad, "truncated": truncated}

    file, counts = cached((*corpus.depends_on, max_length, truncate, tokenizer.to_json()), ".arrow", write)
    corpus.rows, corpus.bad_rows, corpus.bad = counts["rows"], counts["bad_rows"], counts["bad"]
    return StoredTokens(file, counts["truncated"])


WINDOW = 64
"""The tokens of a window where `data.max_length` is auto; ours."""


@dataclass(frozen=True)
class TextSplit:
    """The texts of one split, in their order."""

    texts: Sequence[tuple[str, str | None]]
    """A line of plain text each (blank ones included), or a row's text and its second text."""
    path: Path | None
    sha256: str
    dropped: int = 0
    bad: int = 0
    """Number of lines or rows that were skipped because they cannot be read."""
    first_bad: str = ""
    notes: tuple[Note, ...] = ()

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The `row_hash` of each text, (N,)."""
        return hashes_of(self.texts)

    @property
    def lines(self) -> list[tuple[str, str | None]]:
        """The texts that are not blank."""
        return [(text, pair) for text, pair in self.texts if text.strip() or pair]


def is_plain_text(task: Task, config: DataConfig) -> bool:
    """Return whether the data of the task are plain text.

    Plain text is a text file without fastText's labels, or a folder with text files and without rows of the task.
    """
    if config.path is None:
        return False
    path = Path(config.path)
    if path.is_dir() and not is_label_folder(path) and has_split(task, "train", config):
        return False
    return bool(text_files(path)) and not is_fasttext(path)


def load_texts(task: Task, split: str, config: DataConfig, *, use_dev_split: bool = False) -> TextSplit:
    """Read the texts of a `split`: those of its file, or of the task's rows without their labels.

    In a folder without a train file, the text files that are not dev or test texts by their names are the training text. With
    `use_dev_split`, text without a dev file holds train and dev text. The last lines, the share `data.dev_fraction`, are
    then the dev text (ours); dev rows are drawn as in `load_split`. Raises DataError if there is no text that can be read.
    """
    named = config.files_of(split)
    if named and (task.plain_text or (is_text_file(named[0]) and not is_fasttext(named[0]))):
        divided, path = use_dev_split and split != "test" and not config.has_own_dev_file, named[0]
        path = path if len(named) == 1 else Path(os.path.commonpath([file.parent for file in named]))
        return _read(path, config, split, task, use_dev_split=divided, files=named)
    if not named and (task.plain_text or is_plain_text(task, config)):
        return _plain_split(task, split, config, use_dev_split=use_dev_split)
    rows = load_split(task, split, config, labelled=False, use_dev_split=use_dev_split)
    bad, first = len(rows.bad), "".join(rows.bad[:1])
    return TextSplit(rows.texts, rows.path, rows.sha256, rows.dropped, bad, first, notes=rows.notes)


def _plain_split(task: Task, split: str, config: DataConfig, *, use_dev_split: bool) -> TextSplit:
    if config.path is None:
        raise DataError(f"task {task.name} has no data; add --data PATH")
    path = Path(config.path)
    if not path.exists():
        raise DataError(f"{path}: does not exist; --data (data.path) names the folder or file of the text")
    if path.is_file():
        return _read(path, config, split, task, use_dev_split=use_dev_split)
    named = {} if task.plain_text else {file: _named_split(file, path) for file in text_files(path)}
    layouts = task_with_columns(task, config).layouts
    folders = dict.fromkeys([path, path / (task.folder or task.name), path / task.name])
    names, files = {}, {}
    for side, stems in STEMS.items():
        names[side] = [name for layout in layouts if (name := layout.files.get(side))] or [f"{x}.txt" for x in stems]
        candidates = [
            folder / f"{name}{end}" for folder in folders for name in names[side] for end in ("", *COMPRESSED)
        ]
        usual = [file for file in candidates if file.is_file()][:1]
        files[side] = usual or [file for file, split in named.items() if split == side]
    if use_dev_split and not files["train"]:
        files["train"] = [file for file, split in named.items() if split is None]
    undivided = not use_dev_split or split == "test" or bool(files["dev"])
    found = files[split] if undivided else files["train"]
    if not found:
        looked_for = ", ".join(names[split])
        raise DataError(
            f"{path}: has no {split} text (looked for {looked_for}); --data (data.path) names a folder of them"
        )
    return _read(found[0] if len(found) == 1 else path, config, split, task, use_dev_split=not undivided, files=found)


def _named_split(file: Path, folder: Path) -> str | None:
    """Return the split that a text file's name or folder says, such as test for wiki.test.txt or held/test/a.txt."""
    stem = Path(uncompressed(file.name)).stem
    parts = [*file.relative_to(folder).parts[:-1], re.split(r"[._-]", stem)[-1]]
    return next((split for part in parts for split, stems in STEMS.items() if part.casefold() in stems), None)


def _read(
    path: Path, config: DataConfig, split: str, task: Task, *, use_dev_split: bool, files: Sequence[Path] = ()
) -> TextSplit:
    """Read the lines of the text file `path`, or those of `files` in the folder `path`."""
    corpus = read_corpus(path, skip_bad_rows=config.skip_bad_rows, encoding=config.encoding or UTF8, files=files)
    lines: Sequence[tuple[str, str | None]] = [(text, None) for text in corpus.texts(blank=True)]
    if use_dev_split:
        fraction = task_with_columns(task, config).dev_fraction
        train, dev = divide_lines(lines, fraction, str(path))
        lines = dev if split == "dev" else train
    return TextSplit(lines, path, corpus.sha256, bad=corpus.bad_rows, first_bad="".join(corpus.bad[:1]))


class Windows(NamedTuple):
    """The windows of a stream: row i of `inputs` holds the token before each token of row i of `targets`."""

    inputs: Tokens
    targets: Tokens


def encode_stream(texts: Sequence[tuple[str, str | None]], tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Return the ids of all `texts` end to end, with <eos> after each text (N,); a pair is two texts."""
    tokens = tokenizer.encode(texts, sys.maxsize)  # a text is never cut
    return np.insert(tokens.ids, tokens.offsets[1:], tokenizer.separator_id)


def cut_windows(stream: NDArray[np.int32], eos_id: int, length: int, count: int = 1) -> Windows:
    """Cut the stream (N,) into `count` contiguous streams of equal length, and return their windows of `length` tokens.

    Row w * count + s is window w of stream s. The last window of a stream may be shorter. Fewer than `count` tokens at the end
    of `stream` are left out.
    """
    size = len(stream) // count
    whole, rest = size // length, size % length
    offsets = offsets_of(np.repeat([length, rest], [whole * count, count if rest else 0]))
    tokens = []
    for ids in (np.append(np.int32(eos_id), stream), stream):
        streams = ids[: size * count].reshape(count, size)
        windows = streams[:, : whole * length].reshape(count, whole, length).swapaxes(0, 1)
        tokens.append(Tokens(np.concatenate([windows.ravel(), streams[:, whole * length :].ravel()]), offsets))
    return Windows(*tokens)


def windows_of_splits(
    splits: Mapping[str, TextSplit], tokenizer: Tokenizer, length: int, log: Log, streams: int | None = None
) -> tuple[dict[str, Windows], dict[str, dict[str, Any]]]:
    """Cut the text of each split into windows of `length` tokens, that of train into `streams` first; None: one stream.

    Raises UsageError for more streams than tokens.

    Returns the windows and the facts for result.json, both by split. Logs notes on skipped lines and on unknown tokens.
    """
    windows, data = {}, {}
    for name, split in splits.items():
        stream = encode_stream(split.texts, tokenizer)
        count = streams if streams is not None and name == "train" else 1
        if count > max(1, len(stream)):
            size = pluralize(len(stream), "token")
            raise UsageError(
                f"{split.path}: has {size}, and pretraining.carry makes {count:,} streams of it; "
                "a smaller pretraining.batch_size makes fewer"
            )
        windows[name] = cut_windows(stream, tokenizer.separator_id, length, count)
        if streams is not None and name == "train":
            each = len(stream) // streams
            log.detail(f"train: {streams:,} streams of {pluralize(each, 'token')}, read window by window")
            if each <= length:
                what = f"a stream has no second window of {length:,} tokens, so the training carries no state"
                log.warn(f"train: {what}; a smaller pretraining.batch_size makes longer streams")
        unknown = int(np.count_nonzero(stream == tokenizer.unknown_id))
        counts = {"dropped": split.dropped, "bad": split.bad, "truncated": 0}
        sizes = {"tokens": len(stream), "unknown": unknown}
        data[name] = {**facts_of(split.path, len(split.texts), split.sha256), **counts, **sizes}
        log.add(*split.notes)
        note_on_bad_rows(name, split.bad, split.first_bad, log)
        ends = int(np.count_nonzero(stream == tokenizer.separator_id))
        size = f"{pluralize(len(stream), 'token')} with an <eos> after each of {pluralize(ends, 'text')}"
        of = f"{unknown / max(1, len(stream)):.1%} of them not in the vocabulary, so [UNK]"
        log.add(Note(f"{name}: {size}; {of}", "warning" if unknown > MANY_UNKNOWN * len(stream) else "detail"))
    return windows, data
