"""Plain text to pre-train on: every line is a row, tokenised once, read from the disk."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from recurcli.config import TokenizerConfig
from recurcli.errors import DataError, StorageError
from recurcli.tokens.batching import collate, epoch_batches
from recurcli.tokens.texts import corpus_tokenizer, is_text_file, read_corpus, stored_tokens, text_files
from recurcli.tokens.tokenizer import Tokenizer

CHARACTERS = TokenizerConfig(kind="char", min_frequency=1)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))


def write_lines(path: Path, count: int = 30) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{'ab' * (number % 7)}c{number}\n" for number in range(count)))
    return path


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.txt.xz"])
def test_every_line_with_text_is_a_row(tmp_path: Path, name: str) -> None:
    content = "eins\r\n\nzwei\u2028drei\n\t \nvier".encode()
    packed = {"x.txt": content, "x.txt.gz": gzip.compress(content, mtime=0), "x.txt.xz": lzma.compress(content)}
    (tmp_path / name).write_bytes(packed[name])
    corpus = read_corpus(tmp_path / name)
    assert list(corpus.texts()) == ["eins", "zwei\u2028drei", "vier"]
    assert corpus.rows == 5


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "has no lines with text"),
        ("x.txt", b"a\n\xff\nb\n", r"x\.txt:2: is not UTF-8"),
        ("x.txt.xz", lzma.compress(b"a\n" * 9999)[:-20], "not a complete compressed file"),
        ("x.txt.xz", b"plain\n", "not a complete compressed file"),
        ("x.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], "not a complete compressed file"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_corpus(tmp_path / name).texts())


def test_one_bad_line_in_a_hundred_may_be_skipped_and_is_counted(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"a\n" * 99 + b"\xff\n")
    first, again = (read_corpus(tmp_path / "x.txt", skip_bad_rows=True) for _ in range(2))
    for corpus in (first, again):  # the second is from the cache
        assert len(stored_tokens(corpus, corpus_tokenizer(corpus, CHARACTERS), 8)) == 99
        assert (corpus.rows, corpus.bad_rows, corpus.bad) == (100, 1, first.bad)


def test_only_names_of_text_files_are_text_files() -> None:
    names = ["a.txt", "a.b.txt.xz", "a.tsv", "a.json.gz", "txt"]
    assert [name for name in names if is_text_file(Path(name))] == names[:2]


def test_a_folder_is_read_file_by_file_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, text in (("b.txt", "zwei"), ("a/z.txt", "eins"), ("c.md", "nothing")):
        (tmp_path / "text" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / name).write_text(text + "\n")
    assert [path.name for path in text_files(tmp_path / "text")] == ["z.txt", "b.txt"]
    corpus = read_corpus(tmp_path / "text")
    assert list(corpus.texts()) == ["eins", "zwei"]
    before = corpus.sha256
    (tmp_path / "text" / "b.txt").write_text("drei\n")
    assert read_corpus(tmp_path / "text").sha256 != before


def test_stored_rows_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    corpus = read_corpus(write_lines(tmp_path / "x.txt"))
    tokenizer = corpus_tokenizer(corpus, CHARACTERS)
    assert tokenizer.to_json() == Tokenizer.train(corpus.texts(), CHARACTERS).to_json()
    stored = stored_tokens(corpus, tokenizer, 6)
    expected = tokenizer.encode([(text, None) for text in corpus.texts()], 6)
    assert stored.lengths.tolist() == expected.lengths.tolist()
    assert stored.truncated == expected.truncated > 0
    rows = np.array([7, 0, 29, 7])
    for found, wanted in zip(collate(stored, rows, pad_id=0), collate(expected, rows, pad_id=0), strict=True):
        assert found.tolist() == wanted.tolist()


def test_rows_that_are_stored_cut_otherwise_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    corpus = read_corpus(write_lines(tmp_path / "x.txt"))
    tokenizer, rows = corpus_tokenizer(corpus, CHARACTERS), np.arange(8)
    head, tail = stored_tokens(corpus, tokenizer, 6), stored_tokens(corpus, tokenizer, 6, "tail")
    expected = tokenizer.encode([(text, None) for text in corpus.texts()], 6, "tail").take(rows)
    assert tail.take(rows).ids.tolist() == expected.ids.tolist() != head.take(rows).ids.tolist()


def test_text_is_tokenised_once_and_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    corpus = read_corpus(write_lines(tmp_path / "x.txt"))
    tokenizer = corpus_tokenizer(corpus, CHARACTERS)
    first = stored_tokens(corpus, tokenizer, 16)
    (path,) = (tmp_path / "cache").glob("*.arrow")
    stamp = path.stat().st_mtime_ns
    stored_tokens(corpus, tokenizer, 16)
    assert path.stat().st_mtime_ns == stamp
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # `first` is a view of the file
    path.write_bytes(content)
    again = stored_tokens(corpus, tokenizer, 16)
    everything = np.arange(len(first))
    assert again.take(everything).ids.tolist() == first.take(everything).ids.tolist()
    (path,) = (tmp_path / "cache").glob("*.tokenizer.json")
    for damage in (tokenizer.to_json().replace('"c"', '"z"'), "{broken"):
        path.write_text(damage)
        assert corpus_tokenizer(corpus, CHARACTERS).to_json() == tokenizer.to_json()


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "file"))
    corpus = read_corpus(write_lines(tmp_path / "x.txt"))
    with pytest.raises(StorageError, match="RECUR_CACHE"):
        corpus_tokenizer(corpus, CHARACTERS)


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 25, 64])
def test_windows_take_every_row_once_and_any_batch_can_be_the_first(rows: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 9, rows)

    def batches(first: int = 0, epoch: int = 0, window: int = 9) -> list[list[int]]:
        found = epoch_batches(lengths, 4, seed=1, epoch=epoch, first=first, window=window)
        return [batch.tolist() for batch in found]

    whole = batches()
    assert sorted(row for batch in whole for row in batch) == list(range(rows))
    assert len(whole) == -(-rows // 4)
    assert all(batches(first) == whole[first:] for first in range(len(whole) + 1))
    assert rows < 25 or batches(epoch=1) != whole
    assert batches(window=100) == batches(window=10**6)
