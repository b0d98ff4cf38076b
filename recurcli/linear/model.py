"""The linear classifier on TF-IDF vectors of character and word n-grams, and the ensemble that joins it with an encoder.

Both are trained apart on the training rows, so the encoder is that of a run without an ensemble. Shapes: N rows, V n-grams of
the vocabulary, C classes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.errors import pluralize
from recurcli.files import OpenedFile, naming_damage, stored_arrays
from recurcli.linear.ngrams import NgramConfig, Ngrams, Texts, row_blocks

Logits = NDArray[np.float64]


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
    """One weight for each n-gram and class, fitted on so many `rows`: logits = tfidf(text) W + b, W (V, C), b (C,)."""

    ngrams: Ngrams
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    rows: int
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

    def logits(self, texts: Texts) -> Logits:
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
        with naming_damage(file.path):
            tensors = stored_arrays(file)
            characters, words = (tuple(pair) for pair in tensors["ranges"].tolist())
            config = NgramConfig(characters=characters, words=words, across_words=bool(tensors["across_words"][0]))
            accuracy, rows = tensors["cross_validation"].tolist()
            c = float(tensors["c"][0])
            solver: Literal["LinearSVC", "SGD"] = "LinearSVC" if c else "SGD"
            hyperparameters = Hyperparameters(config, c, solver, accuracy if rows else None, int(rows))
            ngrams = Ngrams(config, tensors["keys"], tensors["idf"])
            weights, bias = tensors["weights"], tensors["bias"]
            if weights.shape != (len(ngrams.keys), len(bias)):
                raise ValueError(f"weights {weights.shape} are not those of its n-grams and classes")
            return cls(
                ngrams, weights, bias, int(tensors["rows"][0]), int(tensors["distinct_ngrams"][0]), hyperparameters
            )


@dataclass(frozen=True)
class Ensemble:
    """The linear model, and the weights of encoder and linear model in the sum of their logits."""

    linear: LinearModel
    encoder_weight: float
    """0 if the kept model is the linear model."""
    linear_weight: float
    """0 if the kept model is the encoder."""
    rows: int
    """Number of dev rows on which the weights were fitted."""
    linear_alone_weight: float
    """The weight of the linear model where it is used without the encoder (`--fast`). It is larger than `linear_weight`."""

    def join(self, encoder: Logits | None, linear: Logits) -> Logits:
        """Return the weighted sum of the logits (N, C) of encoder and linear model; None: the encoder has the weight 0."""
        return (
            self.linear_weight * linear
            if encoder is None
            else self.encoder_weight * encoder + self.linear_weight * linear
        )

    def without_encoder(self) -> "Ensemble":
        """Return the linear model with its own weight."""
        return replace(self, encoder_weight=0.0, linear_weight=self.linear_alone_weight)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ensemble.json: the kind, the weights, and the rows on which they were fitted."""
        return {
            "kind": "linear",
            "encoder_weight": self.encoder_weight,
            "linear_weight": self.linear_weight,
            "linear_alone_weight": self.linear_alone_weight,
            "fitted_on": "dev",
            "rows": self.rows,
        }
