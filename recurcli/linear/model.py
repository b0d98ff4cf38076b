"""A linear classifier on n-grams: the baseline that a trained encoder has to beat, and a part of a model with an ensemble.

Shapes: N rows, V n-grams, C classes.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.errors import DataError, ModelError, escaped
from recurcli.interruptible import interruptible
from recurcli.linear.ngrams import (
    CHARACTERS_AT_ONCE,
    OLDER_SECOND_TEXT,
    NgramConfig,
    Ngrams,
    Texts,
    characters_read,
    choose_ngrams,
    row_blocks,
)

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
