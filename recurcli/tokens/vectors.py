"""Reads pre-trained token vectors: a text file of word2vec, GloVe or fastText, or a folder of Model2Vec.

A line of a text file is `token number number …`. word2vec and fastText (.vec) begin with a line `count size`, GloVe does not.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.rows import rows_of_file
from recurcli.errors import DataError, ModelError, escaped
from recurcli.files import OpenedFile, stored_arrays
from recurcli.tokens.tokenizer import token_ids

_DIGITS = re.compile(rb"[0-9]{1,12}")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")

MODEL, TOKENIZER = "model.safetensors", "tokenizer.json"
LARGEST = 1e6
"""Largest magnitude of a vector's value. Of larger ones a norm or a product may overflow float32 [ours]."""


class Vectors(NamedTuple):
    """`matrix` (V, size) float32 with a row for each token; `known` (V,) bool, False for tokens missing from the file."""

    matrix: NDArray[np.float32]
    known: NDArray[np.bool_]


def read_vectors(path: Path, tokens: Sequence[str]) -> Vectors:
    """Read the vectors of `tokens` from a text file or a folder of Model2Vec; rows of missing tokens are zeros.

    The first vector of a repeated token counts. Raises ModelError for a folder as `read_table` does. Raises DataError, with the
    line, if a vector in a text file has another size than the first one or a value beyond LARGEST, and if the file ends before
    the count in its header.
    """
    if path.is_dir():
        return _read_folder(path, tokens)
    wanted = {token.encode(errors="replace"): index for index, token in enumerate(tokens)}
    known = np.zeros(len(tokens), dtype=np.bool_)
    matrix: NDArray[np.float32] | None = None
    promised, size, read = 0, 0, 0
    for line, row in enumerate(rows_of_file(path), 1):
        content, where = row.content.rstrip(b" "), f"{path}:{line}"
        if matrix is None:
            header = content.split(b" ")
            has_header = len(header) == 2 and all(map(_DIGITS.fullmatch, header))
            promised, size = map(int, header) if has_header else (0, content.count(b" "))
            matrix = np.zeros((len(tokens), size), dtype=np.float32)
            if has_header:
                continue
        token, *numbers = content.rsplit(b" ", size)  # a token may hold spaces
        if size == 0 or len(numbers) != size or (b" " in token and _NUMBER.fullmatch(token.rpartition(b" ")[2])):
            raise DataError(f"{where}: does not have {max(size, 1)} numbers after its token, with spaces between them")
        index = wanted.get(token)
        if index is not None and not known[index]:
            matrix[index], known[index] = _vector(numbers, where=where), True
        read += 1
    if matrix is None:
        raise DataError(f"{path}: is empty; expected lines of a token and its vector")
    if read < promised:
        raise DataError(f"{path}: ends after {read} of the {promised} vectors that its first line promises")
    return Vectors(matrix, known)


def _vector(numbers: list[bytes], *, where: str) -> NDArray[np.float32]:
    if wrong := next((number for number in numbers if not _NUMBER.fullmatch(number)), None):
        raise DataError(f"{where}: '{escaped(wrong.decode(errors='replace'))}' is not a number")
    vector = np.array([float(number) for number in numbers])
    if np.abs(vector).max() > LARGEST:
        raise DataError(f"{where}: holds a number beyond {LARGEST:,.0f}")
    return vector.astype(np.float32)


def principal_components(table: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return the `size` principal components (K, size) of a table (K, S), largest variance first [ours].

    The largest weight of each is positive, so the sign is always the same.
    """
    centred = table - table.mean(axis=0, dtype=np.float64)
    axes = np.linalg.svd(centred.T @ centred, hermitian=True).U[:, :size]  # (S, size)
    signs = np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
    return (centred @ (axes * signs)).astype(np.float32)


class Table(NamedTuple):
    """The vector of the token with id i is factors[i] * table[rows[i]], as in Model2Vec."""

    table: NDArray[np.generic]
    rows: NDArray[np.integer]
    factors: NDArray[np.floating]
    ids: dict[str, int]


def read_table(folder: Path) -> Table:
    """Read a folder of Model2Vec, whose tokens are those of its tokenizer.json.

    Without `mapping` the row is i, without `weights` the factor is 1. Raises ModelError if a file is missing or damaged, if a
    tensor has another type or shape, if the mapping points outside, or if a vector has a value beyond LARGEST.
    """
    path = folder / MODEL
    for name in (MODEL, TOKENIZER):
        if not (folder / name).is_file():
            raise ModelError(f"{folder}: has no {name}; a folder of vectors is one of Model2Vec")
    tensors, ids = stored_arrays(OpenedFile(path)), token_ids(folder / TOKENIZER)
    count = max(ids.values(), default=-1) + 1
    table = np.atleast_1d(tensors.get("embeddings", np.zeros(0)))
    rows = tensors.get("mapping", np.arange(len(table)))
    factors = tensors.get("weights", np.ones(rows.shape))
    is_table = table.ndim == 2 and table.size > 0 and table.dtype.kind in "fi"
    are_of_tokens = rows.shape == factors.shape == (count,) and rows.dtype.kind == "i" and factors.dtype.kind == "f"
    if not (is_table and are_of_tokens and ((rows >= 0) & (rows < len(table))).all()):
        raise ModelError(f"{path}: its tensors are not those of Model2Vec for the {count:,} ids of {TOKENIZER}")
    largest = np.maximum(table.max(axis=1).astype(np.float64), -table.min(axis=1).astype(np.float64))[rows]
    with np.errstate(invalid="ignore"):  # infinity times 0
        if not (largest * np.abs(factors) <= LARGEST).all():  # NaN is not
            raise ModelError(f"{path}: a vector has a value that is not finite, or beyond {LARGEST:,.0f}")
    return Table(table, rows, factors, ids)


def _read_folder(folder: Path, tokens: Sequence[str]) -> Vectors:
    """Read the vectors of `tokens` from a folder of Model2Vec. Raises ModelError as `read_table`."""
    table, rows, factors, ids = read_table(folder)
    known = np.array([token in ids for token in tokens], np.bool_)
    found = np.array([ids[token] for token in tokens if token in ids], np.int64)
    matrix = np.zeros((len(tokens), table.shape[1]), np.float32)
    matrix[known] = table[rows[found]].astype(np.float64) * factors[found, None]
    return Vectors(matrix, known)
