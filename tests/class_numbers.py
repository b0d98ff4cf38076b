"""The functions that take a target, for tests whose labels are class numbers in a list or an array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recurcli.evaluation import decision
from recurcli.linear import ensemble, fitting, out_of_fold
from recurcli.linear.model import Hyperparameters, LinearModel
from recurcli.metrics import classification_report
from recurcli.targets import OneLabel
from recurcli.targets.target import LinearWeights, Logits, Probabilities

Classes = Any
"""Class numbers (N,)."""


def numbered(classes: int) -> OneLabel:
    """Classes that are named by their numbers from 0."""
    return OneLabel(tuple(map(str, range(classes))))


def fit_model(texts: Any, targets: Classes, classes: int, *more: Any, **keys: Any) -> LinearModel:
    return fitting.fit_model(texts, np.asarray(targets), numbered(classes), *more, **keys)


def fit_linear_model(texts: Any, targets: Classes, classes: int, *more: Any) -> LinearModel:
    return fitting.fit_linear_model(texts, np.asarray(targets), numbered(classes), *more)


def refit_linear_model(model: LinearModel, texts: Any, targets: Classes, *more: Any, **named: Any) -> LinearModel:
    return fitting.refit_linear_model(model, texts, np.asarray(targets), numbered(len(model.bias)), *more, **named)


def search_hyperparameters(texts: Any, targets: Classes, classes: int, *more: Any) -> Hyperparameters:
    return fitting.search_hyperparameters(texts, np.asarray(targets), numbered(classes), *more)


def out_of_fold_logits(texts: Any, targets: Classes, classes: int, *more: Any, **named: Any) -> Logits:
    return out_of_fold.out_of_fold_logits(texts, np.asarray(targets), numbered(classes), *more, **named)


def fit_svc(vectors: Any, targets: Classes, classes: int, *more: Any) -> LinearWeights:
    return numbered(classes).fit_linear(vectors, np.asarray(targets), *more)


def fit_weights(parts: Any, targets: Classes, *more: Any) -> Any:
    return ensemble.fit_weights(parts, targets, numbered(np.shape(parts)[2]), *more)


def standard_errors(weights: Any, parts: Any, targets: Classes, *more: Any) -> Any:
    return ensemble.standard_errors(weights, parts, targets, numbered(np.shape(parts)[2]), *more)


def fit_calibration(logits: Logits, targets: Classes, *more: Any) -> float:
    return ensemble.fit_calibration(logits, targets, numbered(logits.shape[1]), *more)


def choose(held_out: dict[str, Logits], targets: Classes, *more: Any) -> decision.Kept:
    return decision.choose(held_out, targets, numbered(next(iter(held_out.values())).shape[1]), *more)


def probabilities(logits: Logits, temperature: float = 1.0, rows: int = 0) -> Probabilities:
    return numbered(logits.shape[1]).probabilities(logits / temperature, rows)


def report(labels: Sequence[str], predictions: Sequence[str], names: Sequence[str], **named: Any) -> dict[str, Any]:
    """The `classification_report` of labels and predictions by name."""
    target = OneLabel(tuple(names))
    y, unknown = target.encode(labels), [label for label in labels if label not in names]
    return classification_report(y, target.encode(predictions), names, unknown=unknown, **named)
