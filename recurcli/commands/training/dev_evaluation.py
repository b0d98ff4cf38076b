"""Evaluation on the dev rows in fine-tuning: the dev metric that selects the best model, and the final report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.data.examples import Split
from recurcli.data.tasks import Task
from recurcli.evaluation import metrics
from recurcli.evaluation.inference import InferenceConfig, cross_entropy, predict_logits, probabilities
from recurcli.model.models import Classifier
from recurcli.runs.model_files import write_predictions
from recurcli.tokens.tokenizer import Tokens
from recurcli.training.signals import StopRequest


@dataclass(frozen=True)
class DevEvaluation:
    """Evaluates `model` on the dev rows. The ranks share the batches."""

    model: Classifier
    split: Split
    tokens: Tokens
    task: Task
    metric_name: str
    inference: InferenceConfig
    """Its precision is fp32, so that a prediction does not depend on the other rows of the batch."""
    stop: StopRequest

    def metric(self) -> float:
        """Return the dev metric of the current weights. Raises StopTraining if a rank has received a signal to stop."""
        logits = self._logits()
        ranks = self.inference.ranks
        if not ranks.is_main:
            return ranks.broadcast(None)
        return ranks.broadcast(
            metrics.compute_metric(self.metric_name, self._labels(), self._predictions(logits), self.task.labels)
        )

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Write predictions.dev.jsonl in `folder` (rank 0); returns the metrics for result.json.

        Raises StopTraining if a rank has received a signal to stop.
        """
        logits = self._logits()
        if not self.inference.ranks.is_main:
            return {}
        names, labels = self.task.labels, self._labels()
        ids = [example.id for example in self.split.examples]
        write_predictions(folder, ids, labels, names, probabilities(logits).tolist())
        targets = np.array([names.index(label) for label in labels])
        loss = cross_entropy(logits, targets)
        report = metrics.classification_report(labels, self._predictions(logits), names, loss=loss)
        floors = {"floors": dict(self.task.floors)} if self.task.floors else {}
        return {"metric": self.metric_name, "dev": report.to_json(), **floors}

    def _logits(self) -> np.ndarray:
        return predict_logits(self.model, self.tokens, self.inference, between=self.stop.raise_if_agreed)

    def _labels(self) -> list[str]:
        return [str(example.label) for example in self.split.examples]

    def _predictions(self, logits: np.ndarray) -> list[str]:
        return [self.task.labels[index] for index in logits.argmax(axis=1)]
