"""Scores of many rows: batches of like length, given back in the rows' own order.

Shapes: N rows, C classes.
"""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import NumericError
from recurcli.model.device import Precision, autocast
from recurcli.model.models import Classifier
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.tokenizer import Tokens


class InferenceConfig(NamedTuple):
    """Where and how a model computes."""

    device: torch.device
    precision: Precision
    batch_size: int = 64
    ranks: Ranks = SINGLE_PROCESS
    """The processes to which the batches are dealt."""


def logits_by_batch(
    model: Classifier, tokens: Tokens, computation: InferenceConfig
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers (b,) and their class scores (b, C), float64, a batch at a time: every row once, the longest first.

    Of several processes each has every size-th batch, and as many as the others: there may be no rows in the last.
    The model is in evaluation mode while a batch is computed, and as it was between two of them. Raises NumericError
    if a score is not finite: such a model would still name a class.
    """
    ranks, batches = computation.ranks, sorted_batches(tokens.lengths, computation.batch_size)
    for turn in range(0, len(batches), ranks.world_size):
        if turn + ranks.rank >= len(batches):
            yield np.zeros(0, np.int64), np.zeros((0, len(model.config.labels)))
            continue
        rows = batches[turn + ranks.rank]
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


def predict_logits(
    model: Classifier, tokens: Tokens, computation: InferenceConfig, between: Callable[[], None] | None = None
) -> np.ndarray:
    """The class scores (N, C), float64, of all rows; `between` is called before, between and after batches, and
    may raise to stop.

    Raises NumericError if a score is not finite.
    """
    if between is not None:
        between()
    steps = scoring(model, tokens, computation)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if between is not None:
            between()


def scoring(model: Classifier, tokens: Tokens, computation: InferenceConfig) -> Generator[int, None, np.ndarray]:
    """As `predict_logits`, as a generator that yields how many rows are done after each batch, by all processes."""
    scores = np.zeros((len(tokens), len(model.config.labels)))
    done = 0
    for rows, batch in logits_by_batch(model, tokens, computation):
        scores[rows] = batch
        done = min(done + computation.batch_size * computation.ranks.world_size, len(tokens))
        yield done
    return computation.ranks.combine(scores)


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Softmax of the scores (N, C); for a model trained with the hinge loss they rank, and are not calibrated."""
    return torch.from_numpy(scores).softmax(dim=1).numpy()


def cross_entropy(scores: np.ndarray, targets: np.ndarray) -> float:
    """Mean of -log p(right class), with p the softmax of the scores: (N, C), (N,) -> nats."""
    return float(F.cross_entropy(torch.from_numpy(scores), torch.from_numpy(targets)))
