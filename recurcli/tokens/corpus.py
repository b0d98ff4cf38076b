"""Plain text for pre-training: files of one text a line, which may be larger than memory, tokenised once into Arrow.

`datasets` maps the tokens of a file in the cache into memory, so that a training reads only the rows of its batches.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.data.config import TokenizerConfig
from recurcli.data.rows import UTF8, TextDecoder, canonical_encoding, open_file, rows_of_file
from recurcli.data.splits import BAD_ROWS_SHOWN, check_bad_rows
from recurcli.errors import DataError
from recurcli.files import cached, sha256_of
from recurcli.tokens.tokenizer import ROWS_AT_ONCE, Tokenizer, Tokens, offsets_of


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
        check_bad_rows(self.bad, **counts, name=str(self.path), skip=self.skip_bad_rows, hint=hint)
        if not has_text:
            raise DataError(f"{self.path}: has no lines with text")


def is_text_file(path: Path) -> bool:
    """Return whether the name of `path` ends in .txt, .txt.gz or .txt.xz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-1:] == [".txt"] or suffixes[-2:] in ([".txt", ".gz"], [".txt", ".xz"])


def text_files(path: Path) -> list[Path]:
    """Return the text file `path`, or the text files of the folder `path` and its folders by name; [] if there are none."""
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
    """Rows of token ids in an Arrow file; `Tokens` are the same in memory."""

    def __init__(self, path: Path) -> None:
        import datasets

        rows = datasets.Dataset.from_file(str(path))  # maps the file; nothing is read yet
        self._rows = rows.with_format("arrow")
        chunks = rows.data.column("ids").chunks
        self.lengths = np.concatenate([np.diff(chunk.offsets).astype(np.int32) for chunk in chunks])
        """Tokens a row, (rows,); the only values in memory for every row."""
        self.truncated = sum(int(np.count_nonzero(chunk)) for chunk in rows.data.column("cut").chunks)
        """Number of rows that were cut."""

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: np.ndarray) -> Tokens:
        """Read the given rows, in the order of `rows`."""
        ids = self._rows[rows.tolist()].column("ids").combine_chunks()
        return Tokens(ids.flatten().to_numpy().astype(np.int32), offsets_of(self.lengths[rows]))


def corpus_tokenizer(corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """Return the tokenizer trained on the texts of `corpus`: from the cache, or trained now.

    Raises DataError as `Corpus.texts` and `Tokenizer.train`, StorageError if the cache cannot be written.
    """
    vocabulary = "" if config.vocabulary is None else sha256_of(Path(config.vocabulary))

    def write(path: Path) -> dict[str, Any]:
        path.write_text(Tokenizer.train(corpus.texts(), config).to_json(), encoding="utf-8")
        return {}

    depends_on = (
        corpus.sha256,
        corpus.skip_bad_rows,
        canonical_encoding(corpus.encoding),
        dataclasses.astuple(config),
        vocabulary,
    )
    path, _ = cached(depends_on, ".tokenizer.json", write)
    return Tokenizer.load(path)


def stored_tokens(corpus: Corpus, tokenizer: Tokenizer, max_length: int) -> StoredTokens:
    """Return the rows of `corpus` as ids, at most `max_length` each: from the cache, or tokenised now.

    One of several processes tokenises and the others wait. Raises DataError as `Corpus.texts`, StorageError if the cache
    cannot be written.
    """

    def write(path: Path) -> dict[str, Any]:
        _write_tokens(path, corpus, tokenizer, max_length)
        return {"rows": corpus.rows, "bad_rows": corpus.bad_rows, "bad": corpus.bad}

    depends_on = (
        corpus.sha256,
        corpus.skip_bad_rows,
        canonical_encoding(corpus.encoding),
        max_length,
        tokenizer.to_json(),
    )
    path, counts = cached(depends_on, ".arrow", write)
    corpus.rows, corpus.bad_rows, corpus.bad = counts["rows"], counts["bad_rows"], counts["bad"]
    return StoredTokens(path)


def _write_tokens(path: Path, corpus: Corpus, tokenizer: Tokenizer, max_length: int) -> None:
    """Write the rows in Arrow batches of ROWS_AT_ONCE, so that memory holds one batch."""
    import pyarrow

    kind = pyarrow.uint16() if tokenizer.vocab_size <= 1 << 16 else pyarrow.int32()
    schema = pyarrow.schema({"ids": pyarrow.list_(kind), "cut": pyarrow.bool_()})
    with path.open("wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
        texts_left = corpus.texts()
        while texts := list(islice(texts_left, ROWS_AT_ONCE)):
            tokens = tokenizer.encode([(text, None) for text in texts], max_length)
            ids = pyarrow.ListArray.from_arrays(
                pyarrow.array(tokens.offsets, pyarrow.int32()), pyarrow.array(tokens.ids).cast(kind)
            )
            writer.write_batch(pyarrow.record_batch([ids, pyarrow.array(tokens.cut)], schema=schema))
