"""Computes the logits of many rows in batches of similar length, and returns them in the order of the rows.

Shapes: N rows, b rows per batch, C classes.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from recurcli.data.tasks import Task
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import NumericError
from recurcli.evaluation.metrics import Report, classification_report
from recurcli.events import RowsDone, run_to_end
from recurcli.model.device import Precision, autocast
from recurcli.model.models import Classifier
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.tokenizer import Tokens


class InferenceConfig(NamedTuple):
    """Device, precision, batch size and processes of an inference."""

    device: torch.device
    precision: Precision
    batch_size: int = 64
    ranks: Ranks = SINGLE_PROCESS
    """The processes that share the batches."""


def logits_by_batch(
    model: Classifier, tokens: Tokens, config: InferenceConfig
) -> Generator[tuple[np.ndarray, np.ndarray], None, None]:
    """Yield the row numbers (b,) and float64 logits (b, C) of each batch; the longest rows come first.

    Each rank yields only its own batches. All ranks yield the same number of batches, so the last one may be empty. The
    model is in evaluation mode until the generator ends or is closed; then its previous mode is restored. Raises
    NumericError if a logit is not finite.
    """
    ranks, batches = config.ranks, sorted_batches(tokens.lengths, config.batch_size)
    was_training = model.training
    model.eval()  # once for all batches, because a change of mode clears every CachedMap
    try:
        for turn in range(0, len(batches), ranks.world_size):
            if turn + ranks.rank >= len(batches):
                yield np.zeros(0, np.int64), np.zeros((0, len(model.config.labels)))
                continue
            rows = batches[turn + ranks.rank]
            with torch.inference_mode(), autocast(config.device, config.precision):
                ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
                output, _ = model(ids.to(config.device), mask.to(config.device))
                logits = output.double().cpu().numpy()
            finite = np.isfinite(logits).all(axis=1)
            if not finite.all():
                raise NumericError(f"row {rows[~finite][0]}: the model's logits are not finite")
            yield rows, logits
    finally:
        model.train(was_training)


def predict_logits(
    model: Classifier, tokens: Tokens, config: InferenceConfig, between: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Return the float64 logits (N, C) of all rows.

    `between` is called before the first batch and after each batch; an exception that it raises ends the inference. Raises
    NumericError if a logit is not finite.
    """
    return run_to_end(iter_logits(model, tokens, config), between)


def iter_logits(
    model: Classifier, tokens: Tokens, config: InferenceConfig, *, total: int | None = None, before: int = 0
) -> Generator[RowsDone, None, np.ndarray]:
    """Return the logits as `predict_logits` does, and yield the number of finished rows after each batch.

    `before` is the number of rows that were finished earlier; `total` is the number of all rows; None: unknown.
    """
    logits = np.zeros((len(tokens), len(model.config.labels)))
    with contextlib.closing(logits_by_batch(model, tokens, config)) as batches:
        for count, (rows, batch) in enumerate(batches, 1):
            logits[rows] = batch
            yield RowsDone(before + min(count * config.batch_size * config.ranks.world_size, len(tokens)), total)
    return config.ranks.combine(logits)


def probabilities(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Return softmax(logits / temperature) of the logits (N, C)."""
    return torch.from_numpy(logits / temperature).softmax(dim=1).numpy()


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean of -log softmax(logits)[target] in nats: (N, C), (N,) -> number."""
    return float(F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets)))


def report_of(logits: np.ndarray, labels: Sequence[str], task: Task) -> Report:
    """Return the metrics and the cross-entropy of the logits (N, C) for the labels (N,)."""
    loss = cross_entropy(logits, np.array(task.targets(labels)))
    predictions = [task.labels[index] for index in logits.argmax(axis=1)]
    return classification_report(labels, predictions, task.labels, loss=loss)
