"""TF-IDF of character and word n-grams: which n-grams are counted, their vocabulary, and the vectors of texts.

A 64-bit hash stands for an n-gram (`ngram_hashes`), so a vocabulary is a sorted array of numbers.
Shapes: N rows, V n-grams of the vocabulary, M occurrences of n-grams in a block.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recurcli.data.splits import separates_words
from recurcli.linear.features import ROWS_AT_ONCE, Vectors, Vocabulary, characters_read, row_blocks
from recurcli.linear.ngram_hashes import NgramConfig, Texts, hash_ngrams

MAX_COUNTED = 16_000_000
"""A vocabulary is that of rows with this many occurrences of n-grams. Ours: 0.4 GB and 2 s."""
MAX_VALUES = 50_000_000
"""Vectors are kept of rows with this many values, n-grams of a row. Ours: 0.3 GB."""
KEPT_WEIGHTS = 1 << 24
"""The most frequent n-grams are kept up to this number of n-grams x classes: 64 MB of weights. Ours: those of a
single row help too."""
FEW_WORDS = 2
"""Texts with at most this many words on average may have no n-grams of words. Ours; presets/RESULTS.md shows the gain."""
IDF_POWER = 1.3
"""Exponent of the inverse document frequency; ours: 1.0 is worse on Chinese and English texts."""


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


class Ngrams(Vocabulary):
    """A vocabulary that is fitted on texts.

    The value of an n-gram is (1 + ln tf) idf^IDF_POWER, idf = 1 + ln((1 + N) / (1 + df)). The n-grams of characters of a row
    have norm 1, and so have those of words [ours: one norm for both is worse]. The n-grams of a pair are of three sorts: in the
    first text only, in the second only, in both.
    """

    @classmethod
    def fit(
        cls, texts: Texts, config: NgramConfig, num_classes: int = 2, max_values: int | None = None
    ) -> tuple["Ngrams", Vectors, int]:
        """Return the vocabulary of `texts`, whose n-grams will have a weight for each of `num_classes`, and their vectors.

        The third value is the number of distinct n-grams that were found; the most frequent ones are kept. Of long data they
        are those of the first rows (MAX_COUNTED), and the vectors are those of the first rows (`max_values`; None: MAX_VALUES).
        """
        occurrences = array("Q")
        for block in row_blocks(texts):
            occurrences.frombytes(hash_ngrams(block, config)[0].tobytes())
            if len(occurrences) >= MAX_COUNTED:
                break
        hashes = np.asarray(occurrences)
        hashes.sort()
        starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        frequency, most = np.diff(starts, append=len(hashes)), max(1, KEPT_WEIGHTS // num_classes)
        least = np.partition(frequency, -most)[-most] if len(frequency) > most else 0
        kept = frequency > least
        kept[np.flatnonzero(frequency == least)[: most - int(kept.sum())]] = True
        distinct_ngrams, keys = len(starts), hashes[starts[kept]]
        del hashes, occurrences, starts, frequency
        ngrams = cls(config, keys, np.ones(len(keys), np.float32))
        vectors = ngrams.count_first(texts, MAX_VALUES if max_values is None else max_values)
        in_rows = np.zeros(len(keys), np.int64)
        for part, _ in parts_of(vectors):
            in_rows += np.bincount(part.columns, minlength=len(keys))
        rows = len(vectors.offsets) - 1
        ngrams.weights = ((1 + np.log((1 + rows) / (1 + in_rows))) ** IDF_POWER).astype(np.float32)
        ngrams.weigh_all(vectors)
        return ngrams, vectors, distinct_ngrams

    def count_first(self, texts: Texts, max_values: int) -> Vectors:
        """Return `count` of the first of `texts`, as many as have `max_values` values. No value is in memory twice."""
        lengths = sum(longest - shortest + 1 for shortest, longest in (self.config.characters, self.config.words))
        # At most two characters in lower case for each one (a Turkish capital I), and four spaces around two texts.
        size = 0
        for row in texts:
            if (size := min(max_values, size + lengths * (2 * characters_read(row) + 4))) == max_values:
                break
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
        for own in (columns, values):
            own.resize(end, refcheck=False)  # SciPy would copy a view of a much larger array
        return Vectors(np.cumsum(np.concatenate(row_lengths)), columns, values)

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
