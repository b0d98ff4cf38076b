"""Reports on a model: metrics, those of its parts, calibration; and the evaluation on dev data that selects it in a training.

Probabilities are calibrated by a fitted temperature (Guo et al., ICML 2017). `DevPerplexity` scores the text of a language
model. Shapes: N rows, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.data.tasks import Task
from recurcli.device import SettledPrecision
from recurcli.evaluation.decision import (
    PLAIN,
    Kept,
    Labels,
)
from recurcli.evaluation.inference import InferenceConfig, TextScore, score_text
from recurcli.evaluation.significance import tango
from recurcli.files import to_json
from recurcli.linear.model import Logits
from recurcli.metrics import PERPLEXITY, classification_report, rank_report, score_in
from recurcli.model.models import LanguageModel
from recurcli.runs.model_files import write_listed
from recurcli.runs.run_directory import TEXT_LOSSES
from recurcli.tokens.texts import Windows


@dataclass(frozen=True)
class EvaluatedRows:
    """Labelled rows with the probabilities (N, C) that a classifier gives them.

    The targets and the predictions (N,) are indices of the C `names`.
    """

    ids: Sequence[str] | None
    """None: the rows have no ids of their own."""
    lines: Sequence[int]
    """The number of the first line of each row in its file, from 1; of Parquet that of the row. 0: it has no file."""
    texts: Sequence[tuple[str, str | None]]
    names: Sequence[str]
    labels: Sequence[str]
    targets: NDArray[np.int64]
    """The classes of the labels; -1: the model does not have the label."""
    probabilities: NDArray[np.float64]
    predictions: Labels

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """(N,) the probability of the predicted class."""
        return self.probabilities[np.arange(len(self.labels)), self.predictions]

    @cached_property
    def mistakes(self) -> NDArray[np.int64]:
        """(M,) numbers of the wrongly predicted rows, in descending order of their scores."""
        wrong = np.flatnonzero(self.predictions != self.targets)
        return wrong[np.argsort(-self.scores[wrong], kind="stable")]


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean of -log softmax(logits)[target] in nats: (N, C), (N,) -> number."""
    return float(F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets)))


def report_of(logits: np.ndarray, labels: Sequence[str], task: Task, kept: Kept = PLAIN) -> dict[str, Any]:
    """Return the `classification_report` of the logits (N, C) of the model `kept`, or of a part, for the labels (N,).

    Its loss is that of softmax(logits), or None without a row of a known label. It has the `rank_report` of the probabilities
    too. Both leave out rows of an unknown label.
    """
    targets, shares = np.array(task.targets(labels)), kept.probabilities(logits)
    predictions, known = [task.labels[index] for index in kept.decide(shares)], targets >= 0
    loss = cross_entropy(logits[known], targets[known]) if known.any() else None
    report = classification_report(labels, predictions, task.labels, loss=loss)
    return {**report, **rank_report(targets[known], shares[known])}


def scores_of(report: Mapping[str, Any], metric: str) -> dict[str, float | None]:
    """Return the metrics and the loss of a `report_of` without its tables, and `metric`, which may be in one of them."""
    scores = {name: value for name, value in report.items() if not isinstance(value, dict | list)}
    return scores | {metric: score_in(report, metric)}


def paired_interval(right: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float] | None:
    """Return the 95 % interval of the accuracy of a model less that of another, which have these rows (N,) right."""
    return tango(int((right & ~other).sum()), int((other & ~right).sum()), len(right)).interval


BINS = 15
"""Number of equal bins of the highest probability, as in Guo et al., section 4."""


def calibration_of(logits: NDArray[np.float64], targets: NDArray[np.int64], kept: Kept) -> dict[str, Any]:
    """Return the calibration of the probabilities of `kept` with these logits (N, C) on the targets (N,), for the JSON.

    `ece` is the expected calibration error (Guo et al., equation 3): the mean over the rows of |accuracy - confidence| of
    their bin. `bins` lists the bins that have rows, with their limits. `loss` is the mean cross-entropy in nats.
    """
    shares = kept.probabilities(logits)
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == targets
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    bins = [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "rows": int(inside.sum()),
            "confidence": float(confidence[inside].mean()),
            "accuracy": float(right[inside].mean()),
        }
        for number in range(BINS)
        if (inside := place == number).any()
    ]
    error = sum(own["rows"] * abs(own["accuracy"] - own["confidence"]) for own in bins) / len(targets)
    return {
        "temperature": kept.temperature,
        "ece": error,
        "loss": cross_entropy(np.log(shares.clip(min=np.finfo(float).tiny)), targets),
        "bins": bins,
    }


def report_with_parts(
    kept: Kept,
    of: Mapping[str, Logits],
    labels: Sequence[str],
    task: Task,
    known: Mapping[str, float],
    metric: str,
    trained: NDArray[np.bool_] | None,
    refitted: Logits | None = None,
    linear_scores: Mapping[str, float | None] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], Logits]:
    """Return the report on the kept model, facts for the JSON, and its logits (N, C).

    `of` has the logits (N, C) of each candidate. The facts are the `baselines` (the accuracy of the most frequent label, of the
    linear model beside an encoder, and the task's own, `known`), and the `calibration`. With two candidates they have
    `paired`: by candidate the 95 % interval of the accuracy of the kept model less that of the candidate. Where both could be
    kept, they also have the scores of both `parts`, by `metric` too. Where some of the rows, but not all, were `trained` on
    (N,), they have the scores of the kept model on the others, the `unseen` ones; None: it is not known which were.

    `refitted` are the logits of the linear model that was fitted again, which takes the place of the one in `of` in what is
    kept. The scores of the linear model are those of the one in `of` (`linear_scores`, if they are known). The calibration
    leaves out rows of an unknown label; a row at least has a known one.
    """
    logits = kept.logits(of if refitted is None else {**of, "linear": refitted})
    targets = np.array(task.targets(labels))
    has_known = targets >= 0
    majority = int(np.bincount(targets[has_known]).max()) / len(labels)
    facts: dict[str, Any] = {"baselines": {"majority": majority, **known}}
    if trained is not None and 0 < (rows := int((~trained).sum())) < len(labels):
        others = [label for label, is_trained in zip(labels, trained, strict=True) if not is_trained]
        facts["unseen"] = {"rows": rows, **scores_of(report_of(logits[~trained], others, task, kept), metric)}
    if len(of) > 1:
        parts = {
            "encoder": scores_of(report_of(of["encoder"], labels, task), metric),
            "linear": linear_scores or scores_of(report_of(of["linear"], labels, task), metric),
        }
        facts["baselines"]["linear"] = parts["linear"]["accuracy"]
        if len(kept.alone) > 1:
            facts["parts"] = parts
        right = kept.decide(kept.probabilities(logits)) == targets
        facts["paired"] = {
            part: paired_interval(right, PLAIN.decide(PLAIN.probabilities(own)) == targets) for part, own in of.items()
        }
    facts["calibration"] = calibration_of(logits[has_known], targets[has_known], kept)
    return report_of(logits, labels, task, kept), facts, logits


class DevScore(NamedTuple):
    """The dev metric and dev loss of a model. Between equal metrics the smaller loss is better."""

    metric: float
    loss: float
    """The mean of the loss that training minimizes: of the dev rows, or of the tokens of the dev text in nats."""


@dataclass(frozen=True, kw_only=True)
class DevPerplexity:
    """Computes the perplexity of `model` on the dev text during training. Distributed ranks share the batches."""

    model: LanguageModel
    windows: Windows
    inference: InferenceConfig
    check_stop: Callable[[], None]
    precision: SettledPrecision = "fp32"
    """The precision of the evaluations that select the step: on CUDA that of the training, on CPUs fp32."""
    carry: bool = False
    """Whether the model goes on from window to window of the text (`pretraining.carry`)."""
    metric_name: str = PERPLEXITY
    linear: None = None
    first_kept: None = None

    def score(self) -> DevScore:
        """Return the perplexity and the loss of the dev text. Raises what `check_stop` raises."""
        score = self._score(self.precision)
        return DevScore(score.perplexity, score.loss)

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Return the metric, the protocol and the dev score of the selected model, for result.json.

        The losses on the blocks of the dev text are written into `folder`.
        """
        score = self._score()
        if self.inference.ranks.is_main:
            losses = {"tokens": score.block_tokens, "nats": score.block_nats.tolist()}
            write_listed(folder / TEXT_LOSSES, to_json(losses))
        return {"metric": self.metric_name, "carry": self.carry, "dev": score.to_json()}

    def _score(self, precision: SettledPrecision = "fp32") -> TextScore:
        self.check_stop()
        config = self.inference._replace(precision=precision)
        after_batch = lambda done: self.check_stop()  # noqa: E731
        return score_text(self.model, self.windows, config, after_batch, carry=self.carry)
