"""Scores of many rows: batches of like length, given back in the rows' own order.

Shapes: N rows, C classes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

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


def score_batches(
    model: Classifier, tokens: Tokens, computation: Computation
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers (b,) and their class scores (b, C), float64, a batch at a time: every row once, the longest first.

    The model is in evaluation mode while a batch is computed, and as it was between two of them. Raises NumericError
    if a score is not finite: such a model would still name a class.
    """
    for rows in sorted_batches(tokens.lengths, computation.batch_size):
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), autocast(computation.device, computation.precision):
                ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
                batch, _ = model(ids.to(computation.device), mask.to(computation.device))
                scores = batch.double().cpu().numpy()
        finally:
            model.train(was_training)
        if not np.isfinite(scores).all():
            raise NumericError(f"row {rows[~np.isfinite(scores).all(axis=1)][0]}: the model's scores are not finite")
        yield rows, scores


def score_rows(
    model: Classifier, tokens: Tokens, computation: Computation, between: Callable[[], None] | None = None
) -> np.ndarray:
    """The class scores (N, C), float64, of all rows; `between` is called before, between and after batches, and
    may raise to stop.

    Raises NumericError if a score is not finite.
    """
    scores = np.zeros((len(tokens), len(model.config.labels)))
    if between is not None:
        between()
    for rows, batch in score_batches(model, tokens, computation):
        scores[rows] = batch
        if between is not None:
            between()
    return scores


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Softmax of the scores (N, C); for a model trained with the hinge loss they rank, and are not calibrated."""
    return torch.from_numpy(scores).softmax(dim=1).numpy()


def cross_entropy(scores: np.ndarray, targets: np.ndarray) -> float:
    """Mean of -log p(right class), with p the softmax of the scores: (N, C), (N,) -> nats."""
    return float(F.cross_entropy(torch.from_numpy(scores), torch.from_numpy(targets)))
