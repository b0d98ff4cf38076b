"""word2vec text files give each token its vector, or say in which line they are wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from recurcli.errors import DataError
from recurcli.tokens.vectors import read_vectors


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_tokens_get_their_rows_and_absent_ones_are_marked(tmp_path: Path, header: str) -> None:
    path = write(tmp_path, f"{header}今 1 2.5\nb -3e-1 .5\nc 0 0\n".encode())
    found = read_vectors(path, ["[PAD]", "b", "今"])
    assert found.matrix.tolist() == [[0, 0], [np.float32(-0.3), 0.5], [1, 2.5]]
    assert found.known.tolist() == [False, True, True]
    assert [found.matrix.dtype, found.known.dtype] == [np.dtype("float32"), np.dtype("bool")]


def test_line_ends_and_spaces_at_the_end_do_not_matter(tmp_path: Path) -> None:
    assert read_vectors(write(tmp_path, b"2 2\r\na 1 2 \r\nb 3 4 "), ["a", "b"]).matrix.tolist() == [[1, 2], [3, 4]]


def test_the_first_vector_of_a_token_counts(tmp_path: Path) -> None:
    assert read_vectors(write(tmp_path, b"a 1 2\na 3 4\n"), ["a"]).matrix.tolist() == [[1, 2]]


def test_a_token_may_hold_a_space_or_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, b"2 1\na b 1\n\xff 2\n")
    assert read_vectors(path, ["a b", "b"]).known.tolist() == [True, False]


def test_a_gzipped_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress(b"a 1 2\n", mtime=0))
    assert read_vectors(path, ["a"]).known.all()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", ": is empty"),
        (b"a 1 2\nb 1\n", ":2: does not have 2 numbers after its token"),
        (b"a 1 2\nb 1 2 3\n", ":2: does not have 2 numbers after its token"),
        (b"a 1 2\n\nb 1 2\n", ":2: does not have 2 numbers"),
        (b"a\n", ":1: does not have 1 numbers"),
        (b"a 1 x\n", ":1: 'x' is not a number"),
        (b"a 1 nan\n", ":1: 'nan' is not a number"),
        (b"a 1 1e39\n", ":1: holds a number too large for float32"),
        (b"a 1 \x1b[31m\n", r":1: '\\x1b\[31m' is not a number"),
        (b"3 2\na 1 2\n", ": ends after 1 of the 3 vectors"),
        (b"2 2\na 1 2 3\n", ":2: does not have 2 numbers"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"vectors.txt{reason}"):
        read_vectors(write(tmp_path, content), ["a", "b"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_vectors(tmp_path / "x.txt", ["a"])
