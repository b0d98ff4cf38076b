"""The linear classifier on TF-IDF vectors of character and word n-grams. Shapes: N rows, V n-grams of
the vocabulary, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.errors import pluralize
from recurcli.files import OpenedFile, naming_damage, stored_arrays
from recurcli.linear.features import ngram_logits, vector_logits
from recurcli.linear.ngram_hashes import NgramConfig, Texts
from recurcli.linear.ngrams import Ngrams
from recurcli.linear.static_vectors import StaticVectors

Logits = NDArray[np.float64]
SHARE_ROWS = 1000


@dataclass(frozen=True)
class Hyperparameters:
    """The n-grams, the solver and its C of a linear model."""

    ngrams: NgramConfig
    c: float
    solver: str | None = None
    """`Target.linear_solver`, or SGD on large data; None: not chosen. SGD does not read C."""
    score: float | None = None
    """The target's headline metric in cross-validation; None: nothing was chosen by it."""
    rows: int = 0
    """Number of training rows of the cross-validation."""
    vectors: str | None = None
    """The source of the static vectors; None: the model has none."""
    vector_scale: float = 0.0
    """The norm of their features."""


@dataclass(frozen=True)
class LinearModel:
    """Weights for each n-gram and class, and for each feature of static vectors: logits = tfidf(text) W + v U + b.

    It was fitted on so many `rows`. W (V, C), U (F, C), b (C,).
    """

    ngrams: Ngrams
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    rows: int
    distinct_ngrams: int
    """Number of distinct n-grams of the training rows. The most frequent ones were kept."""
    hyperparameters: Hyperparameters
    """The n-grams, the solver and C with which the model was fitted."""
    vectors: StaticVectors | None = None
    vector_weights: NDArray[np.float32] | None = None
    """U (F, C), with `vectors`: the features of norm 1 have the weights U."""

    @property
    def parameters(self) -> int:
        """The number of fitted weights."""
        return sum(array.size for array in (self.weights, self.vector_weights, self.bias) if array is not None)

    def facts(self, texts: Texts) -> dict[str, Any]:
        """Return the facts for result.json: numbers of training rows and weights, the n-grams, the vectors, the solver and C.

        The `share` of the vectors is theirs in the difference of the logits of the best two classes, as the mean of the first
        SHARE_ROWS of `texts`.
        """
        config, found = self.ngrams.config, self.hyperparameters
        return {
            "rows": self.rows,
            "parameters": self.parameters,
            "ngrams": len(self.ngrams.keys),
            "characters": list(config.characters),
            "words": list(config.words),
            "across_words": config.across_words,
            "solver": found.solver,
            "c": None if found.solver == "SGD" else found.c,
            "cross_validation": None if found.score is None else {"score": found.score, "rows": found.rows},
            "vectors": self.vectors
            and {**self.vectors.about, "scale": found.vector_scale, "share": self._vector_share(texts[:SHARE_ROWS])},
        }

    def _vector_share(self, texts: Texts) -> float:
        logits, of_vectors = self.logits(texts), self.vector_logits(texts)
        best = np.argsort(logits, axis=1)[:, -2:]
        total, own = (np.take_along_axis(part, best, 1) for part in (logits, of_vectors))
        if logits.shape[1] > 1:
            total, own = np.diff(total, axis=1), np.diff(own, axis=1)
        return float((np.abs(own) / np.maximum(np.abs(own) + np.abs(total - own), 1e-12)).mean())

    def in_words(self, rows: int) -> str:
        """Describe the model in words: its n-grams, its solver, and how many of the `rows` training rows were used."""
        config, kept = self.ngrams.config, len(self.ngrams.keys)
        kinds = {"characters": config.characters, "words": config.words}
        sorts = " and ".join(f"{name} {low}-{high}" for name, (low, high) in kinds.items() if high)
        inside = "" if config.across_words else " inside words"
        ngrams = pluralize(kept, "n-gram", of=None if kept == self.distinct_ngrams else self.distinct_ngrams)
        used = pluralize(self.rows, "row", of=None if self.rows == rows else rows)
        sgd = self.hyperparameters.solver == "SGD"
        solver = "by SGD, which is faster on so many" if sgd else f"C {self.hyperparameters.c:g}"
        vectors = f", vectors of {self.vectors.name} x {self.hyperparameters.vector_scale:g}" if self.vectors else ""
        return f"{ngrams} of {sorts}{inside} in {used}{vectors}, {solver}"

    def logits(self, texts: Texts) -> Logits:
        """Return the logits (N, C) of `texts`."""
        return ngram_logits(texts, self.ngrams, self.weights) + self.bias + self.vector_logits(texts)

    def vector_logits(self, texts: Texts) -> Logits:
        """Return the part (N, C) of the logits of `texts` that comes from their static vectors; zeros without any."""
        if self.vectors is None or self.vector_weights is None:
            return np.zeros((len(texts), len(self.bias)))
        return vector_logits(texts, self.vectors, self.vector_weights)

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
            "c": np.array([found.c], np.float64),
            "solver": np.frombuffer((found.solver or "").encode(), np.uint8),
            "cross_validation": np.array([found.score or 0.0, found.rows], np.float64),
        }
        if self.vectors is not None and self.vector_weights is not None:
            digest = np.frombuffer(bytes.fromhex(self.vectors.digest), np.uint8)
            tensors |= {"vector_weights": self.vector_weights, "vectors": digest}
            tensors["vector_scale"] = np.array([found.vector_scale], np.float64)
        return save(tensors)

    @classmethod
    def load(cls, file: OpenedFile, read_vectors: Callable[[], StaticVectors] | None = None) -> "LinearModel":
        """Read a linear model that `to_bytes` stored. `read_vectors` is called if the model has static vectors.

        Raises ModelError for any other file, and for other vectors than those that the model was fitted with.
        """
        with naming_damage(file.path):
            tensors, vectors = stored_arrays(file), None
            if "vectors" in tensors:
                vectors = None if read_vectors is None else read_vectors()
                if vectors is None or tensors["vectors"].tobytes().hex() != vectors.digest:
                    raise ValueError("its static vectors are not those that it was fitted with")
            characters, words = (tuple(pair) for pair in tensors["ranges"].tolist())
            config = NgramConfig(characters=characters, words=words, across_words=bool(tensors["across_words"][0]))
            score, rows = tensors["cross_validation"].tolist()
            c, solver = float(tensors["c"][0]), tensors["solver"].tobytes().decode()
            source, scale = (vectors.source, float(tensors["vector_scale"][0])) if vectors else (None, 0.0)
            hyperparameters = Hyperparameters(config, c, solver, score if rows else None, int(rows), source, scale)
            ngrams = Ngrams(config, tensors["keys"], tensors["idf"])
            weights, bias = tensors["weights"], tensors["bias"]
            if weights.shape != (len(ngrams.keys), len(bias)):
                raise ValueError(f"weights {weights.shape} are not those of its n-grams and classes")
            used, distinct = (int(tensors[name][0]) for name in ("rows", "distinct_ngrams"))
            own = tensors.get("vector_weights")
            if own is not None and own.shape[1:] != bias.shape:
                raise ValueError(f"weights {own.shape} of the vectors are not those of {len(bias)} classes")
            return cls(ngrams, weights, bias, used, distinct, hyperparameters, vectors, own)
