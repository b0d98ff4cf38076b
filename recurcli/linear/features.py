"""The features of texts in the linear model, TF-IDF of n-grams and sums of the static vectors of tokens, and their logits.

`recur export` copies this file beside ngram_hashes.py, so it imports numpy alone. Shapes: N rows, V n-grams of the vocabulary,
C logits of a row; K tokens of the table, M tokens of all texts, S the size of a vector, F the features of a row: S, or 4 S for
a pair.
"""

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.ngram_hashes import MAX_TEXT, Columns, Keys, NgramConfig, Texts, hash_ngrams
from recurcli.tokens.word_tokens import WordTokens, encodable

ROWS_AT_ONCE = 4096
"""A block ends after this many rows, however short they are."""
CHARACTERS_AT_ONCE = 1 << 16
"""A block of rows ends after this many characters, which bounds the memory of its n-grams."""
NARROW = 16
"""Bags of rows of at most this size are added up with one call of numpy. Ours: for wider rows that takes longer."""
LONG_BAG = 64
"""A bag of more items is added up alone. Ours: of shorter ones the calls of numpy take longer than the sums."""
CHARACTERS_OF_CACHE = 1 << 14
"""A block of rows with as many characters is worth the cache of words, which takes 0.1 s to make [ours]."""
VALUES_AT_ONCE = 1 << 16
"""Shorter bags are added up together, with at most this many values, which stay in a processor's cache [ours]."""


class Vectors(NamedTuple):
    """Sparse rows: row i has the `values` at `columns` between offsets[i] and offsets[i + 1]."""

    offsets: NDArray[np.int64]
    """(N + 1,)"""
    columns: NDArray[np.int32]
    """Ascending within a row."""
    values: NDArray[np.float32]


class Vocabulary:
    """A vocabulary of n-grams, and the TF-IDF vectors of texts over it (see `Ngrams`)."""

    def __init__(self, config: NgramConfig, keys: Keys, weights: NDArray[np.float32]) -> None:
        self.config = config
        self.keys = keys
        """The hashes (V,) of the n-grams, ascending. The lowest bit is 1 for an n-gram of words."""
        self.weights = weights
        """idf^IDF_POWER of each n-gram (V,)."""
        self._is_words = (keys & np.uint64(1)).astype(bool)
        self.columns_of = Columns(keys).of
        self.counted = self.unknown = 0
        """The n-grams that `count` has met so far, and how many of them are not in the vocabulary."""

    def count(self, texts: Texts) -> Vectors:
        """Return how often each n-gram of the vocabulary occurs in each of `texts`: vectors (N, V) of 1 + ln tf."""
        found, rows = hash_ngrams(texts, self.config)
        columns, bits = self.columns_of(found), len(self.keys).bit_length()
        self.counted, self.unknown = self.counted + len(columns), self.unknown + int((columns < 0).sum())
        cells = (rows << bits | columns)[columns >= 0]
        cells.sort()
        firsts = np.flatnonzero(np.append(True, cells[1:] != cells[:-1])[: len(cells)])
        counts, cells = np.diff(firsts, append=len(cells)).astype(np.float32), cells[firsts]
        offsets = np.searchsorted(cells, np.arange(len(texts) + 1) << bits)
        return Vectors(offsets, (cells & (1 << bits) - 1).astype(np.int32), 1 + np.log(counts))

    def unknown_share(self, texts: Texts, *, fitted: bool = False) -> float:
        """Return the share of the n-grams of `texts` that are unknown; of texts that were `fitted`, the rarest ones too."""
        found = [self.columns_of(hash_ngrams(block, self.config)[0]) for block in row_blocks(texts)]
        columns = np.concatenate([np.zeros(0, np.int64), *found])
        rare = fitted & (self.weights[columns] >= self.weights.max())
        return float(((columns < 0) | rare).sum() / max(1, len(columns)))

    def weigh(self, counts: Vectors) -> Vectors:
        """Return the TF-IDF vectors (N, V) of the `counts` of N rows."""
        values = counts.values * self.weights[counts.columns]
        rows = np.repeat(np.arange(len(counts.offsets) - 1), np.diff(counts.offsets))
        parts = rows * 2 + self._is_words[counts.columns]
        norms = np.sqrt(np.bincount(parts, np.square(values, dtype=np.float64))).astype(np.float32)
        return counts._replace(values=values / norms[parts])

    def transform(self, texts: Texts) -> Vectors:
        """Return the TF-IDF vectors (N, V) of `texts`. A row without a known n-gram is zero."""
        return self.weigh(self.count(texts))


class Tokens(NamedTuple):
    """The tokens of N texts: those of text i are ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.uint16] | NDArray[np.int32]
    """(M,)"""
    offsets: NDArray[np.int32]
    """(N + 1,)"""


class VectorTable:
    """A table of the vectors of tokens, in 8 bits a value with one scale a token, and its tokenizer."""

    def __init__(self, values: NDArray[np.int8], scales: NDArray[np.float32], backend: Any) -> None:
        self.values, self.scales = values, scales
        """(K, S) and (K,): the vector of a token is its scale times its values."""
        self.backend = backend
        """A `tokenizers.Tokenizer`."""
        self.backend.encode_special_tokens = True  # the name of a special token in a text is text

    @cached_property
    def table(self) -> NDArray[np.float32]:
        """The vectors (K, S)."""
        return self.values * self.scales[:, None]

    @property
    def _kind(self) -> str:
        """The type of ids: two bytes each where they fit, of which a million short texts have 50 MB."""
        return "H" if len(self.values) <= 1 << 16 else "i"

    @cached_property
    def _words(self) -> WordTokens | None:
        return WordTokens.of(self.backend, self._kind)

    def tokenize(self, texts: Texts) -> list[Tokens]:
        """Return the tokens of the rows' first texts; of pairs, those of their second texts too."""
        return [self._tokenize(texts, side) for side in range(1 + any(row[1] is not None for row in texts))]

    def _tokenize(self, texts: Texts, side: int) -> Tokens:
        ids, lengths = array(self._kind), array("i", [0])
        for block in row_blocks(texts):
            own = [encodable((row[side] or "")[:MAX_TEXT]) for row in block]
            if sum(map(len, own)) >= CHARACTERS_OF_CACHE and self._words is not None:
                found, counts = self._words.tokens(own)
                ids.frombytes(found)
                lengths.extend(counts.tolist())
                continue
            for encoding in self.backend.encode_batch_fast(own, add_special_tokens=False):
                ids.extend(encoding.ids)
                lengths.append(len(encoding))
        return Tokens(np.frombuffer(ids, self._kind), np.cumsum(np.frombuffer(lengths, np.int32), dtype=np.int32))

    def features(self, sides: Sequence[Tokens], rows: slice = slice(None)) -> NDArray[np.float32]:
        """Return the features (N, F) of `rows` whose texts have the tokens `sides`: v, each vector scaled to norm 1.

        For pairs with the vectors u and v: u, v, |u - v| and u * v.
        """
        parts = []
        for ids, offsets in sides:
            own = offsets[rows.start or 0 : None if rows.stop is None else rows.stop + 1]
            parts.append(unit(bag_sums(own - own[0], ids[own[0] : own[-1]], self.table)))  # as those of the means
        if len(parts) == 2:
            parts += [unit(np.abs(parts[0] - parts[1])), unit(parts[0] * parts[1])]
        return np.concatenate(parts, axis=1)


def ngram_logits(texts: Texts, vocabulary: Vocabulary, weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the part (N, C) of the logits that the n-grams have with the `weights` (V, C)."""
    vectors = map(vocabulary.transform, row_blocks(texts))
    parts = (bag_sums(each.offsets, each.columns, weights, each.values) for each in vectors)
    return np.concatenate([np.zeros((0, weights.shape[1])), *parts])


def vector_logits(texts: Texts, table: VectorTable, weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the part (N, C) of the logits that the static vectors have with the `weights` (F, C)."""
    parts = (table.features(table.tokenize(block)) @ weights.astype(np.float64) for block in row_blocks(texts))
    return np.concatenate([np.zeros((0, weights.shape[1])), *parts])


def bag_sums(
    offsets: NDArray[np.integer],
    rows: NDArray[np.integer],
    table: NDArray[np.float32],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return for each bag the sum (N, S) of the rows of `table` (K, S) that it has, times their `weights` (M,) or 1.

    Bag i has rows[offsets[i] : offsets[i + 1]]. Its sum does not depend on the other bags.
    """

    def taken(items: Any) -> NDArray[np.float32]:
        own = table.take(rows[items], axis=0)
        return own if weights is None else own * weights[items, None]

    lengths = np.diff(offsets)
    found = np.zeros((len(lengths), table.shape[1]), np.float32)
    if table.shape[1] <= NARROW and len(rows):
        full = np.flatnonzero(lengths)
        found[full] = np.add.reduceat(taken(slice(None)), offsets[full])
        return found
    order, at_once = np.argsort(-lengths, kind="stable"), max(1, VALUES_AT_ONCE // table.shape[1])
    num_long = int((lengths > LONG_BAG).sum())
    for bag in order[:num_long].tolist():
        found[bag] = taken(slice(offsets[bag], offsets[bag + 1])).sum(axis=0)
    for start in range(num_long, len(order), at_once):
        bags = order[start : start + at_once]  # the longest first
        firsts, left, total = offsets[bags], lengths[bags], np.zeros((len(bags), table.shape[1]), np.float32)
        for place in range(left[0]):  # the items at this place of all bags that have one
            at = firsts[: int((left > place).sum())] + place
            total[: len(at)] += taken(at)
        found[bags] = total
    return found


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors (N, S) scaled to norm 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


def characters_read(row: tuple[str, str | None]) -> int:
    """Return the number of characters of a row that are read."""
    first, second = row
    return min(len(first), MAX_TEXT) + (0 if second is None else min(len(second), MAX_TEXT))


def row_blocks(texts: Texts) -> Iterator[Texts]:
    """Divide `texts` into blocks that end after CHARACTERS_AT_ONCE characters or ROWS_AT_ONCE rows."""
    block, characters = list[tuple[str, str | None]](), 0
    for row in texts:
        block.append(row)
        characters += characters_read(row)
        if len(block) == ROWS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield block
            block, characters = [], 0
    if block:
        yield block
