"""Evaluation in causal pre-training: the perplexity on the dev text, which selects the model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.evaluation.inference import InferenceConfig
from recurcli.evaluation.metrics import PERPLEXITY
from recurcli.evaluation.perplexity import score_text
from recurcli.model.models import LanguageModel
from recurcli.tokens.stream import Windows
from recurcli.training.fit import DevScore
from recurcli.training.session import StopRequest


@dataclass(frozen=True)
class DevPerplexity:
    """Computes the perplexity of `model` on the dev text during training. Distributed ranks share the batches."""

    model: LanguageModel
    windows: Windows
    inference: InferenceConfig
    stop: StopRequest
    metric_name: str = PERPLEXITY

    @property
    def tokens(self) -> int:
        """The number of tokens of the dev text."""
        return len(self.windows.targets.ids)

    @property
    def last_tokens(self) -> int:
        """The number of tokens of the dev text, which the chosen model reads once more."""
        return self.tokens

    def score(self) -> DevScore:
        """Return the perplexity and the loss of the dev text. Raises StopTraining if a rank received a signal to stop."""
        score = score_text(self.model, self.windows, self.inference, between=self.stop.raise_if_agreed)
        return DevScore(score.perplexity, score.loss)

    def evaluate_partly(self, batches: int) -> int:
        """Evaluate the model on `batches` batches of evenly spaced windows. Return the number of tokens in them."""
        count = min(len(self.windows.targets), batches * self.inference.batch_size)
        rows = np.linspace(0, len(self.windows.targets) - 1, count).astype(np.int64)
        some = Windows(self.windows.inputs.take(rows), self.windows.targets.take(rows))
        return score_text(self.model, some, self.inference).tokens

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Return the name of the metric and the dev score of the selected model, for result.json. It writes no file."""
        score = score_text(self.model, self.windows, self.inference, between=self.stop.raise_if_agreed)
        return {"metric": self.metric_name, "dev": score.to_json()}
