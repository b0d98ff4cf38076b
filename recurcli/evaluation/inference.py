"""Logits of many rows: batches of like length, returned in the rows' order.

Shapes: N rows, b rows of a batch, C classes.
"""

import contextlib
from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import NumericError
from recurcli.events import RowsDone
from recurcli.model.device import Precision, autocast
from recurcli.model.models import Classifier
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.tokenizer import Tokens


class InferenceConfig(NamedTuple):
    """Device, arithmetic and batch size of an inference."""

    device: torch.device
    precision: Precision
    batch_size: int = 64
    ranks: Ranks = SINGLE_PROCESS
    """The processes that share the batches."""


def logits_by_batch(
    model: Classifier, tokens: Tokens, config: InferenceConfig
) -> Generator[tuple[np.ndarray, np.ndarray], None, None]:
    """Yield row numbers (b,) and their logits (b, C), float64, a batch at a time; every row once, the longest first.

    Each of several ranks yields its own batches, all ranks equally many: the last one of a rank may have no rows. The
    model is in evaluation mode until the generator ends or is closed, then in its former mode. Raises NumericError if a
    logit is not finite.
    """
    ranks, batches = config.ranks, sorted_batches(tokens.lengths, config.batch_size)
    was_training = model.training
    model.eval()  # once for all batches: a change of mode drops the values of every CachedMap
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
    """Return the logits (N, C), float64, of all rows.

    `between` is called before the first and after every batch; an exception of it ends the inference. Raises
    NumericError if a logit is not finite.
    """
    between()
    logits = np.zeros((len(tokens), len(model.config.labels)))
    with contextlib.closing(logits_by_batch(model, tokens, config)) as batches:
        for rows, batch in batches:
            logits[rows] = batch
            between()
    return config.ranks.combine(logits)


def iter_logits(
    model: Classifier, tokens: Tokens, config: InferenceConfig, *, total: int | None = None, before: int = 0
) -> Generator[RowsDone, None, np.ndarray]:
    """As `predict_logits`, but yield the rows that all ranks have done after every batch.

    `before` rows were done earlier; `total` is the number of all rows, None where it is unknown.
    """
    logits = np.zeros((len(tokens), len(model.config.labels)))
    with contextlib.closing(logits_by_batch(model, tokens, config)) as batches:
        for count, (rows, batch) in enumerate(batches, 1):
            logits[rows] = batch
            yield RowsDone(before + min(count * config.batch_size * config.ranks.world_size, len(tokens)), total)
    return config.ranks.combine(logits)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of the logits (N, C); after training with the hinge loss it ranks classes, uncalibrated."""
    return torch.from_numpy(logits).softmax(dim=1).numpy()


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean of -log softmax(logits)[target] in nats: (N, C), (N,) -> number."""
    return float(F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets)))
