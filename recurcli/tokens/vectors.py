"""Reads pre-trained token vectors in word2vec's text format: lines `token number number …` after an optional `count size`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.rows import rows_of_file
from recurcli.errors import DataError, escaped

_DIGITS = re.compile(rb"[0-9]{1,12}")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


class Vectors(NamedTuple):
    """`matrix` (V, size) float32 with a row for each token; `known` (V,) bool, False for tokens missing from the file."""

    matrix: NDArray[np.float32]
    known: NDArray[np.bool_]


def read_vectors(path: Path, tokens: Sequence[str]) -> Vectors:
    """Read the vectors of `tokens` from a word2vec text file; rows of missing tokens are zeros.

    The first vector of a repeated token counts. Raises DataError, with the line, if a vector has another size than
    the first one or a value is not finite, and if the file ends before the count in its header.
    """
    wanted = {token.encode(errors="replace"): index for index, token in enumerate(tokens)}
    known = np.zeros(len(tokens), dtype=np.bool_)
    matrix: NDArray[np.float32] | None = None
    promised, read = 0, 0
    for line, row in enumerate(rows_of_file(path), 1):
        content = row.content.rstrip(b" ")
        header = _header(content) if line == 1 else None
        if matrix is None:
            promised, size = header or (0, content.count(b" "))
            matrix = np.zeros((len(tokens), size), dtype=np.float32)
        if header is not None:
            continue
        token, numbers = _parts(content, matrix.shape[1], where=f"{path}:{line}")
        index = wanted.get(token)
        if index is not None and not known[index]:
            matrix[index], known[index] = _vector(numbers, where=f"{path}:{line}"), True
        read += 1
    if matrix is None:
        raise DataError(f"{path}: is empty; expected lines of a token and its vector")
    if read < promised:
        raise DataError(f"{path}: ends after {read} of the {promised} vectors that its first line promises")
    return Vectors(matrix, known)


def _header(content: bytes) -> tuple[int, int] | None:
    """Return (count, size) if the first line consists of two whole numbers, else None."""
    parts = content.split(b" ")
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(_DIGITS.fullmatch(p) for p in parts) else None


def _parts(content: bytes, size: int, *, where: str) -> tuple[bytes, list[bytes]]:
    """Split a line into its token, which may hold spaces, and its `size` numbers."""
    token, *numbers = content.rsplit(b" ", size)
    beyond = token.rpartition(b" ")[2] if b" " in token else b""
    if size == 0 or len(numbers) != size or _NUMBER.fullmatch(beyond):
        raise DataError(f"{where}: does not have {max(size, 1)} numbers after its token")
    return token, numbers


def _vector(numbers: list[bytes], *, where: str) -> NDArray[np.float32]:
    if wrong := next((number for number in numbers if not _NUMBER.fullmatch(number)), None):
        raise DataError(f"{where}: '{escaped(wrong.decode(errors='replace'))}' is not a number")
    vector = np.array([float(number) for number in numbers])
    if np.abs(vector).max() > np.finfo(np.float32).max:
        raise DataError(f"{where}: holds a number too large for float32")
    return vector.astype(np.float32)
