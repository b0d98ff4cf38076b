"""TF-IDF of character and word n-grams: which n-grams are counted, their vocabulary, and the vectors of texts.

A 64-bit hash of its characters or words stands for an n-gram, so a vocabulary is a sorted array of numbers. All n-grams of a
block of texts are hashed at once. Shapes: N rows, V n-grams of the vocabulary, M occurrences of n-grams in a block.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.config import Range
from recurcli.data.splits import separates_words

Texts = Sequence[tuple[str, str | None]]
Keys = NDArray[np.uint64]

ROWS_AT_ONCE = 4096
"""A block ends after this many rows, however short they are."""
CHARACTERS_AT_ONCE = 1 << 16
"""A block of rows ends after this many characters, which bounds the memory of its n-grams."""
MAX_COUNTED = 16_000_000
"""A vocabulary is that of rows with this many occurrences of n-grams. Ours: 0.4 GB and 2 s."""
MAX_VALUES = 50_000_000
"""Vectors are made of rows with this many values, n-grams of a row. Ours: 0.4 GB."""
MAX_TEXT = 1 << 16
"""Characters of a text that are read; n-grams after them are not counted."""
KEPT_WEIGHTS = 1 << 24
"""The most frequent n-grams are kept up to this number of n-grams x classes: 64 MB of weights. Ours: without the n-grams of a
single row TNEWS lost 0.5 points."""
FEW_WORDS = 2
"""Texts with at most this many words on average may have no n-grams of words. Ours; presets/RESULTS.md shows the gain."""
IDF_POWER = 1.3
"""Exponent of the inverse document frequency; ours: 1.0 lost 0.2 points on TNEWS and 0.3 to 0.5 on two English sets."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)
FIRST_TEXT, SECOND_TEXT, BOTH_TEXTS = 0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B, 0xA54FF53A5F1D36F1
"""Added to the hash of an n-gram of a pair that is in the first text only, in the second only, in both: the fractions of the
square roots of 5, 3 and 7, in 64 bits. With small numbers, a character of one text would have the hash of another one of the
other text."""
MARKS = range(0x300, 0x10000)
"""The code points among which combining marks are looked for. Ours: with those above, a search takes twice the time."""
JOINERS = (0x200C, 0x200D)
"""Code points inside words and emoji (Unicode Standard Annex 29, "Extend" and ZWJ)."""
_SPACE = 0x20


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """Which n-grams are counted. The range (0, 0) stands for none."""

    characters: Range = (0, 0)
    words: Range = (0, 0)
    across_words: bool = True
    """Whether n-grams of characters go across words. False: they lie in one word and a space before and after it, as those of
    scikit-learn's `char_wb`."""


@cache
def word_pattern() -> re.Pattern[str]:
    r"""Return the pattern of a word or a punctuation mark, with its combining marks: vowel signs of Indic scripts, accents.

    `\w` does not match them.
    """
    marks = sorted((*JOINERS, *(code for code in MARKS if unicodedata.category(chr(code)).startswith("M"))))
    firsts = [code for before, code in pairwise((0, *marks)) if code != before + 1]
    lasts = [code for code, after in pairwise((*marks, 0)) if after != code + 1]
    extend = "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))
    return re.compile(rf"\w+(?:[{extend}]+\w*)*|[^\w\s][{extend}]*")


def ngram_sets(texts: Texts) -> list[NgramConfig]:
    """Return the sets of n-grams that suit the script of `texts`, the one with the fewest n-grams first [ours].

    Characters 1-2 or 1-3 where words are not separated by spaces; else words 1-2, alone or with characters 2-5 inside words or
    across them. Texts of at most FEW_WORDS words on average, such as names, have characters inside words, with or without
    n-grams of words: most of their words stand in a single row.
    """
    sample = [text for row in texts[:: max(1, len(texts) // 1000)] for text in row if text]
    if not separates_words(sample):
        return [NgramConfig(characters=(1, 2)), NgramConfig(characters=(1, 3))]
    words = (1, 2)
    if sum(len(text.split()) for text in sample) <= FEW_WORDS * len(sample):
        short, long = (
            NgramConfig(characters=(1, 4), across_words=False),
            NgramConfig(characters=(1, 5), across_words=False),
        )
        return [short, long, replace(short, words=words)]
    return [
        NgramConfig(words=words),
        NgramConfig(words=words, characters=(2, 5), across_words=False),
        NgramConfig(words=words, characters=(2, 5)),
    ]


class Vectors(NamedTuple):
    """Sparse rows: row i has the `values` at `columns` between offsets[i] and offsets[i + 1]."""

    offsets: NDArray[np.int64]
    """(N + 1,)"""
    columns: NDArray[np.int32]
    """Ascending within a row."""
    values: NDArray[np.float32]


class Ngrams:
    """A vocabulary of n-grams, and the TF-IDF vectors of texts over it.

    The value of an n-gram is (1 + ln tf) idf^IDF_POWER, idf = 1 + ln((1 + N) / (1 + df)). The n-grams of characters of a row
    have norm 1, and so have those of words [ours: one norm for both lost 0.3 to 0.6 points on two English sets]. The n-grams of
    a pair are of three sorts: in the first text only, in the second only, in both.
    """

    def __init__(self, config: NgramConfig, keys: Keys, weights: NDArray[np.float32]) -> None:
        self.config = config
        self.keys = keys
        """The hashes (V,) of the n-grams, ascending. The lowest bit is 1 for an n-gram of words."""
        self.weights = weights
        """idf^IDF_POWER of each n-gram (V,)."""
        self._shift = np.uint64(64 - max(1, len(keys).bit_length()))
        buckets = np.arange(1 << (64 - int(self._shift)), dtype=np.uint64) << self._shift
        self._starts = np.append(np.searchsorted(keys, buckets), len(keys))  # first key with these leading bits

    @classmethod
    def fit(cls, texts: Texts, config: NgramConfig, num_classes: int = 2) -> tuple["Ngrams", Vectors, int]:
        """Return the vocabulary of `texts`, whose n-grams will have a weight for each of `num_classes`, and their vectors.

        The third value is the number of distinct n-grams that were found; the most frequent ones are kept. Of long data they
        are those of the first rows (MAX_COUNTED), and the vectors are those of the first rows (MAX_VALUES).
        """
        occurrences, count = [np.zeros(0, np.uint64)], 0
        for block in row_blocks(texts):
            occurrences.append(hash_ngrams(block, config)[0])
            count += len(occurrences[-1])
            if count >= MAX_COUNTED:
                break
        hashes = np.concatenate(occurrences)
        del occurrences
        hashes.sort()
        starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        frequency = np.diff(starts, append=len(hashes))
        keys = hashes[starts[np.sort(np.argsort(-frequency, kind="stable")[: max(1, KEPT_WEIGHTS // num_classes)])]]
        del hashes
        ngrams = cls(config, keys, np.ones(len(keys), np.float32))
        vectors = ngrams.count_first(texts)
        in_rows = np.zeros(len(keys), np.int64)
        for part, _ in parts_of(vectors):
            in_rows += np.bincount(part.columns, minlength=len(keys))
        rows = len(vectors.offsets) - 1
        ngrams.weights = ((1 + np.log((1 + rows) / (1 + in_rows))) ** IDF_POWER).astype(np.float32)
        ngrams.weigh_all(vectors)
        return ngrams, vectors, len(starts)

    def columns_of(self, hashes: Keys) -> NDArray[np.int64]:
        """Return the column (M,) of each of the `hashes` (M,) in the vocabulary, or -1 for an unknown n-gram."""
        bucket = (hashes >> self._shift).astype(np.int64)
        place, ends = self._starts[bucket], self._starts[bucket + 1]
        columns = np.full(len(hashes), -1)
        left = np.flatnonzero(place < ends)
        while len(left):  # a bucket has one key on average
            same = self.keys[place[left]] == hashes[left]
            columns[left[same]] = place[left[same]]
            left = left[~same]
            place[left] += 1
            left = left[place[left] < ends[left]]
        return columns

    def count(self, texts: Texts) -> Vectors:
        """Return how often each n-gram of the vocabulary occurs in each of `texts`: vectors (N, V) of 1 + ln tf."""
        found, rows = hash_ngrams(texts, self.config)
        columns, size = self.columns_of(found), max(1, len(self.keys))
        cells, counts = np.unique((rows * size + columns)[columns >= 0], return_counts=True)
        rows, columns = np.divmod(cells, size)
        offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=len(texts))))
        return Vectors(offsets, columns.astype(np.int32), (1 + np.log(counts)).astype(np.float32))

    def weigh(self, counts: Vectors) -> Vectors:
        """Return the TF-IDF vectors (N, V) of the `counts` of N rows."""
        values = counts.values * self.weights[counts.columns]
        rows = np.repeat(np.arange(len(counts.offsets) - 1), np.diff(counts.offsets))
        parts = rows * 2 + (self.keys[counts.columns] & np.uint64(1)).astype(np.int64)
        norms = np.sqrt(np.bincount(parts, values.astype(np.float64) ** 2))
        return counts._replace(values=(values / norms[parts]).astype(np.float32))

    def transform(self, texts: Texts) -> Vectors:
        """Return the TF-IDF vectors (N, V) of `texts`. A row without a known n-gram is zero."""
        return self.weigh(self.count(texts))

    def count_first(self, texts: Texts) -> Vectors:
        """Return `count` of the first of `texts`, as many as have MAX_VALUES values. No value is in memory twice."""
        lengths = sum(longest - shortest + 1 for shortest, longest in (self.config.characters, self.config.words))
        # At most two characters in lower case for each one (a Turkish capital I), and four spaces around two texts.
        size = min(MAX_VALUES, lengths * sum(2 * characters_read(row) + 4 for row in texts))
        columns, values = np.empty(size, np.int32), np.empty(size, np.float32)  # takes no memory before it is filled
        row_lengths, end = [np.zeros(1, np.int64)], 0
        for block in row_blocks(texts):
            counts = self.count(block)
            place = slice(end, end + len(counts.columns))
            if place.stop > size:
                break
            columns[place], values[place] = counts.columns, counts.values
            row_lengths.append(np.diff(counts.offsets))
            end = place.stop
        return Vectors(np.cumsum(np.concatenate(row_lengths)), columns[:end], values[:end])

    def weigh_all(self, counts: Vectors) -> None:
        """Replace the values of `counts` by those of TF-IDF, in place."""
        for part, place in parts_of(counts):
            counts.values[place] = self.weigh(part).values


def parts_of(vectors: Vectors) -> Iterator[tuple[Vectors, slice]]:
    """Yield blocks of the rows of `vectors`, which share their memory, and the place of their values."""
    for start in range(0, len(vectors.offsets) - 1, ROWS_AT_ONCE):
        offsets = vectors.offsets[start : start + ROWS_AT_ONCE + 1]
        place = slice(int(offsets[0]), int(offsets[-1]))
        yield Vectors(offsets - offsets[0], vectors.columns[place], vectors.values[place]), place


def characters_read(row: tuple[str, str | None]) -> int:
    """Return the number of characters of a row that are read."""
    return sum(min(len(text or ""), MAX_TEXT) for text in row)


def row_blocks(texts: Texts) -> Iterator[Texts]:
    """Divide `texts` into blocks that end after CHARACTERS_AT_ONCE characters or ROWS_AT_ONCE rows."""
    start = characters = 0
    for end, row in enumerate(texts, 1):
        characters += characters_read(row)
        if end - start == ROWS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield texts[start:end]
            start, characters = end, 0
    if start < len(texts):
        yield texts[start:]


def hash_ngrams(texts: Texts, config: NgramConfig) -> tuple[Keys, NDArray[np.int64]]:
    """Return the hash of every n-gram of every text (M,), and its row (M,)."""
    firsts = _hash_texts([row[0] for row in texts], config)
    pairs = np.array([row[1] is not None for row in texts], bool)
    if not pairs.any():
        return firsts
    seconds = _hash_texts([row[1] or "" for row in texts], config)
    in_row = [_mix(keys + row.astype(np.uint64) * _PRIME) for keys, row in (firsts, seconds)]
    marked = []
    for side, (keys, row) in enumerate((firsts, seconds)):
        own, both = np.uint64((FIRST_TEXT, SECOND_TEXT)[side]), np.uint64(BOTH_TEXTS)
        mark = np.where(np.isin(in_row[side], in_row[1 - side]), both, own)
        kind = keys & np.uint64(1)
        marked.append(np.where(pairs[row], _mix(keys + mark) & ~np.uint64(1) | kind, keys))
    return np.concatenate(marked), np.concatenate([firsts[1], seconds[1]])


def _hash_texts(texts: Sequence[str], config: NgramConfig) -> tuple[Keys, NDArray[np.int64]]:
    """Return the hash of every n-gram of every text (M,), and its row (M,)."""
    texts = [text[:MAX_TEXT].lower() for text in texts]
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for is_word, (shortest, longest) in enumerate((config.characters, config.words)):
        if not longest or not any(texts):
            continue
        if is_word:
            kind, within, units = 1, None, _words(texts)
        elif config.across_words:
            kind, within, units = 0, None, _characters(texts)
        else:
            spaced = [f" {' '.join(words)} " if (words := text.split()) else "" for text in texts]
            kind, within, units = 2, _SPACE, _characters(spaced)
        for length, found, row in _windows(*units, longest, within):
            if length >= shortest:
                keys.append(_mix(found + np.uint64((kind << 8) + length)) & ~np.uint64(1) | np.uint64(is_word))
                rows.append(row)
    return np.concatenate(keys), np.concatenate(rows)


def _characters(texts: Sequence[str]) -> tuple[Keys, NDArray[np.int64]]:
    """Return the code points of all texts, concatenated, and the length of each text."""
    joined = "".join(texts).encode("utf-32-le", errors="surrogatepass")
    return np.frombuffer(joined, np.uint32).astype(np.uint64), np.array([len(text) for text in texts])


def _words(texts: Sequence[str]) -> tuple[Keys, NDArray[np.int64]]:
    """Return hashes of the words and punctuation marks of all texts, concatenated, and their number in each text."""
    words = [word_pattern().findall(text) for text in texts]
    numbers: dict[str, int] = {}
    place = np.array([numbers.setdefault(word, len(numbers)) for found in words for word in found], np.int64)
    digests = b"".join(blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest() for word in numbers)
    return np.frombuffer(digests, "<u8")[place], np.array([len(found) for found in words])


def _windows(
    units: Keys, lengths: NDArray[np.int64], longest: int, within: int | None = None
) -> Iterator[tuple[int, Keys, NDArray[np.int64]]]:
    """Yield, for each n up to `longest`: n, the hashes of all n-grams that lie inside one text, and their rows.

    With `within` those that have this unit anywhere but first or last are left out.
    """
    count = len(units)
    row = np.repeat(np.arange(len(lengths)), lengths)
    starts, ends = np.arange(count), np.repeat(np.cumsum(lengths), lengths)
    if within is not None:  # an n-gram ends with the next such unit after its first one, at the latest
        following = np.minimum.accumulate(np.where(units == within, starts, count)[::-1])[::-1]
        ends = np.minimum(ends, np.append(following[1:], count) + 1)
    hashes = np.zeros(count, np.uint64)
    for length in range(1, longest + 1):
        inside = starts + length <= ends[starts]
        starts, hashes = starts[inside], hashes[inside]
        hashes = hashes * _PRIME + units[starts + length - 1] + np.uint64(1)
        yield length, hashes, row[starts]


def _mix(hashes: Keys) -> Keys:
    """Spread the bits (the finaliser of splitmix64; Steele, Lea & Flood, OOPSLA 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
