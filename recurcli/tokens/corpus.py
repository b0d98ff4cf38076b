"""Plain text to pre-train on, larger than memory if need be: files of one text a line, tokenised once into Arrow.

The tokens lie in recur's cache – in `$RECUR_CACHE`, or else `~/.cache/recurcli` – under a name made of all that they depend
on, and are mapped into memory by `datasets`: a training reads the rows of its batches and no more.
"""

import contextlib
import dataclasses
import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from recurcli.data.examples import BAD_ROWS_SHOWN, judge_bad_rows
from recurcli.data.formats.rows import open_file, rows_of
from recurcli.errors import DataError, StorageError
from recurcli.files import locked, replacing, sha256_of, to_json, write_atomically, writing
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import ROWS_AT_ONCE, Tokenizer, Tokens

FORMAT = 1
"""Of the stored tokens; part of their name, so that another one makes them anew."""


@dataclass
class Corpus:
    """Text files, and what was found in them so far."""

    path: Path
    files: list[Path]
    sha256: str
    """Of the file's bytes, or of the files' names and bytes."""
    skip_bad_rows: bool = False
    rows: int = 0
    """Lines of the last reading, those without text among them."""
    bad: list[str] = field(default_factory=list)
    """`file:line: reason` of its first lines that could not be read."""
    bad_rows: int = 0

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.stat().st_size for file in self.files)

    def texts(self) -> Iterator[str]:
        """The lines that hold text; blank ones separate and are no rows.

        Raises DataError at the end if lines could not be read (up to 1 % are forgiven with `skip_bad_rows`), or if
        there were none; earlier for a file that is no UTF-8 text at all.
        """
        self.rows, self.bad, self.bad_rows = 0, [], 0
        found = False
        for path in self.files:
            for number, row in enumerate(_rows(path), 1):
                self.rows += 1
                try:
                    text = row.content.decode() if row.whole else ""
                    fault = "" if row.whole else "is too long"
                except UnicodeDecodeError as error:
                    fault = f"is not UTF-8 at byte {error.start + 1}"
                if fault:
                    self.bad_rows += 1
                    if len(self.bad) <= BAD_ROWS_SHOWN:
                        self.bad.append(f"{path}:{number}: {fault}")
                elif text.strip():
                    found = True
                    yield text
        judge_bad_rows(self.bad, count=self.bad_rows, rows=self.rows, name=str(self.path), skip=self.skip_bad_rows)
        if not found:
            raise DataError(f"{self.path}: has no lines with text")


def is_text_file(path: Path) -> bool:
    """Whether `path` is named like a plain text file: .txt, .txt.gz or .txt.xz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-1:] == [".txt"] or suffixes[-2:] in ([".txt", ".gz"], [".txt", ".xz"])


def text_files(path: Path) -> list[Path]:
    """The text file `path`, or all text files of the folder `path` and its folders, by name; [] if it has none."""
    if not path.is_dir():
        return [path] if is_text_file(path) else []
    return sorted(found for found in path.rglob("*") if is_text_file(found) and found.is_file())


def read_corpus(path: Path, *, skip_bad_rows: bool = False) -> Corpus:
    """The text at `path`, a file or a folder of files; DataError if one of them cannot be opened."""
    files = text_files(path) or [path]
    for file in files:
        open_file(file).close()
    if files == [path]:
        return Corpus(path, files, sha256_of(path), skip_bad_rows)
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{sha256_of(file)}\n".encode(errors="surrogateescape"))
    return Corpus(path, files, digest.hexdigest(), skip_bad_rows)


def _rows(path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open_file(path))
        if path.suffix.lower() == ".xz":
            stream = cast(BinaryIO, stack.enter_context(lzma.open(stream)))
        yield from rows_of(stream, str(path))


class StoredTokens:
    """Rows of token ids on the disk; what `Tokens` is in memory."""

    def __init__(self, path: Path) -> None:
        import datasets

        rows = datasets.Dataset.from_file(str(path))  # maps the file; nothing is read yet
        self._rows = rows.with_format("arrow")
        chunks = rows.data.column("ids").chunks
        self.lengths = np.concatenate([np.diff(chunk.offsets).astype(np.int32) for chunk in chunks])
        """Tokens a row, (rows,): the one thing that is held for every row."""
        self.truncated = sum(int(np.count_nonzero(chunk)) for chunk in rows.data.column("cut").chunks)
        """How many rows were cut."""

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: np.ndarray) -> Tokens:
        """Some of the rows, read from the disk."""
        found = self._rows[rows.tolist()].column("ids").combine_chunks()
        lengths = self.lengths[rows].astype(np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Tokens(found.flatten().to_numpy().astype(np.int32), offsets)


def corpus_tokenizer(corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """The tokenizer that is trained on the texts of `corpus`: from the cache, or trained now.

    Raises DataError as `Corpus.texts` and `Tokenizer.train`, StorageError where the cache cannot be written.
    """
    vocabulary = "" if config.vocabulary is None else sha256_of(Path(config.vocabulary))
    name = _name(corpus.sha256, corpus.skip_bad_rows, dataclasses.astuple(config), vocabulary)
    with _cached(f"{name}.tokenizer.json") as path:
        beside = path.with_suffix(".sha256")
        if not (path.exists() and beside.exists() and beside.read_text(errors="replace") == sha256_of(path)):
            write_atomically(path, Tokenizer.train(corpus.texts(), config).to_json())
            write_atomically(beside, sha256_of(path))
    return Tokenizer.load(path)


def stored_tokens(corpus: Corpus, tokenizer: Tokenizer, max_length: int) -> StoredTokens:
    """The rows of `corpus` as ids, at most `max_length` each: from the cache, or tokenised into it now.

    Of several processes one tokenises and the others wait. Raises DataError as `Corpus.texts`, StorageError where the
    cache cannot be written.
    """
    name = _name(corpus.sha256, corpus.skip_bad_rows, max_length, tokenizer.to_json())
    with _cached(f"{name}.arrow") as path:
        beside = path.with_suffix(".json")
        try:
            facts = json.loads(beside.read_text(encoding="utf-8"))
            whole = facts["sha256"] == sha256_of(path)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            with replacing(path) as temporary:
                _write(temporary, corpus, tokenizer, max_length)
                facts = {"rows": corpus.rows, "bad_rows": corpus.bad_rows, "bad": corpus.bad}
                write_atomically(beside, to_json({**facts, "sha256": sha256_of(temporary)}))
        corpus.rows, corpus.bad_rows, corpus.bad = facts["rows"], facts["bad_rows"], facts["bad"]
    return StoredTokens(path)


def _name(*parts: object) -> str:
    return hashlib.sha256(repr((FORMAT, *parts)).encode(errors="surrogatepass")).hexdigest()[:32]


@contextlib.contextmanager
def _cached(name: str) -> Iterator[Path]:
    """The path of a file in the cache, which no other process makes at the same time."""
    path = cache_folder() / name
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_name(f"{name}.lock"), wait=True):
                yield path
    except StorageError as error:
        error.add_note("tokenised text is kept there; RECUR_CACHE names another folder")
        raise


def cache_folder() -> Path:
    """Where tokenised text is kept."""
    if told := os.environ.get("RECUR_CACHE"):
        return Path(told).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "recurcli"


def _write(path: Path, corpus: Corpus, tokenizer: Tokenizer, max_length: int) -> None:
    """One Arrow batch after the other: memory holds ROWS_AT_ONCE texts."""
    import pyarrow

    kind = pyarrow.uint16() if tokenizer.vocab_size <= 1 << 16 else pyarrow.int32()
    schema = pyarrow.schema({"ids": pyarrow.list_(kind), "cut": pyarrow.bool_()})
    with path.open("wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
        for texts in _blocks(corpus.texts(), ROWS_AT_ONCE):
            tokens = tokenizer.encode([(text, None) for text in texts], max_length)
            ids = pyarrow.ListArray.from_arrays(
                pyarrow.array(tokens.offsets, pyarrow.int32()), pyarrow.array(tokens.ids).cast(kind)
            )
            writer.write_batch(pyarrow.record_batch([ids, pyarrow.array(tokens.cut)], schema=schema))


def _blocks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(texts)
    while block := list(islice(source, size)):
        yield block
