"""Reports on a model: metrics, those of its parts, calibration; and the evaluation on dev data that selects it in a training.

Probabilities are calibrated by a fitted temperature (Guo et al., ICML 2017). `choose_model` chooses what a run keeps of an
encoder and a linear model. `DevEvaluation` scores the rows of a classifier, `DevPerplexity` the text of a language model.
Shapes: N rows, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.config import FinetuningConfig
from recurcli.data.splits import RowHashes, Split
from recurcli.data.tasks import Task
from recurcli.device import SettledPrecision
from recurcli.evaluation.decision import (
    PLAIN,
    KeptModel,
    Labels,
    cascade_holds,
    choose_cascade,
    fit_thresholds,
    log_losses,
    probabilities,
)
from recurcli.evaluation.inference import InferenceConfig, TextScore, compute_logits, score_text
from recurcli.evaluation.significance import tango
from recurcli.files import to_json
from recurcli.linear.ensemble import RowWeights, choose_ensemble, fit_calibration
from recurcli.linear.model import Ensemble, LinearModel, Logits
from recurcli.linear.out_of_fold import draw_folds
from recurcli.metrics import LOG_LOSS, PERPLEXITY, ScoredSplit, classification_report, rank_report, score_in
from recurcli.model.models import Classifier, LanguageModel
from recurcli.runs.model_files import KnownRows, write_listed, write_predictions, write_refit
from recurcli.runs.run_directory import CALIBRATION, ENSEMBLE, PREDICTIONS, TEST_PREDICTIONS, TEXT_LOSSES, THRESHOLDS
from recurcli.tokens.texts import Windows
from recurcli.tokens.tokenizer import Tokens


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


def report_of(logits: np.ndarray, labels: Sequence[str], task: Task, kept: KeptModel = PLAIN) -> dict[str, Any]:
    """Return the `classification_report` of the logits (N, C) of the model `kept`, or of a part, for the labels (N,).

    Its loss is that of softmax(logits), or None without a row of a known label. It has the `rank_report` of the probabilities
    too. Both leave out rows of an unknown label.
    """
    targets, shares = np.array(task.targets(labels)), kept.probabilities(logits)
    predictions, known = [task.labels[index] for index in kept.decide(shares)], targets >= 0
    loss = cross_entropy(logits[known], targets[known]) if known.any() else None
    report = classification_report(labels, predictions, task.labels, loss=loss)
    return {**report, **rank_report(targets[known], shares[known])}


def _scores(report: Mapping[str, Any], metric: str) -> dict[str, float | None]:
    """Return the metrics and the loss of a `report_of` without its tables, and `metric`, which may be in one of them."""
    scores = {name: value for name, value in report.items() if not isinstance(value, dict | list)}
    return scores | {metric: score_in(report, metric)}


def paired_interval(right: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float] | None:
    """Return the 95 % interval of the accuracy of a model less that of another, which have these rows (N,) right."""
    return tango(int((right & ~other).sum()), int((other & ~right).sum()), len(right)).interval


BINS = 15
"""Number of equal bins of the highest probability, as in Guo et al., section 4."""


def calibration_of(logits: NDArray[np.float64], targets: NDArray[np.int64], kept: KeptModel) -> dict[str, Any]:
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


class ScoredRows(NamedTuple):
    """Labelled rows and their tokens."""

    split: Split
    tokens: Tokens
    row_weights: RowWeights = None
    """(N,) factors of the rows' losses where these choose or fit anything; metrics have none. None: 1."""

    @property
    def labels(self) -> list[str]:
        """The label of each row."""
        return [*map(str, self.split.examples.labels)]


class ScoredLinear(NamedTuple):
    """The linear model that is fitted on the training rows, and what it scores on the dev rows."""

    model: LinearModel
    logits: Logits
    scores: dict[str, Any]
    """The metrics and the loss, with the metric that selects the encoder's step."""
    alone: Ensemble | None
    """The linear model as the whole model, calibrated. None: the encoder is only compared with it."""


def score_linear_model(
    model: LinearModel, dev: ScoredRows, task: Task, metric: str, out_of_fold: Logits | None = None, *, is_part: bool
) -> ScoredLinear:
    """Score the linear model on the dev rows, by `metric` too. `is_part`: it may be kept, alone or in an ensemble.

    Rows that it is trained on have `out_of_fold` logits (N, C) of models that are not.
    """
    logits = model.logits(dev.split.texts) if out_of_fold is None else out_of_fold
    targets, alone = np.array(task.targets(dev.labels)), None
    if is_part:
        weight = fit_calibration(logits, targets, row_weights=dev.row_weights)
        alone = Ensemble(model, 0.0, weight, len(targets), weight)
    return ScoredLinear(model, logits, _scores(report_of(logits, dev.labels, task), metric), alone)


def choose_model(
    encoder: Logits | None,
    linear: ScoredLinear | None,
    targets: NDArray[np.int64],
    row_weights: RowWeights = None,
) -> KeptModel:
    """Choose what is kept, by the dev rows with these logits (N, C) of the encoder, `targets` (N,) and weights (N,).

    `encoder` is None without an encoder, `linear` is None without a linear model. The probabilities of an encoder alone have a
    fitted temperature.
    """
    if linear is None or linear.alone is None:
        assert encoder is not None, "a model without an encoder has a linear model"
        return KeptModel(None, 1 / fit_calibration(encoder, targets, 1.0, row_weights))
    if encoder is None:
        weight = fit_calibration(linear.logits, targets, row_weights=row_weights)
        return KeptModel(replace(linear.alone, linear_weight=weight, rows=len(targets), linear_alone_weight=weight))
    return KeptModel(choose_ensemble(linear.model, (encoder, linear.logits), targets, row_weights))


def report_with_parts(
    kept: KeptModel,
    encoder: Logits | None,
    linear: Logits | None,
    labels: Sequence[str],
    task: Task,
    known: Mapping[str, float],
    metric: str,
    trained: NDArray[np.bool_] | None,
    refitted: Logits | None = None,
    linear_scores: Mapping[str, float | None] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], Logits]:
    """Return the report on the kept model, facts for the JSON, and its logits (N, C).

    `encoder` and `linear` are the logits (N, C) of the parts. `encoder` is None without an encoder, `linear` is None without a
    linear model. Without an ensemble, the linear model is only compared with the encoder. The facts are the `baselines` (the
    accuracy of the most frequent label, of the linear model beside an encoder, and the task's own, `known`), and the
    `calibration`. With both parts they have `paired`: by part the 95 % interval of the accuracy of the kept model less that of
    the part. With an ensemble they also have its weights and the scores of both parts, by `metric` too. Where some of the
    rows, but not all, were `trained` on (N,), they have the scores of the kept model on the others, the `unseen` ones; None: it
    is not known which were. `refitted` are the logits of a linear model that takes the place of the one of `linear` in the
    ensemble; the scores of the linear model are those of `linear`, which was fitted on the encoder's rows (`linear_scores`, if
    they are known). The calibration leaves out rows of an unknown label; a row at least has a known one.
    """
    logits, targets = kept.logits(encoder, linear if refitted is None else refitted), np.array(task.targets(labels))
    has_known = targets >= 0
    majority = int(np.bincount(targets[has_known]).max()) / len(labels)
    facts: dict[str, Any] = {"baselines": {"majority": majority, **known}}
    if kept.ensemble is not None:
        facts["ensemble"] = kept.ensemble.to_json()
    if trained is not None and 0 < (rows := int((~trained).sum())) < len(labels):
        others = [label for label, is_trained in zip(labels, trained, strict=True) if not is_trained]
        facts["unseen"] = {"rows": rows, **_scores(report_of(logits[~trained], others, task, kept), metric)}
    if encoder is not None and linear is not None:
        parts = {
            "encoder": _scores(report_of(encoder, labels, task), metric),
            "linear": linear_scores or _scores(report_of(linear, labels, task), metric),
        }
        facts["baselines"]["linear"] = parts["linear"]["accuracy"]
        if kept.ensemble is not None:
            facts["parts"] = parts
        right = kept.decide(kept.probabilities(logits)) == targets
        facts["paired"] = {
            part: paired_interval(right, PLAIN.decide(PLAIN.probabilities(own)) == targets)
            for part, own in (("encoder", encoder), ("linear", linear))
        }
    facts["calibration"] = calibration_of(logits[has_known], targets[has_known], kept)
    return report_of(logits, labels, task, kept), facts, logits


Rows = NDArray[np.bool_] | slice
"""Some of the dev rows."""


class DevScore(NamedTuple):
    """The dev metric and dev loss of a model. Between equal metrics the smaller loss is better."""

    metric: float
    loss: float
    """The mean of the loss that training minimizes: of the dev rows, or of the tokens of the dev text in nats."""


@dataclass(frozen=True, kw_only=True)
class DevEvaluation:
    """Evaluates `model` on the dev rows, and in the end on the test rows. The ranks share the batches."""

    model: Classifier
    dev: ScoredRows
    task: Task
    config: FinetuningConfig
    mean_loss: Callable[[torch.Tensor, torch.Tensor, RowWeights], float]
    """The mean of the loss that training minimizes, of logits (N, C), targets (N,) and factors of the rows (N,); it decides
    between equal dev metrics."""
    precision: SettledPrecision = "fp32"
    """The precision of the evaluations that select the encoder's step: on CUDA that of the training, on CPUs fp32."""
    max_selecting: int
    """The largest number of dev rows that select the encoder's step; in the end all are scored."""
    inference: InferenceConfig
    """How the last evaluation is computed: in fp32, as all that reads the stored model."""
    check_stop: Callable[[], None]
    """Called between batches; an exception that it raises ends the evaluation."""
    linear: ScoredLinear | None = None
    """The linear model on n-grams of the training rows. None if it is not fitted, and on ranks other than 0."""
    refit: Callable[[], LinearModel] | None = None
    """Fits the linear model again, on the dev rows too. None if it is not fitted again."""
    known: KnownRows
    """The rows that the model is trained on, those of a run that it starts from too, and the dev rows."""
    folds: int | None = None
    """Number of folds by which the dev rows, which are the training rows, are scored out of fold. None: they are others."""
    tests: Mapping[ScoredSplit, ScoredRows] = field(default_factory=dict)
    """Rows that select nothing: the chosen model is scored on them once."""
    halves_seed: int | None = None
    """Seed by which the dev rows are halved, to score a trial of `tune` on held-out rows. None: it is no such trial."""

    @property
    def metric_name(self) -> str:
        """The dev metric that selects the encoder's step."""
        return self.config.metric

    @cached_property
    def selecting(self) -> ScoredRows:
        """The dev rows, or `max_selecting` of them: of each class its share, chosen by the hashes of the texts."""
        split, count, most = self.dev.split, len(self.dev.split.examples), self.max_selecting
        if count <= most:
            return self.dev
        order = np.lexsort((split.hashes, np.array(self.task.targets(self.dev.labels))))
        rows = np.sort(order[np.arange(most) * count // most])
        examples = split.examples.take(np.isin(np.arange(count), rows))
        weights = None if self.dev.row_weights is None else self.dev.row_weights[rows]
        return ScoredRows(split.with_examples(examples, split.hashes[rows]), self.dev.tokens.take(rows), weights)

    def score(self) -> DevScore:
        """Evaluate the encoder on the `selecting` rows: its dev metric, and the mean of the loss that training minimizes.

        The ensemble is left out, so it does not affect training. Raises what `check_stop` raises.
        """
        rows = self.selecting
        logits = self._encoder_logits(rows, self.precision)
        score = None
        if self.inference.ranks.is_main:
            targets = torch.tensor(self.task.targets(rows.labels))
            loss = self.mean_loss(torch.from_numpy(logits), targets, rows.row_weights)
            score = DevScore(score_in(report_of(logits, rows.labels, self.task), self.metric_name), loss)
        return DevScore(*self.inference.ranks.broadcast(score))

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Choose what is kept, write it and its predictions in `folder` (rank 0), and return result.json's facts.

        In the end the linear model is fitted again, if it is to be, and is a part of the kept model: the test rows are scored
        with it, the dev rows without. Raises what `check_stop` raises.
        """
        has_encoder = not self.model.config.is_linear
        encoder = self._encoder_logits(self.dev) if has_encoder else None
        tested = {split: self._encoder_logits(rows) for split, rows in self.tests.items() if has_encoder}
        if not self.inference.ranks.is_main:
            return {}
        kept = self._choose(encoder)
        if kept.ensemble is not None:
            write_listed(folder / ENSEMBLE, to_json(kept.ensemble.to_json()))
        else:
            calibration = {"temperature": kept.temperature, "fitted_on": "dev", "rows": kept.rows}
            write_listed(folder / CALIBRATION, to_json(calibration))
        if kept.thresholds is not None:
            write_listed(folder / THRESHOLDS, to_json(kept.thresholds))
        dev, facts = self._write_scores(folder / PREDICTIONS, self.dev, kept, encoder, self.task.baselines)
        if self.halves_seed is not None:
            facts["held_out"] = self._held_out(encoder)
        if self.linear is not None:
            scores = dict(self.linear.scores)
            if self.halves_seed is not None:
                scores[LOG_LOSS] = self._held_out(None)[LOG_LOSS]
            facts["linear_baseline"] = {**self.linear.model.facts(self.dev.split.texts), "dev": scores}
        if self.refit is not None and kept.ensemble is not None and kept.ensemble.linear_weight:
            fitted = self.refit()  # on rank 0 alone, so `check_stop`, which all ranks call, is not called here
            write_refit(folder, fitted)
            kept = kept._replace(ensemble=replace(kept.ensemble, linear=fitted))
            facts["linear_baseline"]["refit_rows"] = fitted.rows
        for split, rows in self.tests.items():
            test, of_test = self._write_scores(folder / TEST_PREDICTIONS[split], rows, kept, tested.get(split), {})
            of_test.pop("ensemble", None)  # stands beside the dev metrics
            facts[split] = {**test, **of_test}
        if self.folds is not None:
            facts["cross_validation"] = {"folds": self.folds, "rows": kept.rows}
        return {"metric": self.metric_name, "dev": dev, **facts, "thresholds": kept.thresholds}

    def _choose(self, encoder: Logits | None, rows: Rows = slice(None)) -> KeptModel:
        """Choose what is kept, and its thresholds, by these `rows` (N,) of the dev rows; `encoder`: its logits (N, C)."""
        targets, weights = np.array(self.task.targets(self.dev.labels))[rows], self.dev.row_weights
        own, linear = None if encoder is None else encoder[rows], self.linear
        linear = linear and linear._replace(logits=linear.logits[rows])
        weights = None if weights is None else weights[rows]
        kept = choose_model(own, linear, targets, weights)._replace(rows=len(targets))
        if self.config.cascade and kept.ensemble and kept.ensemble.encoder_weight and kept.ensemble.linear_weight:
            assert own is not None and linear is not None, "an ensemble has two parts"
            kept = choose_cascade(
                kept,
                own,
                linear.logits,
                targets,
                self._halves(rows),
                weights,
                labels_only=self.config.cascade == "labels",
            )
        return self._with_thresholds(kept, own, linear and linear.logits, targets)

    def _with_thresholds(
        self, kept: KeptModel, encoder: Logits | None, linear: Logits | None, targets: NDArray[np.int64]
    ) -> KeptModel:
        """Return `kept` with the thresholds that the preset asks for, chosen on rows with these logits and `targets` (N,).

        It has no cascade if that changes more labels by the thresholds than `choose_cascade` allows.
        """
        if self.config.thresholds is None or not len(targets):
            return kept
        shares = kept.probabilities(kept.logits(encoder, linear))
        found = fit_thresholds(shares, targets, self.config.thresholds, self.task.labels)
        kept = kept._replace(thresholds=found)
        if kept.ensemble is None or cascade_holds(kept, encoder, linear):
            return kept
        whole = kept._replace(ensemble=replace(kept.ensemble, cascade=None))
        return self._with_thresholds(whole, encoder, linear, targets)

    def _halves(self, rows: Rows = slice(None)) -> NDArray[np.int64]:
        """Return the half of each of these dev rows (N,), 0 or 1. Rows of one group (see `RowHashes`) are in one half."""
        targets = np.array(self.task.targets(self.dev.labels))[rows]
        return draw_folds(self._group_ids[rows], targets, self.halves_seed or 0, folds=2)

    @cached_property
    def _group_ids(self) -> NDArray[np.uint64]:
        return np.asarray(RowHashes.of(self.dev.split.texts).group_ids)

    def _held_out(self, encoder: Logits | None) -> dict[str, Any]:
        """Return the report on the dev rows, each by what is chosen on the other half of them, with the weighted log loss.

        `encoder`: its logits (N, C); None: it is left out.
        """
        targets, names = np.array(self.task.targets(self.dev.labels)), self.task.labels
        shares, predictions = np.empty((len(targets), len(names))), np.empty_like(targets)
        halves = self._halves()
        for half in (0, 1):
            own, kept = halves == half, self._choose(encoder, halves != half)
            of_all = kept.probabilities(kept.logits(encoder, self.linear and self.linear.logits))
            shares[own], predictions[own] = of_all[own], kept.decide(of_all)[own]
        report = classification_report(self.dev.labels, [names[index] for index in predictions], names)
        loss = np.average(log_losses(shares, targets), weights=self.dev.row_weights)
        return {**report, **rank_report(targets, shares), LOG_LOSS: loss}

    def _write_scores(
        self, path: Path, rows: ScoredRows, kept: KeptModel, encoder: Logits | None, known: Mapping[str, float]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the predictions of `rows` to `path`; return their metrics and `report_with_parts`' facts.

        `encoder` are the encoder's logits (N, C). The scores of the linear model are those of its first fit.
        """
        texts, linear, linear_scores, refitted, seen = rows.split.texts, None, None, None, self.known
        if self.linear is not None:
            is_dev = rows is self.dev
            linear = self.linear.logits if is_dev else self.linear.model.logits(texts)
            linear_scores = self.linear.scores if is_dev else None
            if kept.ensemble is not None and kept.ensemble.linear is not self.linear.model:
                refitted, seen = kept.ensemble.linear.logits(texts), seen.refitted()
        trained = None if rows is self.dev and self.folds else seen.trains(rows.split.hashes)
        report, facts, logits = report_with_parts(
            kept, encoder, linear, rows.labels, self.task, known, self.metric_name, trained, refitted, linear_scores
        )
        if trained is not None and rows is not self.dev:
            facts["training_rows"] = int(trained.sum())
        shares = {"probabilities": kept.probabilities(logits)}
        if kept.ensemble is not None and encoder is not None and linear is not None:
            shares["encoder_probabilities"] = probabilities(encoder, rows=kept.rows)
            shares["linear_probabilities"] = probabilities(linear, rows=kept.rows)
        examples = rows.split.examples
        ids, lines = [*map(str, examples.ids)], examples.lines if self.folds and any(examples.lines) else ()
        shown = texts if self.config.keep_texts and rows is self.dev else None
        predictions = kept.decide(shares["probabilities"])
        write_predictions(path, ids, rows.labels, self.task.labels, shares, predictions, shown, lines)
        return report, facts

    def _encoder_logits(self, rows: ScoredRows, precision: SettledPrecision = "fp32") -> np.ndarray:
        """Return the logits (N, C) of the encoder. Raises what `check_stop` raises."""
        self.check_stop()
        config = self.inference._replace(precision=precision)
        return compute_logits(self.model, rows.tokens, config, lambda done: self.check_stop())


@dataclass(frozen=True, kw_only=True)
class DevPerplexity:
    """Computes the perplexity of `model` on the dev text during training. Distributed ranks share the batches."""

    model: LanguageModel
    windows: Windows
    inference: InferenceConfig
    check_stop: Callable[[], None]
    precision: SettledPrecision = "fp32"
    """As that of `DevEvaluation`."""
    carry: bool = False
    """Whether the model goes on from window to window of the text (`pretraining.carry`)."""
    metric_name: str = PERPLEXITY
    linear: None = None

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


Evaluation = DevEvaluation | DevPerplexity
"""The evaluation on dev rows, or on dev text, that selects the model of a training."""
