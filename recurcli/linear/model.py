"""The linear classifier on TF-IDF vectors of character and word n-grams.

A trained encoder is compared with it, and an ensemble joins the two. Shapes: N rows, V n-grams of the vocabulary, C classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.errors import ModelError, escaped, pluralize
from recurcli.files import OpenedFile, stored_arrays
from recurcli.linear.config import MAX_NGRAM
from recurcli.linear.ngrams import NgramConfig, Ngrams, Texts, row_blocks

MAX_WEIGHT = 1e6
"""Largest weight that is read, far above any that is fitted; sums of such weights are finite."""


@dataclass(frozen=True)
class Hyperparameters:
    """The n-grams, the solver and LinearSVC's C of a linear model."""

    ngrams: NgramConfig
    c: float
    solver: Literal["LinearSVC", "SGD"] | None = None
    """None: LinearSVC, or SGD on large data. SGD does not read C."""
    accuracy: float | None = None
    """Accuracy in cross-validation; None: nothing was chosen by it."""
    rows: int = 0
    """Number of training rows of the cross-validation."""


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
    distinct_ngrams: int
    """Number of distinct n-grams of the training rows. The most frequent ones were kept."""
    hyperparameters: Hyperparameters
    """The n-grams, the solver and C with which the model was fitted."""

    def facts(self) -> dict[str, Any]:
        """Return the facts for result.json: numbers of training rows and n-grams, the n-grams, the solver and its C."""
        config, found = self.ngrams.config, self.hyperparameters
        return {
            "rows": self.rows,
            "ngrams": len(self.ngrams.keys),
            "characters": list(config.characters),
            "words": list(config.words),
            "across_words": config.across_words,
            "solver": found.solver,
            "c": found.c if found.solver == "LinearSVC" else None,
            "cross_validation": None if found.accuracy is None else {"accuracy": found.accuracy, "rows": found.rows},
        }

    def in_words(self, rows: int) -> str:
        """Describe the model in words: its n-grams, its solver, and how many of the `rows` training rows were used."""
        config, kept = self.ngrams.config, len(self.ngrams.keys)
        kinds = {"characters": config.characters, "words": config.words}
        sorts = " and ".join(f"{name} {low}-{high}" for name, (low, high) in kinds.items() if high)
        inside = "" if config.across_words else " inside words"
        ngrams = pluralize(kept, "n-gram", of=None if kept == self.distinct_ngrams else self.distinct_ngrams)
        used = pluralize(self.rows, "row", of=None if self.rows == rows else rows)
        sgd = self.hyperparameters.solver == "SGD"
        solver = "by SGD, since LinearSVC takes too long for so many" if sgd else f"C {self.hyperparameters.c:g}"
        return f"{ngrams} of {sorts}{inside} in {used}, {solver}"

    def logits(self, texts: Texts) -> NDArray[np.float64]:
        """Return the logits (N, C) of `texts`."""
        weights, logits = torch.from_numpy(self.weights), [np.zeros((0, len(self.bias)))]
        for block in row_blocks(texts):
            offsets, columns, values = self.ngrams.transform(block)
            bags, ngrams, tfidf = map(torch.from_numpy, (offsets.astype(np.int32), columns, values))
            sums = F.embedding_bag(
                ngrams, weights, bags, mode="sum", per_sample_weights=tfidf, include_last_offset=True
            )
            logits.append(sums.double().numpy() + self.bias)
        return np.concatenate(logits)

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        from safetensors.numpy import save

        config, found = self.ngrams.config, self.hyperparameters
        tensors = {
            "keys": self.ngrams.keys,
            "idf": self.ngrams.weights,
            "weights": self.weights,
            "bias": self.bias,
            "ranges": np.array([config.characters, config.words], np.int64),
            "rows": np.array([self.rows], np.int64),
            "across_words": np.array([config.across_words], np.int64),
            "distinct_ngrams": np.array([self.distinct_ngrams], np.int64),
            "c": np.array([0.0 if found.solver == "SGD" else found.c], np.float64),  # 0 stands for SGD
            "cross_validation": np.array([found.accuracy or 0.0, found.rows], np.float64),
        }
        return save(tensors)

    @classmethod
    def load(cls, file: OpenedFile) -> "LinearModel":
        """Read a file with the content of `to_bytes`. Raises ModelError for any other file."""
        try:
            tensors = stored_arrays(file)
            _check_tensors(tensors)
        except (ModelError, KeyError, ValueError, TypeError) as error:
            fault = str(error).removeprefix(f"{file.path}: ")
            raise ModelError(f"{file.path}: is not a linear model of recur: {escaped(fault)}") from None
        characters, words = (tuple(pair) for pair in tensors["ranges"].tolist())
        config = NgramConfig(characters=characters, words=words, across_words=bool(tensors["across_words"][0]))
        accuracy, rows = tensors["cross_validation"].tolist()
        c = float(tensors["c"][0])
        hyperparameters = Hyperparameters(config, c, "LinearSVC" if c else "SGD", accuracy if rows else None, int(rows))
        ngrams = Ngrams(config, tensors["keys"], tensors["idf"])
        rows_used, distinct = (int(tensors[name][0]) for name in ("rows", "distinct_ngrams"))
        return cls(ngrams, tensors["weights"], tensors["bias"], rows_used, distinct, hyperparameters)


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
        "across_words": (np.int64, (1,), 0, 1),
        "distinct_ngrams": (np.int64, (1,), 0, 2.0**63),
        "c": (np.float64, (1,), 0, MAX_WEIGHT),
        "cross_validation": (np.float64, (2,), 0, 2.0**63),
    }
    for name, (kind, shape, least, most) in expected.items():
        tensor = tensors[name]
        if tensor.dtype != kind or tensor.shape != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tensor.shape}, not {np.dtype(kind)} {shape}")
        if not ((tensor >= least) & (tensor <= most)).all():  # NaN is neither
            raise ValueError(f"{name} has values that are not between {least:g} and {most:g}")
    if not (tensors["keys"][1:] > tensors["keys"][:-1]).all():
        raise ValueError("keys must ascend")
