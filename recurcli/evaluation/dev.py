"""Evaluation during a training: the dev metric that selects the best model, and the report on the chosen model.

`Evaluation` is the protocol; `DevEvaluation` scores the rows of a classifier, `DevPerplexity` the text of a language model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch

from recurcli.data.examples import Split
from recurcli.data.tasks import Task
from recurcli.evaluation.inference import InferenceConfig, predict_logits, probabilities, report_of
from recurcli.evaluation.metrics import PERPLEXITY
from recurcli.evaluation.perplexity import score_text
from recurcli.evaluation.report import fit_temperature, report_with_parts
from recurcli.linear.ensemble import Ensemble
from recurcli.linear.model import LinearModel
from recurcli.model.models import Classifier, LanguageModel
from recurcli.runs.model_files import write_ensemble, write_predictions, write_temperature
from recurcli.tokens.splits import Windows
from recurcli.tokens.tokenizer import Tokens


class DevScore(NamedTuple):
    """The dev metric and dev loss of a model. A larger metric is better; between equal metrics the smaller loss is.

    Of perplexities the smaller one is better (`TrainingLoop.minimize`).
    """

    metric: float
    loss: float
    """The mean of the loss that training minimizes: of the dev rows, or of the tokens of the dev text in nats."""


class Evaluation(Protocol):
    """The evaluation on dev rows, or on dev text, that selects the model."""

    @property
    def metric_name(self) -> str:
        """The name of the dev metric."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens that an evaluation reads."""
        ...

    @property
    def last_tokens(self) -> int:
        """The number of tokens that the report on the chosen model reads."""
        ...

    def score(self) -> DevScore:
        """Evaluate the model. Raises NumericError if a number is not finite."""
        ...

    def evaluate_partly(self, batches: int) -> int:
        """Evaluate the model on evenly spaced rows, `batches` batches of them, and return the number of their tokens."""
        ...

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Write what belongs to the chosen model in `folder` (rank 0), and return facts for result.json."""
        ...


class ScoredRows(NamedTuple):
    """Labelled rows and their tokens."""

    split: Split
    tokens: Tokens

    @property
    def labels(self) -> list[str]:
        """The label of each row."""
        return [str(example.label) for example in self.split.examples]


@dataclass(frozen=True, kw_only=True)
class DevEvaluation:
    """Evaluates `model` on the dev rows, and in the end on the test rows. The ranks share the batches."""

    model: Classifier
    dev: ScoredRows
    task: Task
    metric_name: str
    mean_loss: Callable[[torch.Tensor, torch.Tensor], float]
    """The mean of the loss that training minimizes, of logits (N, C) and targets (N,); it decides between equal dev metrics."""
    inference: InferenceConfig
    """Its precision is fp32, so that a prediction does not depend on the other rows of the batch."""
    between: Callable[[], None]
    """Called between batches; an exception that it raises ends the evaluation."""
    linear: LinearModel | None = None
    """The linear model on n-grams of the training rows; None: not fitted."""
    ensemble: Literal["linear"] | None = None
    """Whether the logits of the linear model are added to those of the encoder, once it is trained; None: they are not."""
    test: ScoredRows | None = None
    """Rows that select nothing: the chosen model is scored on them once; None: there are none."""

    def score(self) -> DevScore:
        """Evaluate the encoder on the dev rows and return its dev metric, and the mean of the loss that training minimizes.

        The ensemble is left out, so it does not affect training. Raises what `between` raises.
        """
        logits = self._encoder_logits(self.dev)
        score = None
        if self.inference.ranks.is_main:
            targets = torch.tensor(self.task.targets(self.dev.labels))
            loss = self.mean_loss(torch.from_numpy(logits), targets)
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

        Raises what `between` raises.
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
        """Return the logits (N, C) of the encoder alone. Raises what `between` raises."""
        return predict_logits(self.model, rows.tokens, self.inference, between=self.between)


@dataclass(frozen=True, kw_only=True)
class DevPerplexity:
    """Computes the perplexity of `model` on the dev text during training. Distributed ranks share the batches."""

    model: LanguageModel
    windows: Windows
    inference: InferenceConfig
    between: Callable[[], None]
    """Called between batches; an exception that it raises ends the evaluation."""
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
        """Return the perplexity and the loss of the dev text. Raises what `between` raises."""
        score = score_text(self.model, self.windows, self.inference, between=self.between)
        return DevScore(score.perplexity, score.loss)

    def evaluate_partly(self, batches: int) -> int:
        """Evaluate the model on `batches` batches of evenly spaced windows. Return the number of tokens in them."""
        count = min(len(self.windows.targets), batches * self.inference.batch_size)
        rows = np.linspace(0, len(self.windows.targets) - 1, count).astype(np.int64)
        some = Windows(self.windows.inputs.take(rows), self.windows.targets.take(rows))
        return score_text(self.model, some, self.inference).tokens

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Return the name of the metric and the dev score of the selected model, for result.json. It writes no file."""
        score = score_text(self.model, self.windows, self.inference, between=self.between)
        return {"metric": self.metric_name, "dev": score.to_json()}
