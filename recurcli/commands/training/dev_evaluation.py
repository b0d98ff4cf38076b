"""Evaluation in fine-tuning: the dev metric that selects the best model, its dev and test reports, baselines, the ensemble."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from recurcli.cache import cached
from recurcli.data.examples import Split
from recurcli.data.tasks import Task
from recurcli.errors import DataError, ModelError, StorageError, pluralize
from recurcli.evaluation.inference import InferenceConfig, predict_logits, probabilities, report_of
from recurcli.evaluation.report import fit_temperature, report_with_parts
from recurcli.events import Note
from recurcli.linear.ensemble import Ensemble
from recurcli.linear.model import FORMAT, LinearModel
from recurcli.model.models import Classifier
from recurcli.runs.model_files import write_ensemble, write_predictions, write_temperature
from recurcli.tokens.tokenizer import Tokens
from recurcli.training.fit import DevScore
from recurcli.training.objectives import ClassificationObjective
from recurcli.training.session import StopRequest


def fit_linear_model(train: Split, targets: Sequence[int], num_classes: int) -> tuple[LinearModel | None, Note]:
    """Fit the linear model on the training rows, or read it from the cache if it was fitted on these rows before.

    Returns None and the reason if the rows cannot be learned from. A cache that cannot be written, or is locked, is not used.
    """
    texts = train.texts
    fitted: list[LinearModel] = []
    digest = hashlib.sha256(repr((targets, num_classes)).encode())
    for row in texts:
        digest.update(repr(row).encode())
    started = time.perf_counter()

    def fit() -> LinearModel:
        fitted.append(LinearModel.fit(texts, targets, num_classes))
        return fitted[-1]

    def write(path: Path) -> dict[str, Any]:
        path.write_bytes(fit().to_bytes())
        return {}

    versions = [version(name) for name in ("scikit-learn", "numpy", "scipy")]
    note = ""
    try:
        try:
            path, _ = cached((FORMAT, versions, digest.hexdigest()), ".linear.safetensors", write, wait=False)
            model = fitted[0] if fitted else LinearModel.load(path)
        except (StorageError, ModelError) as error:
            model = fitted[0] if fitted else fit()
            note = f" (not cached: {error})"
    except DataError as error:
        return None, Note(f"no linear model beside the encoder: {error}")
    made = f"fitted in {time.perf_counter() - started:.1f} s{note}" if fitted else "from the cache"
    used = pluralize(model.rows, "row", of=None if model.rows == len(texts) else len(texts))
    return model, Note(f"linear model: {pluralize(len(model.ngrams.keys), 'n-gram')} of {used}, {made}")


class ScoredRows(NamedTuple):
    """Labelled rows and their tokens."""

    split: Split
    tokens: Tokens

    @property
    def labels(self) -> list[str]:
        """The label of each row."""
        return [str(example.label) for example in self.split.examples]


@dataclass(frozen=True)
class DevEvaluation:
    """Evaluates `model` on the dev rows, and in the end on the test rows. The ranks share the batches."""

    model: Classifier
    dev: ScoredRows
    task: Task
    metric_name: str
    objective: ClassificationObjective
    """Its loss decides between models of equal dev metric."""
    inference: InferenceConfig
    """Its precision is fp32, so that a prediction does not depend on the other rows of the batch."""
    stop: StopRequest
    linear: LinearModel | None = None
    """The linear model on n-grams of the training rows; None: not fitted."""
    ensemble: Literal["linear"] | None = None
    """Whether the logits of the linear model are added to those of the encoder, once it is trained; None: they are not."""
    test: ScoredRows | None = None
    """Rows that select nothing: the chosen model is scored on them once; None: there are none."""

    def score(self) -> DevScore:
        """Evaluate the encoder on the dev rows and return its dev metric, and the mean of the loss that training minimizes.

        The ensemble is left out, so it does not affect training. Raises StopTraining if a rank received a signal to stop.
        """
        logits = self._encoder_logits(self.dev)
        score = None
        if self.inference.ranks.is_main:
            targets = torch.tensor(self.task.targets(self.dev.labels))
            loss = self.objective.mean_loss(torch.from_numpy(logits), targets)
            score = DevScore(report_of(logits, self.dev.labels, self.task).metrics[self.metric_name], loss)
        return DevScore(*self.inference.ranks.broadcast(score))

    @property
    def tokens(self) -> int:
        """The number of tokens of the dev rows."""
        return int(self.dev.tokens.lengths.sum())

    @property
    def last_tokens(self) -> int:
        """The number of tokens of the dev rows and of the test rows."""
        return self.tokens + (0 if self.test is None else int(self.test.tokens.lengths.sum()))

    def evaluate_partly(self, batches: int) -> int:
        """Evaluate the encoder on evenly spaced dev rows, `batches` batches of them, and return the number of their tokens."""
        labels = self.dev.labels
        rows = np.unique(np.linspace(0, len(labels) - 1, batches * self.inference.batch_size).astype(np.int64))
        tokens, labels = self.dev.tokens.take(rows), [labels[row] for row in rows]
        report_of(predict_logits(self.model, tokens, self.inference), labels, self.task)
        return int(tokens.lengths.sum())

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Write predictions.dev.jsonl, and ensemble.json or calibration.json, in `folder` (rank 0); return result.json's facts.

        Raises StopTraining if a rank has received a signal to stop.
        """
        encoder = self._encoder_logits(self.dev)
        tested = None if self.test is None else self._encoder_logits(self.test)
        if not self.inference.ranks.is_main:
            return {}
        names, labels = self.task.labels, self.dev.labels
        linear = ensemble = None
        targets, temperature = np.array(self.task.targets(labels)), 1.0
        if self.linear is not None:
            linear = self.linear.logits(self.dev.split.texts)
            if self.ensemble is not None:
                ensemble = Ensemble.fit(self.linear, (encoder, linear), targets, self._selection_key)
                write_ensemble(folder, ensemble)
        if ensemble is None:
            temperature = fit_temperature(encoder, targets)
            write_temperature(folder, temperature, len(labels))
        report, facts, logits = report_with_parts(
            encoder, linear, ensemble, labels, self.task, self.task.baselines, temperature
        )
        ids = [example.id for example in self.dev.split.examples]
        shares = {"probabilities": probabilities(logits, temperature)}
        if ensemble is not None and linear is not None:
            parts = {"encoder_probabilities": encoder, "linear_probabilities": linear}
            shares |= {key: probabilities(values) for key, values in parts.items()}
        write_predictions(folder, ids, labels, names, shares, self.dev.split.texts)
        if self.linear is not None:
            assert linear is not None
            facts["linear_baseline"] = {**self.linear.facts(), "dev": report_of(linear, labels, self.task).scores()}
        if tested is not None:
            facts["test"] = self._test_report(tested, ensemble, temperature)
        return {"metric": self.metric_name, "dev": report.to_json(), **facts}

    def _test_report(self, encoder: np.ndarray, ensemble: Ensemble | None, temperature: float) -> dict[str, Any]:
        """Return the test metrics of the model, with its baselines and parts. `encoder` (N, C) are the encoder's logits."""
        assert self.test is not None
        linear = None if self.linear is None else self.linear.logits(self.test.split.texts)
        report, facts, _ = report_with_parts(encoder, linear, ensemble, self.test.labels, self.task, {}, temperature)
        facts.pop("ensemble", None)  # stands beside the dev metrics
        return {**report.to_json(), **facts}

    def _selection_key(self, logits: np.ndarray) -> tuple[float, float]:
        """Return what is larger for a better sum `logits` (N, C): the dev metric, then the negative cross-entropy.

        The weights of the sum are fitted by cross-entropy, whatever loss the encoder was trained with.
        """
        report = report_of(logits, self.dev.labels, self.task)
        assert report.loss is not None
        return report.metrics[self.metric_name], -report.loss

    def _encoder_logits(self, rows: ScoredRows) -> np.ndarray:
        """Return the logits (N, C) of the encoder alone. Raises StopTraining if a rank received a signal to stop."""
        return predict_logits(self.model, rows.tokens, self.inference, between=self.stop.raise_if_agreed)
