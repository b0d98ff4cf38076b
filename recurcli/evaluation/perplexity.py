"""The perplexity of a language model on a text: exp of the mean cross-entropy of all its tokens in nats.

Shapes: N tokens of a batch, D hidden, V vocabulary.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from recurcli.errors import NumericError
from recurcli.evaluation.inference import InferenceConfig
from recurcli.events import RowsDone, run_to_end
from recurcli.model.device import autocast
from recurcli.model.models import LanguageModel
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.splits import Windows

TOKENS_AT_ONCE = 1024
"""Tokens whose logits are in memory at a time."""


@dataclass(frozen=True)
class TextScore:
    """The cross-entropy of a text."""

    nats: float
    """The sum over all tokens."""
    tokens: int

    @property
    def loss(self) -> float:
        """The mean over all tokens in nats."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss). Raises NumericError if it is too large for a number."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            raise NumericError(
                f"the mean loss of a token is {self.loss:.0f} nats, so the perplexity is infinite"
            ) from None

    def to_json(self) -> dict[str, float]:
        """Return perplexity, loss and the number of tokens."""
        return {"perplexity": self.perplexity, "loss": self.loss, "tokens": self.tokens}


def score_text(
    model: LanguageModel, windows: Windows, config: InferenceConfig, between: Callable[[], None] = lambda: None
) -> TextScore:
    """Return the cross-entropy of the tokens of `windows`.

    `between` is called before the first batch and after each batch; an exception that it raises ends the evaluation. Raises
    NumericError if the loss is not finite.
    """
    return run_to_end(iter_score(model, windows, config), between)


def iter_score(model: LanguageModel, windows: Windows, config: InferenceConfig) -> Generator[RowsDone, None, TextScore]:
    """Return the cross-entropy as `score_text` does, and yield the number of finished windows after each batch.

    The ranks share the batches. The model is in evaluation mode until the generator ends or is closed.
    """
    ranks, batches = config.ranks, sorted_batches(windows.targets.lengths, config.batch_size)
    was_training, nats = model.training, 0.0
    model.eval()
    try:
        for turn in range(0, len(batches), ranks.world_size):
            if turn + ranks.rank < len(batches):
                nats += _batch_nats(model, windows, batches[turn + ranks.rank], config)
            done = min((turn + ranks.world_size) * config.batch_size, len(windows.targets))
            yield RowsDone(done, len(windows.targets), "window")
    finally:
        model.train(was_training)
    score = TextScore(ranks.all_reduce({"nats": nats})["nats"], len(windows.targets.ids))
    if not math.isfinite(score.nats):
        raise NumericError("the loss of the text is not finite")
    return score


def _batch_nats(model: LanguageModel, windows: Windows, rows: np.ndarray, config: InferenceConfig) -> float:
    """Return the summed cross-entropy of the windows `rows`."""
    ids, mask = collate(windows.inputs, rows, pad_id=model.config.pad_id)
    targets = torch.from_numpy(windows.targets.take(rows).ids).long().to(config.device)
    nats = 0.0
    with torch.inference_mode(), autocast(config.device, config.precision):
        _, states = model.encode(ids.to(config.device), mask.to(config.device))
        states, weight = states[mask.to(config.device)], model.embedding.output_weight()  # (N, D) and (V, W)
        for start in range(0, len(targets), TOKENS_AT_ONCE):
            right = targets[start : start + TOKENS_AT_ONCE]
            logits = model.token_logits(states[start : start + TOKENS_AT_ONCE], weight)
            logits = logits.float() if logits.dtype == torch.bfloat16 else logits
            nats += float(F.cross_entropy(logits, right, reduction="none").double().sum())
    return nats
