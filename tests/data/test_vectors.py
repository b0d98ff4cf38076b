"""Text files and Model2Vec folders give each token its vector, or say in which line or tensor they are wrong."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from recurcli.config import TokenizerConfig
from recurcli.errors import DataError, ModelError
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.tokens.vectors import principal_components, read_vectors


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("header", "packed"), [("", False), ("3 2\n", False), ("", True)])
def test_tokens_get_their_rows_and_absent_ones_are_marked(tmp_path: Path, header: str, packed: bool) -> None:
    content = f"{header}今 1 2.5\nb -3e-1 .5\nc 0 0\n".encode()
    path = tmp_path / ("vectors.txt.gz" if packed else "vectors.txt")
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    found = read_vectors(path, ["[PAD]", "b", "今"])
    assert found.matrix.tolist() == [[0, 0], [np.float32(-0.3), 0.5], [1, 2.5]]
    assert found.known.tolist() == [False, True, True]
    assert [found.matrix.dtype, found.known.dtype] == [np.dtype("float32"), np.dtype("bool")]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"2 2\r\na 1 2 \r\nb 3 4 ", {"a": [1, 2], "b": [3, 4]}),  # line ends, and spaces at the end
        (b"a 1 2\na 3 4\n", {"a": [1, 2]}),  # the first vector of a token counts
        (b"2 1\na b 1\n\xff 2\n", {"a b": [1], "b": [0]}),  # a space in a token, and bytes that are no text
        (
            b", -1 2\n. . . 1 2\nat name@domain.com 3 4\n300 5 6\n",
            {". . .": [1, 2], "at name@domain.com": [3, 4], "300": [5, 6]},
        ),
        ("3 2\n</s> 0.0 0.1 \n今 1e-1 -2 \n2019 7 8 \n".encode(), {"2019": [7, 8]}),  # fastText's
    ],
)
def test_lines_are_read_as_the_tools_write_them(tmp_path: Path, content: bytes, rows: dict[str, list[float]]) -> None:
    assert read_vectors(write(tmp_path, content), [*rows]).matrix.tolist() == [*rows.values()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", ": is empty"),
        (b"a 1 2\nb 1\n", ":2: does not have 2 numbers after its token"),
        (b"a\t1\t2\n", ":1: does not have 1 numbers after its token"),
        (b"a 1 2\nb 1 2 3\n", ":2: does not have 2 numbers after its token"),
        (b"a 1 2\n\nb 1 2\n", ":2: does not have 2 numbers"),
        (b"a\n", ":1: does not have 1 numbers"),
        (b"2 2\na \x00\x00\x80?\t\x01\n", ":2: does not have 2 numbers after its token"),
        (b"a 1 x\n", ":1: 'x' is not a number"),
        (b"a 1 nan\n", ":1: 'nan' is not a number"),
        *((b"a 1 %b\n" % number, ":1: holds a number beyond 1,000,000") for number in (b"1e39", b"-3e38", b"1000001")),
        (b"a 1 \x1b[31m\n", r":1: '\\x1b\[31m' is not a number"),
        (b"3 2\na 1 2\n", ": ends after 1 of the 3 vectors"),
        (b"2 2\na 1 2 3\n", ":2: does not have 2 numbers"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"vectors.txt{reason}"):
        read_vectors(write(tmp_path, content), ["a", "b"])


def folder(tmp_path: Path, model: dict[str, np.ndarray] | bytes, tokenizer: object = None) -> Path:
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "a": 2, "##b": 3, "今": 4}
    path = tmp_path / "static"
    path.mkdir()
    content = {"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": []}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer or content))
    (path / "config.json").write_text('{"normalize": true}')
    (path / "model.safetensors").write_bytes(model if isinstance(model, bytes) else save(model))
    return path


TABLE = np.arange(10, dtype=np.float32).reshape(5, 2)
MAPPING = np.array([0, 0, 1, 1, 0])


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        ({"embeddings": TABLE}, [[8, 9], [4, 5]]),
        ({"embeddings": TABLE.astype(np.float16)}, [[8, 9], [4, 5]]),
        ({"embeddings": TABLE.astype(np.int8), "weights": np.array([1, 1, 0.5, 1, 2])}, [[16, 18], [2, 2.5]]),
        ({"embeddings": TABLE[:2], "mapping": MAPPING}, [[0, 1], [2, 3]]),
        ({"embeddings": TABLE[:2], "mapping": MAPPING.astype(np.int32), "weights": np.full(5, 2.0)}, [[0, 2], [4, 6]]),
    ],
)
def test_a_model2vec_folder_gives_weighted_rows(
    tmp_path: Path, model: dict[str, np.ndarray], rows: list[list[float]]
) -> None:
    found = read_vectors(folder(tmp_path, model), ["今", "missing", "a"])
    assert found.known.tolist() == [True, False, True]
    assert found.matrix.tolist() == [rows[0], [0, 0], rows[1]]
    assert found.matrix.dtype == np.float32


def test_a_unigram_vocabulary_and_added_tokens_have_their_ids(tmp_path: Path) -> None:
    pieces = [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.0]]
    added = [{"content": "<s>", "id": 3}, {"content": "new", "id": 4}]
    path = folder(
        tmp_path, {"embeddings": TABLE}, {"model": {"type": "Unigram", "vocab": pieces}, "added_tokens": added}
    )
    assert read_vectors(path, ["▁a", "new"]).matrix.tolist() == [[2, 3], [8, 9]]


def test_the_folders_tokens_may_be_the_vocabulary_so_that_every_vector_has_its_token(tmp_path: Path) -> None:
    path = folder(tmp_path, {"embeddings": TABLE})
    config = TokenizerConfig(kind="wordpiece", vocabulary=str(path / "tokenizer.json"))
    tokenizer = Tokenizer.train([], config)
    assert tokenizer.tokens == ["[PAD]", "[UNK]", "a", "##b", "今", "[SEP]", "[MASK]"]
    assert tokenizer.encode([("AB 今", None)], 8).ids.tolist() == [2, 3, 4]
    assert read_vectors(path, tokenizer.tokens).known.tolist() == [True] * 5 + [False] * 2


def test_principal_components_keep_most_of_the_variance_and_their_sign() -> None:
    drawn = np.random.default_rng(0)
    table = (drawn.normal(size=(200, 3)) * [1, 5, 2] @ drawn.normal(size=(3, 6)) + 7).astype(np.float32)
    found = principal_components(table, 3)
    covariance = np.cov(found.T)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-3)
    assert (np.diff(np.diag(covariance)) < 0).all()
    np.testing.assert_allclose(found.var(axis=0).sum(), table.var(axis=0).sum(), rtol=1e-4)
    np.testing.assert_allclose(principal_components(-table, 2), -found[:, :2], atol=1e-4)
    assert found.dtype == np.float32


def broken(name: str, value: float) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {"embeddings": TABLE.copy(), "mapping": np.arange(5), "weights": np.ones(5)}
    tensors[name].flat[4] = value
    return tensors


OTHER = "its tensors are not those of Model2Vec for the 5 ids"


@pytest.mark.parametrize(
    ("model", "tokenizer", "reason"),
    [
        *((broken("mapping", value), None, OTHER) for value in (5, -1)),
        *(
            (broken(name, value), None, "a vector has a value that is not finite, or beyond 1,000,000")
            for name, value in (("embeddings", np.nan), ("weights", np.inf), ("embeddings", -3e38), ("weights", 1e6))
        ),
        *(({"embeddings": table}, None, OTHER) for table in (TABLE[:4], TABLE[0], TABLE.astype(bool))),
        *(({"embeddings": TABLE, "mapping": wrong}, None, OTHER) for wrong in (np.arange(4), np.ones(5))),
        ({"embeddings": TABLE, "weights": np.ones((5, 1))}, None, OTHER),
        ({"word_embeddings": TABLE}, None, OTHER),
        (save({"embeddings": TABLE})[:-8], None, "model.safetensors: is damaged"),
        (b"\xff" * 64, None, "model.safetensors: is not a safetensors file"),
        *(
            ({"embeddings": TABLE}, {"model": wrong}, "tokenizer.json: is damaged")
            for wrong in ({}, {"vocab": {"a": -1}}, {"vocab": {"a": "4"}})
        ),
    ],
)
def test_a_damaged_folder_is_refused_with_its_tensor(
    tmp_path: Path, model: dict[str, np.ndarray] | bytes, tokenizer: object, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        read_vectors(folder(tmp_path, model, tokenizer), ["今", "a"])


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_file_says_which(tmp_path: Path, name: str) -> None:
    path = folder(tmp_path, {"embeddings": TABLE})
    (path / name).unlink()
    with pytest.raises(ModelError, match=f"static: has no {name}; a folder of vectors is one of Model2Vec"):
        read_vectors(path, ["a"])
