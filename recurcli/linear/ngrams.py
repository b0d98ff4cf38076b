"""TF-IDF vectors of character and word n-grams, in numpy: the input of the linear model.

A 64-bit hash of its characters or words stands for an n-gram, so a vocabulary is a sorted array of numbers. All n-grams of
a block of texts are hashed at once. Shapes: N rows, V n-grams of the vocabulary, M occurrences of n-grams in a block.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.data.values import separates_words

Texts = Sequence[tuple[str, str | None]]
Keys = NDArray[np.uint64]
Range = tuple[int, int]
"""Shortest and longest n-gram; (0, 0): none."""

ROWS_AT_ONCE = 4096
CHARACTERS_AT_ONCE = 1 << 16
"""A block of rows ends after this many characters, which bounds the memory of its n-grams."""
COUNTED_AT_ONCE = 1 << 21
"""The same while a vocabulary is counted: each block costs a pass over the vocabulary so far."""
MAX_TEXT = 1 << 16
"""Characters of a text that are read; n-grams after them are not counted."""
MAX_WEIGHTS = 1 << 24
"""The most frequent n-grams are kept up to this number of n-grams x classes: 64 MB of weights. Ours: without the n-grams of a
single row TNEWS lost 0.5 points."""
IDF_POWER = 1.3
"""Exponent of the inverse document frequency; ours: 1.0 lost 0.2 points on TNEWS and 0.3 on IMDb."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)
SECOND_TEXT = 0xBB67AE8584CAA73B
"""What is added to the hash of an n-gram of the second text: the fraction of the square root of 3, in 64 bits. With a small
number a character of one text has the hash of another character of the other text."""
OLDER_SECOND_TEXT = 512
"""The number of the models whose file has none, which an older recur wrote."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """Which n-grams are counted."""

    characters: Range = (0, 0)
    words: Range = (0, 0)
    second_text: int = SECOND_TEXT
    """What is added to the hash of an n-gram of the second text."""


def choose_ngrams(texts: Texts) -> NgramConfig:
    """Return the n-grams that suit the script of `texts`.

    Characters 1-3 where words are not separated by spaces; else words 1-2, and characters 2-4 where texts are short [ours].
    """
    sample = [text for row in texts[:: max(1, len(texts) // 1000)] for text in row if text]
    if not separates_words(sample):
        return NgramConfig(characters=(1, 3))
    return NgramConfig(words=(1, 2), characters=(2, 4) if sum(map(len, sample)) < 200 * len(sample) else (0, 0))


class Vectors(NamedTuple):
    """Sparse rows: row i has the `values` at `columns` between offsets[i] and offsets[i + 1]."""

    offsets: NDArray[np.int64]
    """(N + 1,)"""
    columns: NDArray[np.int64]
    """Ascending within a row."""
    values: NDArray[np.float32]


class Ngrams:
    """A vocabulary of n-grams, and the TF-IDF vectors of texts over it.

    The value of an n-gram is (1 + ln tf) idf^IDF_POWER, idf = 1 + ln((1 + N) / (1 + df)); a row has norm 1. The two texts of a
    pair have n-grams of their own.
    """

    def __init__(self, config: NgramConfig, keys: Keys, weights: NDArray[np.float32]) -> None:
        self.config = config
        self.keys = keys
        """The hashes (V,) of the n-grams, ascending."""
        self.weights = weights
        """idf^IDF_POWER of each n-gram (V,)."""

    @classmethod
    def fit(cls, texts: Texts, config: NgramConfig, num_classes: int = 2) -> "Ngrams":
        """Return the vocabulary of `texts`, whose n-grams will have a weight for each of `num_classes`."""
        keys, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        for block in row_blocks(texts, COUNTED_AT_ONCE):
            found, rows = _hash_ngrams(block, config)
            distinct, place = np.unique(found, return_inverse=True)
            in_rows = np.unique(place * len(block) + rows) // len(block)  # each n-gram of a row counts once
            keys, counts = _add_counts(keys, counts, distinct, np.bincount(in_rows, minlength=len(distinct)))
        most_frequent = np.argsort(-counts, kind="stable")[: max(1, MAX_WEIGHTS // num_classes)]
        keys, counts = keys[np.sort(most_frequent)], counts[np.sort(most_frequent)]
        idf = 1 + np.log((1 + len(texts)) / (1 + counts))
        return cls(config, keys, (idf**IDF_POWER).astype(np.float32))

    def transform(self, texts: Texts) -> Vectors:
        """Return the TF-IDF vectors (N, V) of `texts`; a row without a known n-gram is zero."""
        found, rows = _hash_ngrams(texts, self.config)
        columns = np.searchsorted(self.keys, found)
        known = columns < len(self.keys)
        known[known] = self.keys[columns[known]] == found[known]
        size = max(1, len(self.keys))
        cells, counts = np.unique(rows[known] * size + columns[known], return_counts=True)
        rows, columns = np.divmod(cells, size)
        values = (1 + np.log(counts)) * self.weights[columns]
        norms = np.sqrt(np.bincount(rows, values**2, minlength=len(texts)))
        offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=len(texts))))
        return Vectors(offsets, columns, (values / norms[rows]).astype(np.float32))


def characters_read(row: tuple[str, str | None]) -> int:
    """Return the number of characters of a row that are read."""
    return sum(min(len(text or ""), MAX_TEXT) for text in row)


def row_blocks(texts: Texts, most: int) -> Iterator[Texts]:
    """Divide `texts` into blocks that end after `most` characters or ROWS_AT_ONCE rows."""
    start = characters = 0
    for end, row in enumerate(texts, 1):
        characters += characters_read(row)
        if end - start == ROWS_AT_ONCE or characters >= most:
            yield texts[start:end]
            start, characters = end, 0
    if start < len(texts):
        yield texts[start:]


def _add_counts(
    keys: Keys, counts: NDArray[np.int64], more: Keys, by: NDArray[np.int64]
) -> tuple[Keys, NDArray[np.int64]]:
    """Return the union of two ascending arrays of keys, with the sum of their counts."""
    merged, place = np.unique(np.concatenate([keys, more]), return_inverse=True)
    return merged, np.bincount(place, np.concatenate([counts, by]), len(merged)).astype(np.int64)


def _hash_ngrams(texts: Texts, config: NgramConfig) -> tuple[Keys, NDArray[np.int64]]:
    """Return the hash of every n-gram of every text (M,), and its row (M,)."""
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for side in (0, 1):
        side_texts = [(row[side] or "")[:MAX_TEXT].lower() for row in texts]
        if not any(side_texts):
            continue
        for kind, (shortest, longest) in enumerate((config.characters, config.words)):
            if longest:
                units, lengths = _words(side_texts) if kind else _characters(side_texts)
                for length, found, row in _windows(units, lengths, longest):
                    if length >= shortest:
                        salt = (side * config.second_text + (kind << 8) + length) % 2**64
                        keys.append(_mix(found + np.uint64(salt)))
                        rows.append(row)
    return np.concatenate(keys), np.concatenate(rows)


def _characters(texts: Sequence[str]) -> tuple[Keys, NDArray[np.int64]]:
    """Return the code points of all texts, concatenated, and the length of each text."""
    joined = "".join(texts).encode("utf-32-le", errors="surrogatepass")
    return np.frombuffer(joined, np.uint32).astype(np.uint64), np.array([len(text) for text in texts])


def _words(texts: Sequence[str]) -> tuple[Keys, NDArray[np.int64]]:
    """Return hashes of the words and punctuation marks of all texts, concatenated, and their number in each text."""
    words = [_WORD.findall(text) for text in texts]
    numbers: dict[str, int] = {}
    place = np.array([numbers.setdefault(word, len(numbers)) for found in words for word in found], np.int64)
    hashes = np.array([_hash_word(word) for word in numbers], np.uint64)
    return hashes[place], np.array([len(found) for found in words])


def _hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _windows(units: Keys, lengths: NDArray[np.int64], longest: int) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
    """Yield, for each n up to `longest`: n, the hashes of all n-grams that lie inside one text, and their rows."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(units))  # units from here to the end of the text
    hashes = np.zeros(len(units), np.uint64)
    for length in range(1, longest + 1):
        count = max(0, len(units) - length + 1)
        hashes = hashes[:count] * _PRIME + units[length - 1 : length - 1 + count] + np.uint64(1)
        inside = left[:count] >= length
        yield length, hashes[inside], row[:count][inside]


def _mix(hashes: Keys) -> Keys:
    """Spread the bits (the finaliser of splitmix64; Steele, Lea & Flood, OOPSLA 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
