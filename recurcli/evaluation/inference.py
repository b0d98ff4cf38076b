"""Scores of many rows: batches of like length, given back in the rows' own order.

Shapes: N rows, C classes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax

from recurcli.data.batching import collate, sorted_batches
from recurcli.data.tokenizer import Tokens
from recurcli.errors import NumericError
from recurcli.model.device import Precision, autocast
from recurcli.model.models import Classifier


class Computation(NamedTuple):
    """Where and how a model computes."""

    device: torch.device
    precision: Precision
    batch_size: int = 64


def score_rows(
    model: Classifier, tokens: Tokens, computation: Computation, between: Callable[[], None] | None = None
) -> np.ndarray:
    """The class scores (N, C), float64, of all rows; `between` is called before each batch and may raise to stop.

    Raises NumericError if a score is not finite: such a model would still name a class.
    """
    scores = np.zeros((len(tokens), len(model.config.labels)))
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(computation.device, computation.precision):
            for rows in sorted_batches(tokens.lengths, computation.batch_size):
                if between is not None:
                    between()
                ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
                batch, _ = model(ids.to(computation.device), mask.to(computation.device))
                scores[rows] = batch.double().cpu().numpy()
    finally:
        model.train(was_training)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise NumericError(f"row {row}: the model's scores are not finite")
    return scores


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Softmax of the scores (N, C); for a model trained with the hinge loss they rank, and are not calibrated."""
    return np.exp(log_softmax(scores, axis=1))


def cross_entropy(scores: np.ndarray, targets: np.ndarray) -> float:
    """Mean of -log p(right class), with p the softmax of the scores: (N, C), (N,) -> nats."""
    return float(-log_softmax(scores, axis=1)[np.arange(len(targets)), targets].mean())
