"""Which n-grams a text has, and their 64-bit hashes. `recur export` copies this file, so it imports numpy alone.

All n-grams of many texts are hashed at once. Shapes: N rows, M occurrences of n-grams, K code points, W words.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Texts = Sequence[tuple[str, str | None]]
Keys = NDArray[np.uint64]
Numbers = NDArray[np.int64]

MAX_TEXT = 1 << 16
"""Characters of a text that are read; n-grams after them are not counted."""
PRIME = np.uint64(0x9E3779B97F4A7C15)
INVERSE = np.uint64(pow(int(PRIME), -1, 1 << 64))
FIRST_TEXT, SECOND_TEXT, BOTH_TEXTS = map(np.uint64, (0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B, 0xA54FF53A5F1D36F1))
"""Added to the hash of an n-gram of a pair that is in the first text only, in the second only, in both: the fractions of the
square roots of 5, 3 and 7, in 64 bits. With small numbers, a character of one text would have the hash of another one of the
other text."""
JOINERS = "\u200c\u200d"
"""Characters inside words and emoji (Unicode Standard Annex 29, "Extend" and ZWJ)."""
SPACE, WORD, MARK, OTHER = range(1, 5)
"""Kinds of characters: white space, a letter, digit or underscore, a combining mark or joiner, and any other."""
_KINDS = np.zeros(0x110000, np.uint8)
"""The kind of each code point that occurred. 0: it has not occurred yet."""


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """Which n-grams are counted. The range (0, 0) stands for none."""

    characters: tuple[int, int] = (0, 0)
    words: tuple[int, int] = (0, 0)
    across_words: bool = True
    """Whether n-grams of characters go across words. False: they lie in one word and a space before and after it, as those of
    scikit-learn's `char_wb`."""


class Columns:
    """The column of each n-gram of a vocabulary: the place of its hash among the ascending `keys` (V,)."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        bits = len(keys).bit_length() + 1  # two to four buckets a key
        self.shift = np.uint64(64 - bits)
        self.starts = np.zeros((1 << bits) + 1, np.int32)  # the first key with these leading bits
        np.cumsum(np.bincount((keys >> self.shift).astype(np.int64), minlength=1 << bits), out=self.starts[1:])

    def of(self, hashes: Keys) -> NDArray[np.int32]:
        """Return the column (M,) of each of the `hashes` (M,), or -1 for an unknown n-gram."""
        if not len(self.keys):
            return np.full(len(hashes), -1, np.int32)
        bucket = (hashes >> self.shift).astype(np.int64)
        columns = self.starts.take(bucket)
        left = np.flatnonzero(self.keys.take(columns, mode="clip") != hashes)
        place, ends = columns[left], self.starts[1:].take(bucket[left])
        columns[left] = -1
        while len(left):  # a bucket has few keys
            place += 1
            more = np.flatnonzero(place < ends)
            left, place, ends = left[more], place[more], ends[more]
            same = self.keys.take(place) == hashes[left]
            columns[left[same]] = place[same]
        return columns


def hash_ngrams(texts: Texts, config: NgramConfig) -> tuple[Keys, Numbers]:
    """Return the hash of every n-gram of every row (M,), and its row (M,). The lowest bit is 1 for an n-gram of words."""
    firsts = _hash_texts([row[0] for row in texts], config)
    pairs = np.array([row[1] is not None for row in texts], bool)
    if not pairs.any():
        return firsts
    seconds = _hash_texts([row[1] or "" for row in texts], config)
    in_row = [_mix(keys + row.astype(np.uint64) * PRIME) for keys, row in (firsts, seconds)]
    marked = []
    for side, (keys, row) in enumerate((firsts, seconds)):
        own = (FIRST_TEXT, SECOND_TEXT)[side]
        mark = np.where(np.isin(in_row[side], in_row[1 - side]), BOTH_TEXTS, own)
        kind = keys & np.uint64(1)
        marked.append(np.where(pairs[row], _mix(keys + mark) & ~np.uint64(1) | kind, keys))
    return np.concatenate(marked), np.concatenate([firsts[1], seconds[1]])


def _hash_texts(texts: Sequence[str], config: NgramConfig) -> tuple[Keys, Numbers]:
    """Return the hash of every n-gram of every text (M,), and its row (M,)."""
    texts = [text[:MAX_TEXT].lower() for text in texts]
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for is_word, (shortest, longest) in enumerate((config.characters, config.words)):
        if not longest or not any(texts):
            continue
        if is_word:
            kind, within, units = 1, None, _hash_words(texts)
        elif config.across_words:
            kind, within, units = 0, None, _characters(texts)
        else:
            spaced = [f" {' '.join(words)} " if (words := text.split()) else "" for text in texts]
            kind, within, units = 2, ord(" "), _characters(spaced)
        for length, found, row in _windows(*units, longest, within):
            if length >= shortest:
                keys.append(_mix(found + np.uint64((kind << 8) + length)) & ~np.uint64(1) | np.uint64(is_word))
                rows.append(row)
    return np.concatenate(keys), np.concatenate(rows)


def _characters(texts: Sequence[str]) -> tuple[Keys, Numbers]:
    """Return the code points (K,) of all texts, concatenated, and the length of each text (N,)."""
    return code_points("".join(texts)).astype(np.uint64), np.array([len(text) for text in texts])


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points (K,) of a text, lone surrogates too."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)


def _hash_words(texts: Sequence[str]) -> tuple[Keys, Numbers]:
    """Return the hashes of the words of all texts (W,), concatenated, and their number in each text (N,).

    That of the word c_0 c_1 … is the sum of (c_i + 1) PRIME^(i + 1): a difference of sums from the start of all texts.
    """
    codes = code_points("\n".join(texts))
    firsts, ends = _words(codes)
    powers, inverses = (np.multiply.accumulate(np.full(len(codes) + 1, base)) for base in (PRIME, INVERSE))
    sums = np.append(np.uint64(0), np.cumsum((codes + np.uint64(1)) * powers[1:]))
    of_text = np.searchsorted(firsts, np.cumsum([0, *(len(text) + 1 for text in texts)]))
    # mixed, since n-grams of words are sums of powers of the same number
    return _mix((sums[ends] - sums[firsts]) * inverses[firsts]), np.diff(of_text)


def word_spans(text: str) -> list[tuple[int, int]]:
    r"""Return the place of each word or punctuation mark of a text, each with its combining marks.

    The marks are vowel signs of Indic scripts, or accents; the pattern `\w` does not match them.
    """
    firsts, ends = _words(code_points(text))
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _words(codes: NDArray[np.uint32]) -> tuple[Numbers, Numbers]:
    """Return where the words and punctuation marks in `codes` (K,) begin and end (W,).

    A word consists of letters and digits, and of marks after its first one. Each other character is by itself, with the marks
    after it.
    """
    kinds = _KINDS.take(codes)
    if not kinds.all():
        for code in np.unique(codes[kinds == 0]).tolist():
            _KINDS[code] = kind_of(chr(code))
        kinds = _KINDS.take(codes)
    before = np.append(np.uint8(SPACE), kinds[:-1])[: len(kinds)]
    marks = kinds == MARK
    base = before
    if marks.any():  # the kind of the last character before this one that is not a mark
        last = np.maximum.accumulate(np.where(marks, -1, np.arange(len(kinds))))
        base = np.append(np.uint8(SPACE), np.where(last < 0, SPACE, kinds[last])[:-1])
    first_of_word, first_mark = (kinds == WORD) & (base != WORD), marks & (before == SPACE)
    inside, starts = kinds != SPACE, first_of_word | (kinds == OTHER) | first_mark
    return np.flatnonzero(starts), np.flatnonzero(inside & ~np.append((inside & ~starts)[1:], False)) + 1


def kind_of(character: str) -> int:
    if character.isalnum() or character == "_":
        return WORD
    if character.isspace():
        return SPACE
    return MARK if character in JOINERS or unicodedata.category(character).startswith("M") else OTHER


def _windows(
    units: Keys, lengths: Numbers, longest: int, within: int | None = None
) -> Iterator[tuple[int, Keys, Numbers]]:
    """Yield, for each n up to `longest`: n, the hashes of all n-grams that lie inside one text, and their rows.

    With `within` those that have this unit anywhere but first or last are left out.
    """
    count = len(units)
    row = np.repeat(np.arange(len(lengths)), lengths)
    starts, ends = np.arange(count), np.repeat(np.cumsum(lengths), lengths)
    if within is not None:  # an n-gram ends with the next such unit after its first one, at the latest
        following = np.minimum.accumulate(np.where(units == within, starts, count)[::-1])[::-1]
        ends = np.minimum(ends, np.append(following[1:], count) + 1)
    longest_here, units, hashes = ends - starts, units + np.uint64(1), np.zeros(count, np.uint64)
    for length in range(1, longest + 1):
        hashes = hashes[: count - length + 1] * PRIME + units[length - 1 :]
        inside = np.flatnonzero(longest_here[: len(hashes)] >= length)
        yield length, hashes[inside], row[inside]


def _mix(hashes: Keys) -> Keys:
    """Spread the bits (the finaliser of splitmix64; Steele, Lea & Flood, OOPSLA 2014)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
