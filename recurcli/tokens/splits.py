"""The splits of a training as tokens, and the texts of a language model: files of plain text, or the texts of a task's rows.

For causal language modelling a text is one stream of tokens, cut into windows. Each text ends with <eos>, for which [SEP]
stands. Every token of the stream, <eos> included, is predicted once; the first from an <eos> that stands before the stream
(as in Mikolov's RNNLM toolkit, whose counts of the Penn Treebank are the usual ones).
"""

import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.config import DataConfig
from recurcli.data.readers import is_fasttext
from recurcli.data.splits import Split, hashes_of, load_split, rows_per_dev_row
from recurcli.data.tasks import STEMS, Task, has_split, is_label_folder, task_with_columns
from recurcli.errors import DataError, escaped, pluralize
from recurcli.events import Note
from recurcli.tokens.corpus import is_text_file, read_corpus, text_files
from recurcli.tokens.tokenizer import Tokenizer, Tokens

MANY_UNKNOWN = 0.2
"""Fraction of unknown tokens in a split above which a warning says so."""
WINDOW = 64
"""The tokens of a window where `data.max_length` is auto; ours."""


@dataclass(frozen=True)
class TextSplit:
    """The texts of one split, in their order."""

    texts: list[tuple[str, str | None]]
    """A line of plain text each (blank ones included), or a row's text and its second text."""
    path: Path | None
    sha256: str
    dropped: int = 0
    """Number of rows left out because they have no majority label."""
    bad: int = 0
    """Number of lines or rows that were skipped because they cannot be read."""
    first_bad: str = ""
    unread: list[Path] = field(default_factory=list)
    """Text files of the folder that belong to no split."""
    notes: tuple[Note, ...] = ()
    """What a user should know about how its file was read."""

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

    In a folder without a train file, the text files that are no dev or test text by their names are the training text. With
    `use_dev_split`, text without a dev file holds train and dev text. The last lines are then the dev text, one in
    `data.dev_fraction` (ours); dev rows are drawn as in `load_split`. Raises DataError if there is no text that can be read.
    """
    named = config.named_file(split)
    if named is not None and (task.plain_text or (is_text_file(named) and not is_fasttext(named))):
        return _read(
            named, config, split, task, use_dev_split=use_dev_split and split != "test" and not config.has_own_dev_file
        )
    if named is None and (task.plain_text or is_plain_text(task, config)):
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
    files = {
        name: _usual_file(task, name, config) or [file for file, split in named.items() if split == name]
        for name in STEMS
    }
    if use_dev_split and not files["train"]:
        files["train"] = [file for file, split in named.items() if split is None]
    undivided = not use_dev_split or split == "test" or bool(files["dev"])
    found = files[split] if undivided else files["train"]
    if not found:
        names = ", ".join(_names(task, split, config))
        raise DataError(
            f"{path}: has no {split} text (looked for {names}); --data (data.path) names a folder with these files"
        )
    text = _read(found[0] if len(found) == 1 else path, config, split, task, use_dev_split=not undivided, files=found)
    read = {file for group in files.values() for file in group}
    return replace(text, unread=[file for file in named if file not in read])


def _usual_file(task: Task, split: str, config: DataConfig) -> list[Path]:
    """Return the file of a split by its usual name; [] if there is none."""
    folder = Path(str(config.path))
    folders = dict.fromkeys([folder, folder / (task.folder or task.name), folder / task.name])
    candidates = (
        place / f"{name}{packed}"
        for place in folders
        for name in _names(task, split, config)
        for packed in ("", ".gz", ".xz")
    )
    return [file for file in candidates if file.is_file()][:1]


def _names(task: Task, split: str, config: DataConfig) -> list[str]:
    """Return the names that the text file of a split may have, without the ending of a compressed one."""
    layouts = task_with_columns(task, config).layouts
    return [name for layout in layouts if (name := layout.files.get(split))] or [f"{stem}.txt" for stem in STEMS[split]]


def _named_split(file: Path, folder: Path) -> str | None:
    """Return the split that a text file's name or folder says, such as test for wiki.test.txt or held/test/a.txt."""
    stem = re.sub(r"\.txt(\.gz|\.xz)?$", "", file.name, flags=re.IGNORECASE)
    parts = [*file.relative_to(folder).parts[:-1], re.split(r"[._-]", stem)[-1]]
    return next((split for part in parts for split, stems in STEMS.items() if part.casefold() in stems), None)


def _read(
    path: Path, config: DataConfig, split: str, task: Task, *, use_dev_split: bool, files: Sequence[Path] = ()
) -> TextSplit:
    """Read the lines of the text file `path`, or those of `files` in the folder `path`."""
    corpus = read_corpus(path, skip_bad_rows=config.skip_bad_rows, encoding=config.encoding, files=files)
    lines: list[tuple[str, str | None]] = [(text, None) for text in corpus.texts(blank=True)]
    if use_dev_split:
        last = max(1, len(lines) // rows_per_dev_row(task_with_columns(task, config).dev_fraction))
        if len(lines) < 2:
            raise DataError(f"{path}: has one line; a dev text takes a second one, or a file of its own")
        lines = lines[-last:] if split == "dev" else lines[:-last]
    return TextSplit(lines, path, corpus.sha256, bad=corpus.bad_rows, first_bad="".join(corpus.bad[:1]))


class Windows(NamedTuple):
    """The windows of a stream: row i of `inputs` holds the token before each token of row i of `targets`."""

    inputs: Tokens
    targets: Tokens


def encode_stream(texts: Sequence[tuple[str, str | None]], tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Return the ids of all `texts` end to end, with <eos> after each text (N,); a pair is two texts."""
    tokens = tokenizer.encode(texts, sys.maxsize)  # a text is never cut
    return np.insert(tokens.ids, tokens.offsets[1:], tokenizer.separator_id)


def cut_windows(stream: NDArray[np.int32], eos_id: int, length: int) -> Windows:
    """Return the stream (N,) in windows of `length` tokens; the last one may be shorter."""
    offsets = np.append(np.arange(0, len(stream), length, dtype=np.int64), len(stream))
    before = np.concatenate([np.array([eos_id], np.int32), stream])
    return Windows(Tokens(before[:-1], offsets), Tokens(before[1:], offsets))


def encode_splits(
    splits: Mapping[str, Split], tokenizer: Tokenizer, max_length: int
) -> Generator[Note, None, tuple[dict[str, Tokens], dict[str, dict[str, Any]]]]:
    """Return the tokens of each split and the facts about it for result.json.

    Yields notes on the rows that were skipped, dropped or truncated.
    """
    tokens, data = {}, {}
    for name, split in splits.items():
        tokens[name] = tokenizer.encode(split.texts, max_length)
        counts = {
            "dropped": split.dropped,
            "unlabelled": split.unlabelled,
            "bad": len(split.bad),
            "truncated": tokens[name].truncated,
        }
        data[name] = {**facts_of(split.path, len(split.examples), split.sha256), **counts}
        yield from split.notes
        yield from note_on_bad_rows(name, len(split.bad), "".join(split.bad[:1]))
        if split.dropped:
            kept = f"{len(split.examples):,} kept"
            yield Note(f"{name}: {pluralize(split.dropped, 'row')} without a majority label ('-') dropped, {kept}")
        yield from note_on_cuts(name, tokens[name].truncated, len(tokens[name]), max_length)
        unknown = float((tokens[name].ids == tokenizer.unknown_id).mean()) if len(tokens[name].ids) else 0.0
        if unknown > MANY_UNKNOWN:
            yield Note(
                f"{name}: {unknown:.0%} of the tokens are not in the vocabulary, so they are all [UNK]", "warning"
            )
    return tokens, data


def windows_of_splits(
    splits: Mapping[str, TextSplit], tokenizer: Tokenizer, length: int
) -> Generator[Note, None, tuple[dict[str, Windows], dict[str, dict[str, Any]]]]:
    """Cut the text of each split into windows of `length` tokens.

    Returns the windows and the facts for result.json, both by split. Yields notes on skipped lines and on unknown tokens.
    """
    windows, data = {}, {}
    for name, split in splits.items():
        stream = encode_stream(split.texts, tokenizer)
        windows[name] = cut_windows(stream, tokenizer.separator_id, length)
        unknown = int(np.count_nonzero(stream == tokenizer.unknown_id))
        counts = {"dropped": split.dropped, "bad": split.bad, "truncated": 0}
        sizes = {"tokens": len(stream), "unknown": unknown}
        data[name] = {**facts_of(split.path, len(split.texts), split.sha256), **counts, **sizes}
        yield from split.notes
        yield from note_on_bad_rows(name, split.bad, split.first_bad)
        if split.unread and name == "train":
            names = ", ".join(escaped(file.name) for file in split.unread[:3]) + (
                ", …" if len(split.unread) > 3 else ""
            )
            yield Note(
                f"{pluralize(len(split.unread), 'text file', 'are')} not read, because train has its own file: {names}"
            )
        of = (
            f"{unknown / len(stream):.1%} of them not in the vocabulary, so [UNK]"
            if unknown
            else "all in the vocabulary"
        )
        ends = int(np.count_nonzero(stream == tokenizer.separator_id))
        size = f"{pluralize(len(stream), 'token')} with an <eos> after each of {pluralize(ends, 'text')}"
        yield Note(f"{name}: {size}; {of}", "warning" if unknown > MANY_UNKNOWN * len(stream) else "info")
    return windows, data


def facts_of(path: Path | None, rows: int, sha256: str) -> dict[str, Any]:
    """Return path, number of rows and sha256 of the data of a split, for result.json."""
    return {"path": None if path is None else str(path), "rows": rows, "sha256": sha256}


def note_on_bad_rows(name: str, number: int, first: str) -> Iterator[Note]:
    """Yield a warning about the `number` of skipped rows, if there are any. `first` describes the first one."""
    if number:
        yield Note(f"{name}: {pluralize(number, 'bad row')} skipped, the first: {first}", "warning")


def note_on_cuts(name: str, cut: int, rows: int, max_length: int) -> Iterator[Note]:
    """Yield a note on the number of rows that were truncated to `max_length` tokens, if there are any."""
    if cut:
        yield Note(f"{name}: {pluralize(cut, 'row')} ({cut / rows:.1%}) cut to data.max_length {max_length}")
