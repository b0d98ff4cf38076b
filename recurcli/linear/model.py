"""TF-IDF of character and word n-grams, and the linear classifier on them.

It is the baseline that a trained encoder has to beat, and a part of a model with an ensemble. A 64-bit hash of its characters
or words stands for an n-gram, so a vocabulary is a sorted array of numbers. All n-grams of a block of texts are hashed at
once. Shapes: N rows, V n-grams of the vocabulary, M occurrences of n-grams in a block, C classes.
"""

import hashlib
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.data.values import separates_words
from recurcli.errors import DataError, ModelError, StorageError, escaped, pluralize
from recurcli.events import Note
from recurcli.files import cached
from recurcli.interruptible import interruptible

Texts = Sequence[tuple[str, str | None]]
Keys = NDArray[np.uint64]
Range = tuple[int, int]
"""Shortest and longest n-gram; (0, 0): none."""

ROWS_AT_ONCE = 4096
"""A block ends after this many rows, however short they are."""
CHARACTERS_AT_ONCE = 1 << 16
"""A block of rows ends after this many characters, which bounds the memory of its n-grams."""
COUNTED_AT_ONCE = 1 << 21
"""The same while a vocabulary is counted: each block costs a pass over the vocabulary so far."""
MAX_TEXT = 1 << 16
"""Characters of a text that are read; n-grams after them are not counted."""
KEPT_WEIGHTS = 1 << 24
"""The most frequent n-grams are kept up to this number of n-grams x classes: 64 MB of weights. Ours: without the n-grams of a
single row TNEWS lost 0.5 points."""
IDF_POWER = 1.3
"""Exponent of the inverse document frequency; ours: 1.0 lost 0.2 points on TNEWS and 0.3 on IMDb."""
FORMAT = 4
"""Version of the fitting; the cache does not reuse models of another version."""
SVC_C = 0.5
"""LinearSVC's C. Ours: against 1.0 it has an accuracy on dev rows of 56.9 for 56.4 on TNEWS (without n-grams of a single row),
50.0 for 49.1 on 5,400 rows of it, 71.8 for 72.0 on 5,400 rows of four classes, and 88.7 for 89.1 on 4,500 rows of IMDb."""
UNSEEN = -2.0
"""Logit of a class without training rows. LinearSVC's logits of a class that a row does not have are about -1. Ours."""
MAX_WEIGHTS = 100_000_000
"""Maximal number of weights, one for each n-gram and class. Ours: 0.4 GB, 0.8 GB while they are fitted."""
MAX_CHARACTERS = 40_000_000
"""Maximal number of characters of training text; of longer data, as many rows are drawn. Ours: a minute on one core."""
MAX_WEIGHT = 1e6
"""Largest weight that is read, far above any that is fitted; sums of such weights are finite."""
MAX_NGRAM = 16
"""Longest n-gram of a model that is read; `choose_ngrams` takes at most 4."""
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
        most_frequent = np.argsort(-counts, kind="stable")[: max(1, KEPT_WEIGHTS // num_classes)]
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


@dataclass(frozen=True)
class LinearModel:
    """One weight for each n-gram and class: logits = tfidf(text) W + b."""

    ngrams: Ngrams
    weights: NDArray[np.float32]
    """W (V, C)."""
    bias: NDArray[np.float32]
    """b (C,)."""
    rows: int
    """Number of training rows that were used."""

    @classmethod
    def fit(cls, texts: Texts, targets: Sequence[int], num_classes: int) -> "LinearModel":
        """Fit scikit-learn's LinearSVC (squared hinge, one against the rest) on TF-IDF vectors of `texts`.

        `targets` (N,) are class numbers. A class without a training row gets the logit UNSEEN. Raises DataError if all
        rows have one class, no text has an n-gram, or there would be more than MAX_WEIGHTS weights.
        """
        from scipy import sparse
        from sklearn.svm import LinearSVC

        labels = np.asarray(targets)
        share = MAX_CHARACTERS / max(1, sum(map(characters_read, texts)))
        if share < 1:
            chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[: int(share * len(texts))])
            texts, labels = [texts[row] for row in chosen], labels[chosen]
        classes = np.unique(labels)
        if len(classes) < 2:
            raise DataError("a linear model needs training rows of two classes")
        ngrams = Ngrams.fit(texts, choose_ngrams(texts), num_classes)
        if not len(ngrams.keys):
            raise DataError("a linear model needs texts, and all training texts are empty")
        if (weights_needed := len(ngrams.keys) * num_classes) > MAX_WEIGHTS:
            sizes = f"{len(ngrams.keys):,} n-grams and {num_classes:,} classes"
            raise DataError(f"it would have {weights_needed:,} weights for {sizes}; at most {MAX_WEIGHTS:,} are fitted")
        blocks = []
        for block in row_blocks(texts, CHARACTERS_AT_ONCE):
            offsets, columns, values = ngrams.transform(block)
            blocks.append(sparse.csr_matrix((values, columns, offsets), shape=(len(block), len(ngrams.keys))))
        vectors = sparse.vstack(blocks, format="csr")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about many classes, and about steps that did not converge
            solver = interruptible(partial(LinearSVC(C=SVC_C, random_state=0).fit, vectors, labels))
        weights, bias = solver.coef_, solver.intercept_
        if len(classes) == 2:  # one vector stands for both classes
            weights, bias = np.concatenate([-weights, weights]), np.concatenate([-bias, bias])
        all_weights = np.zeros((len(ngrams.keys), num_classes), np.float32)
        all_bias = np.full(num_classes, UNSEEN, np.float32)
        all_weights[:, classes], all_bias[classes] = weights.T, bias
        return cls(ngrams, all_weights, all_bias, len(texts))

    def facts(self) -> dict[str, Any]:
        """Return the facts for result.json: numbers of training rows and n-grams, shortest and longest n-gram."""
        config = self.ngrams.config
        return {
            "rows": self.rows,
            "ngrams": len(self.ngrams.keys),
            "characters": list(config.characters),
            "words": list(config.words),
        }

    def logits(self, texts: Texts) -> NDArray[np.float64]:
        """Return the logits (N, C) of `texts`."""
        weights, found = torch.from_numpy(self.weights), [np.zeros((0, len(self.bias)))]
        for block in row_blocks(texts, CHARACTERS_AT_ONCE):
            offsets, columns, values = map(torch.from_numpy, self.ngrams.transform(block))
            sums = F.embedding_bag(
                columns, weights, offsets, mode="sum", per_sample_weights=values, include_last_offset=True
            )
            found.append(sums.double().numpy() + self.bias)
        return np.concatenate(found)

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        from safetensors.numpy import save

        config = self.ngrams.config
        tensors = {
            "keys": self.ngrams.keys,
            "idf": self.ngrams.weights,
            "weights": self.weights,
            "bias": self.bias,
            "ranges": np.array([config.characters, config.words], np.int64),
            "rows": np.array([self.rows], np.int64),
            "second_text": np.array([config.second_text], np.uint64),
        }
        return save(tensors)

    @classmethod
    def load(cls, path: Path) -> "LinearModel":
        """Read a file with the content of `to_bytes`. Raises ModelError for any other file."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors = load_file(path)
            _check_tensors(tensors)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise ModelError(f"{path}: is not a linear model of recur: {escaped(error)}") from None
        characters, words = (tuple(pair) for pair in tensors["ranges"].tolist())
        second_text = int(tensors["second_text"][0]) if "second_text" in tensors else OLDER_SECOND_TEXT
        config = NgramConfig(characters=characters, words=words, second_text=second_text)
        ngrams = Ngrams(config, tensors["keys"], tensors["idf"])
        return cls(ngrams, tensors["weights"], tensors["bias"], int(tensors["rows"][0]))


def fit_linear_model(texts: Texts, targets: Sequence[int], num_classes: int) -> tuple[LinearModel | None, Note]:
    """Fit the linear model on the training rows, or read it from the cache if it was fitted on these rows before.

    Returns None and the reason if the rows cannot be learned from. A cache that cannot be written, or is locked, is not used.
    """
    fitted: list[LinearModel] = []
    digest = hashlib.sha256(repr((targets, num_classes)).encode())
    for row in texts:
        digest.update(repr(row).encode())
    started = time.perf_counter()

    def fit() -> LinearModel:
        fitted.append(LinearModel.fit(texts, targets, num_classes))
        return fitted[-1]

    def write(path: Path) -> dict[str, Any]:
        path.write_bytes(fit().to_bytes())
        return {}

    versions = [version(name) for name in ("scikit-learn", "numpy", "scipy")]
    note = ""
    try:
        try:
            path, _ = cached((FORMAT, versions, digest.hexdigest()), ".linear.safetensors", write, wait=False)
            model = fitted[0] if fitted else LinearModel.load(path)
        except (StorageError, ModelError) as error:
            model = fitted[0] if fitted else fit()
            note = f" (not cached: {error})"
    except DataError as error:
        return None, Note(f"no linear model beside the encoder: {error}")
    made = f"fitted in {time.perf_counter() - started:.1f} s{note}" if fitted else "from the cache"
    used = pluralize(model.rows, "row", of=None if model.rows == len(texts) else len(texts))
    return model, Note(f"linear model: {pluralize(len(model.ngrams.keys), 'n-gram')} of {used}, {made}")


def _check_tensors(tensors: Mapping[str, NDArray[Any]]) -> None:
    """Raise KeyError or ValueError if `tensors` have other types, shapes or values than those that are written.

    Their scores are then finite, and they need no more time than those of any other model.
    """
    size, classes = len(tensors["keys"].flat), len(tensors["bias"].flat)
    expected: dict[str, tuple[type, tuple[int, ...], float, float]] = {
        "keys": (np.uint64, (size,), 0, 2.0**64),
        "idf": (np.float32, (size,), 1e-3, MAX_WEIGHT),
        "weights": (np.float32, (size, classes), -MAX_WEIGHT, MAX_WEIGHT),
        "bias": (np.float32, (classes,), -MAX_WEIGHT, MAX_WEIGHT),
        "ranges": (np.int64, (2, 2), 0, MAX_NGRAM),
        "rows": (np.int64, (1,), 0, 2.0**63),
        "second_text": (np.uint64, (1,), 0, 2.0**64),
    }
    for name, (kind, shape, least, most) in expected.items():
        if name == "second_text" and name not in tensors:
            continue
        tensor = tensors[name]
        if tensor.dtype != kind or tensor.shape != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tensor.shape}, not {np.dtype(kind)} {shape}")
        if not ((tensor >= least) & (tensor <= most)).all():  # NaN is neither
            raise ValueError(f"{name} has values that are not between {least:g} and {most:g}")
    if not (tensors["keys"][1:] > tensors["keys"][:-1]).all():
        raise ValueError("keys must ascend")
