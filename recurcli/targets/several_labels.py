"""`SeveralLabels`: each row has any number of C labels. `y` is (N, C + 1): 1 where a row has a label; the last column is the
number of its labels that training did not know. Predictions have the same form, and 0 there.

The loss of a row is the sum of the binary cross-entropies of its labels. It is the negative log-likelihood of the row, if
labels are independent, as the cross-entropy of `OneLabel` is. So penalties and standard errors weigh the rows of both kinds
alike. The loss is about as large for many labels as for few, since most of many are rare, and a rare label adds little.

Shapes: N rows, C labels, V features, P parts of a model, R runs.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, FinetuningConfig
from recurcli.errors import DataError, UsageError, escaped, pluralize, quoted
from recurcli.log import Note
from recurcli.metrics import (
    LABEL_SET_METRICS,
    OF_LABEL,
    OF_LABEL_SET_PROBABILITIES,
    CountMetric,
    LabelSetCounts,
    average_precision,
    f1,
    label_set_columns,
    metric_named,
    precision,
    ranking_average_precision,
    recall,
)
from recurcli.process import interruptible
from recurcli.significance import FEWEST_ROWS_OF_CLASS, LIMITS, RESAMPLES, RESAMPLES_OF_INTERVALS, resampled_sums
from recurcli.targets.calibration import fit_calibration
from recurcli.targets.one_label import TOLERANCE, binned, ordered_labels, weights_by_name
from recurcli.targets.stratification import stratified_parts
from recurcli.targets.suspects import find_suspects
from recurcli.targets.target import (
    MAX_LABELS,
    Calibration,
    Cell,
    LinearWeights,
    Logits,
    Probabilities,
    RowWeights,
    Target,
    Y,
    labels_in,
)
from recurcli.targets.thresholds import THRESHOLD_FOLDS, LabelCuts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

SEPARATORS = ",|;"
"""The marks by which labels are joined in a cell: the first that no label holds."""


@dataclass(frozen=True)
class SeveralLabels(Target):
    """Several labels a row, or none. The encoder learns each by binary cross-entropy, the linear model by an SVM."""

    kind = "several"
    scores = tuple(LABEL_SET_METRICS)
    tables = ("names",)
    metrics, of_probabilities = LABEL_SET_METRICS, OF_LABEL_SET_PROBABILITIES
    headline, stratum = "micro_f1", "label"
    thresholds_for = headline
    constant_name, constant_words = "most_frequent", "most frequent labels"
    model_words = "text classifier for several labels a row"
    suspect_columns = ("suggested_add", "suggested_remove", "probability")
    mistake_columns = ("missed", "wrong", "label")
    separator: str
    """Joins the labels of a row in a cell of a table."""
    at_least_one: bool = False
    """Whether a row gets its most probable label where none reaches its threshold."""
    left_out: tuple[str, ...] = ()
    """Labels that all training rows have. They are neither learned nor scored."""
    unseen: tuple[str, ...] = ()
    """Labels that a setting or a column names and no training row has. They are not learned, and missed where a row has one."""
    weights: tuple[float, ...] = ()
    """Factors of the losses of the rows that have a label (C); (): 1. They are those of a training alone (`weighted`)."""

    @classmethod
    def of(cls, cells: Collection[Cell], config: DataConfig, labels: tuple[str, ...] = ()) -> Self:
        """Return the target with the `labels`, or else those of the cells, that some rows have and others have not."""
        rows = Counter(chain.from_iterable(map(labels_in, cells)))
        names = labels or ordered_labels(rows)
        if len(names) > MAX_LABELS:
            raise DataError(f"the labels are {len(names):,} different ones; at most {MAX_LABELS:,} are supported")
        known = tuple(name for name in names if 0 < rows[name] < len(cells))
        if not known:
            each = f"{quoted(names)}: all rows have it, or none" if names else "no row has one"
            raise DataError(f"there is no label that some rows have and others have not ({each})")
        mark = config.label_separator
        held = next((name for name in known if mark is not None and mark in name), None)
        if held is not None:
            raise DataError(f"the label '{escaped(held)}' holds the separator '{escaped(mark)}'; name another one")
        mark = mark or next((each for each in SEPARATORS if not any(each in name for name in known)), None)
        if mark is None:
            marks = " ".join(SEPARATORS)
            raise DataError(f"the labels hold each of {marks}; name a mark that joins them: --label-separator MARK")
        left_out, unseen = (tuple(name for name in names if rows[name] == count) for count in (len(cells), 0))
        return cls(known, mark, config.at_least_one, left_out, unseen)

    def doubts(self) -> Iterator[str]:
        """Yield warnings about labels that are left out."""
        if self.left_out:
            yield f"{pluralize(len(self.left_out), 'label', 'are')} left out, since all rows have it: {quoted(self.left_out)}"
        if self.unseen:
            yield f"{pluralize(len(self.unseen), 'label', 'are')} left out, since no row has it: {quoted(self.unseen)}"

    def to_json(self) -> dict[str, Any]:
        """Return what `targets.target_from_json` reads."""
        return {key: value for key, value in super().to_json().items() if key != "weights"}

    @classmethod
    def cell_of(cls, cell: Cell) -> Cell:
        """Return the labels of a row. Raises ValueError for a number."""
        if isinstance(cell, float):
            raise ValueError(f"has the number {cell:g}, not labels")
        return labels_in(cell)

    def unknown_in(self, cell: Cell) -> str | None:
        """Return the first label of a cell that is not among `labels`."""
        return next((label for label in labels_in(cell) if label not in self._known), None)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset((*self.labels, *self.left_out))

    def text_of(self, cell: Cell) -> str:
        """Return the labels, joined by the `separator`."""
        return self.separator.join(labels_in(cell))

    def encode(self, cells: Iterable[Cell]) -> Y:
        """Return 1 for each label that a row has, and the number of unknown ones (N, C + 1)."""
        places = {**{label: index for index, label in enumerate(self.labels)}, **dict.fromkeys(self.left_out, -1)}
        found = [[places.get(label, self.width) for label in labels_in(cell)] for cell in cells]
        rows = np.repeat(np.arange(len(found)), [*map(len, found)])
        columns = np.fromiter(chain.from_iterable(found), np.int64, len(rows))
        y = np.zeros((len(found), self.width + 1), np.int32)
        np.add.at(y, (rows[columns >= 0], columns[columns >= 0]), 1)
        return y

    def is_known(self, y: Y) -> NDArray[np.bool_]:
        """Return whether each row (N,) has no unknown label."""
        return y[:, -1] == 0

    def strata(self, y: Y) -> NDArray[np.int64]:
        """Return the rarest label of each row (N,), and C for a row without labels."""
        has = y[:, :-1] > 0
        rarest = np.where(has, has.sum(axis=0), len(y) + 1).argmin(axis=1)
        return np.where(has.any(axis=1), rarest, self.width)

    def strata_names(self, y: Y) -> Sequence[str]:
        """Return the rarest label of each row (N), "" for a row without labels."""
        return [*map([*self.labels, ""].__getitem__, self.strata(y).tolist())]

    def divide(self, y: Y, group_ids: NDArray[np.uint64], shares: Sequence[float], seed: int) -> NDArray[np.int64]:
        """Return the part of each row (N,) by iterative stratification (`stratified_parts`)."""
        return stratified_parts(y[:, :-1] > 0, group_ids, shares, seed)

    def check_settings(self, config: FinetuningConfig) -> None:
        """Raise UsageError for the hinge loss, and for metrics that these labels do not have."""
        super().check_settings(config)
        if config.loss == "hinge":
            raise UsageError(
                "finetuning.loss hinge is for one label a row; several labels are learned by cross_entropy"
            )
        if config.thresholds not in (None, "auto"):
            self._check_thresholds(config.thresholds)

    def linear_obstacle(self, y: Y) -> str:
        """Return what a linear model would need if no label divides the rows, else ""."""
        rows = y[:, :-1].sum(axis=0)
        return "" if ((rows > 0) & (rows < len(y))).any() else "training rows with and without a label"

    def weights_of_labels(self, setting: Any, y: Y) -> NDArray[np.float64]:
        """Return the weight of the rows with each label (C,): those given by name, or 1.

        "balanced": the number of the other rows for each of them. Raises UsageError for an unknown label.
        """
        if setting == "balanced":
            rows = y[:, :-1].sum(axis=0).clip(min=1)
            return (len(y) - rows).clip(min=1) / rows
        return weights_by_name(setting, self.labels)

    def weighted(self, weights: NDArray[np.float64]) -> Self:
        """Return the target whose losses of rows with a label have its weight (C,)."""
        return replace(self, weights=tuple(weights.tolist()))

    def loss(self, logits: "Tensor", y: "Tensor", config: FinetuningConfig) -> "Tensor":
        """Return the sum of the binary cross-entropies of each row: (B, C), (B, C + 1) -> (B,).

        Label smoothing s makes 1 - s / 2 and s / 2 of 1 and 0.
        """
        import torch.nn.functional as F

        smooth = config.label_smoothing
        targets = y[:, :-1].to(logits.dtype) * (1 - smooth) + smooth / 2
        weights = self._weights_for(logits)
        losses = F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
        return losses.sum(dim=1)

    def soften(self, probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return the teacher's probabilities (N, C) at the temperature T: sigmoid(logit(p) / T)."""
        import torch

        return torch.sigmoid(torch.logit(probabilities.double()) / temperature).to(probabilities.dtype)

    def teacher_loss(self, logits: "Tensor", probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return T² times the sum over the labels of KL(teacher || student) at the temperature T: (B, C), (B, C) -> (B,).

        The terms of having a label have its weight.
        """
        import torch
        import torch.nn.functional as F

        weights, without = self._weights_for(logits), 1 - probabilities
        crossed = F.binary_cross_entropy_with_logits(
            logits / temperature, probabilities, pos_weight=weights, reduction="none"
        )
        own = torch.xlogy(probabilities, probabilities) * (1.0 if weights is None else weights)
        return temperature**2 * (crossed + own + torch.xlogy(without, without)).sum(dim=1)

    def losses_and_gradient(self, logits: Logits, y: Y) -> tuple[NDArray[np.float64], Logits]:
        """Return the sum of the binary cross-entropies of each row (N,), and its gradient with respect to the logits (N, C)."""
        from scipy.special import expit

        signs, factors = 2.0 * y[:, :-1] - 1, self._factors(y)
        losses = (factors * np.logaddexp(0, -signs * logits)).sum(axis=1)
        return losses, -factors * signs * expit(-signs * logits)

    def losses_of_probabilities(self, probabilities: Probabilities, y: Y) -> NDArray[np.float64]:
        """Return the sum of the binary cross-entropies of each row (N,), given the probabilities (N, C)."""
        chances = np.where(y[:, :-1] > 0, probabilities, 1 - probabilities).clip(min=np.finfo(float).tiny)
        return -(self._factors(y) * np.log(chances)).sum(axis=1)

    def curvature(
        self, logits: Logits, parts: NDArray[np.float64], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the Hessian (P, P) of the summed losses with respect to the weights of the parts (P, N, C).

        With `weights` they are those that are expected where each label has its probability.
        """
        from scipy.special import expit

        chances = expit(logits)
        each = factors[:, None] * chances * (1 - chances)
        if self.weights:
            each *= chances * self.weights + 1 - chances
        return np.einsum("nc,pnc,qnc->pq", each, parts, parts, optimize=True)

    def fit_calibration(self, logits: Logits, y: Y, row_weights: RowWeights = None) -> Calibration:
        """Return the slope and the offset of each label (2, C) (`calibration.fit_calibration`)."""
        return fit_calibration(logits, y[:, :-1] > 0, self._factors(y, row_weights))

    def fit_linear(self, features: "csr_matrix", y: Y, c: float, row_weights: RowWeights = None) -> LinearWeights:
        """Fit one of scikit-learn's LinearSVC for each label on `features` (N, V).

        A label that all rows have, or none, as in a fold, gets the logit 1 or -1, where LinearSVC has the others' sides.
        """
        from sklearn.svm import LinearSVC

        features = features.astype(np.float64)  # once, as LinearSVC would for each label
        factors = self._factors(y, row_weights)
        weights, bias = (
            np.zeros((features.shape[1], self.width), np.float32),
            self.constant_logits(y).astype(np.float32),
        )
        for label, has in enumerate(y[:, :-1].T):
            if 0 < has.sum() < len(has):
                fit = partial(LinearSVC(C=c, tol=TOLERANCE, random_state=0).fit, features, has, factors[:, label])
                solver = interruptible(fit)
                weights[:, label], bias[label] = solver.coef_[0], solver.intercept_[0]
        return weights, bias

    def linear_goals(self, y: Y) -> NDArray[np.float64]:
        """Return 1 for the labels of a row, and -1 for the others (N, C)."""
        return 2.0 * y[:, :-1] - 1

    def linear_factors(self, y: Y, row_weights: RowWeights = None) -> NDArray[np.float64]:
        """Return the factors (N, C) of the losses of each row's labels, with their `weights`."""
        return self._factors(y, row_weights)

    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        """Return 1 for each label that a row has, and -1 for the others (C,)."""
        return np.where(y[:, :-1].any(axis=0), 1.0, -1.0)

    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        """Return sigmoid(logits) of the logits (N, C), none nearer to 0 or 1 than 1 / (C (rows + 2)).

        By Laplace's rule of succession the chance that a row has a mistake after n rows without one is 1 / (n + 2); it is the
        labels' together. The order of the probabilities, and the side of 0.5 on which each lies, stay. With 0 `rows` they are
        not bounded.
        """
        from scipy.special import expit

        least = self.least_probability(rows)
        return (1 - 2 * least) * expit(logits) + least

    def least_probability(self, rows: int) -> float:
        """Return the bound of `probabilities`."""
        return 1 / (self.width * (rows + 2)) if rows else 0.0

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        """Return 1 for each label whose probability (N, C) is at least its threshold (C,), or 0.5: (N, C + 1).

        With `at_least_one`, a row without any has the label with the largest ratio of its probability to its threshold.
        """
        least = np.array(thresholds if len(thresholds) else [0.5] * self.width)
        y = np.zeros((len(probabilities), self.width + 1), np.int32)
        y[:, :-1] = probabilities >= least
        if self.at_least_one:
            none = np.flatnonzero(~y.any(axis=1))
            y[none, (probabilities[none] / least.clip(min=1e-12)).argmax(axis=1)] = 1
        return y

    def fit_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> dict[str, Any]:
        """Choose the thresholds with the best `metric` [ours]: micro_f1, macro_f1, or one of a label, as in f1:LABEL.

        All labels share that of micro F1. A label of fewer than FEWEST_ROWS_OF_CLASS of the rows, whose best threshold says
        little [ours], and those that the metric does not read, have 0.5. So have all where that is as good, as it may be with
        `at_least_one`. The score of the choice is cross-validated: each of THRESHOLD_FOLDS stratified folds is labelled by the
        thresholds of the others. Rows with unknown labels count. Raises UsageError for another metric.
        """
        self._check_thresholds(metric)
        held_out = np.empty_like(y)
        folds = self.divide(y, np.arange(len(y), dtype=np.uint64), [1 / THRESHOLD_FOLDS] * THRESHOLD_FOLDS, 0)
        for fold in np.unique(folds):
            own = folds == fold
            held_out[own] = self.decide(probabilities[own], self._best_thresholds(probabilities[~own], y[~own], metric))
        return {
            "metric": metric,
            "thresholds": dict(zip(self.labels, self._best_thresholds(probabilities, y, metric), strict=True)),
            "cross_validated": self.score(metric, y, held_out),
            "most_probable": self.score(metric, y, self.decide(probabilities)),
            "folds": THRESHOLD_FOLDS,
            "rows": len(y),
        }

    def decode(self, y: Y) -> list[Cell]:
        """Return the labels of each row (N) in the order of their names."""
        found: list[list[str]] = [[] for _ in y]
        for row, column in np.argwhere(y[:, :-1]).tolist():
            found[row].append(self.labels[column])
        return [tuple(sorted(own)) for own in found]

    def hits(self, y: Y, predictions: Y) -> NDArray[np.bool_]:
        """Return whether each row (N,) has exactly the predicted labels."""
        return (y == predictions).all(axis=1)

    def row_values(self, y: Y, predictions: Y) -> NDArray[np.float64]:
        """Return 2 tp - F1 (2 tp + fp + fn) of each row (N,), its part in micro F1: the sum over all rows is 0."""
        right, both = (y * predictions).sum(axis=1), (y + predictions).sum(axis=1)
        return 2 * right - self.score(self.headline, y, predictions) * both

    def errors(self, y: Y, predictions: Y, probabilities: Probabilities) -> NDArray[np.float64]:
        """Return the number of wrongly given and missed labels of each row (N,), and of them the more, the surer they were.

        What is added is the mean of the probabilities of the wrong decisions, which is below 1.
        """
        has, gets = y[:, :-1] > 0, predictions[:, :-1] > 0
        wrong = has != gets
        sure = np.where(wrong, np.where(gets, probabilities, 1 - probabilities), 0).sum(axis=1)
        return wrong.sum(axis=1) + y[:, -1] + sure / wrong.sum(axis=1).clip(min=1)

    def score(self, metric: str, y: Y, predictions: Y) -> float:
        """Return a metric of predicted labels (N, C + 1)."""
        of_counts, of_labels = self._metric(metric)
        columns = label_set_columns(y, predictions, of_labels)
        return float(of_counts(LabelSetCounts.of_sums(columns.sum(axis=0, keepdims=True)))[0])

    def resampled(
        self, metric: str, y: Y, predictions: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
    ) -> NDArray[np.float64]:
        """Return a metric of predicted labels (R, N, C + 1) on resamples (`significance.resampled_sums`)."""
        of_counts, of_labels = self._metric(metric)
        columns = np.array([label_set_columns(y, own, of_labels) for own in predictions])
        drawn = resampled_sums(columns, resamples=resamples, seed=seed)
        return np.concatenate([of_counts(LabelSetCounts.of_sums(sums)) for sums in drawn], axis=1)

    def report(
        self,
        y: Y,
        predictions: Y,
        probabilities: Probabilities | None,
        *,
        loss: float | None = None,
        unknown: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return each of LABEL_SET_METRICS of the predictions (N, C + 1) by name, and:

        `names`, the labels; `ranking_average_precision`, of the probabilities (N, C); `loss`, the mean in nats; `per_label`,
        the precision, recall, F1, average precision and number of rows (`support`) of each. What is of probabilities leaves out
        rows of unknown labels, and is None if there are none.
        """
        counts = LabelSetCounts.of_sums(label_set_columns(y, predictions, slice(None)).sum(axis=0, keepdims=True))
        known, ranking = self.is_known(y), None
        precisions: list[float | None] = [None] * self.width
        if probabilities is not None and known.any():
            has, chances = y[known, :-1], probabilities[known]
            ranking = ranking_average_precision(has, chances)
            precisions = [average_precision(*each) for each in zip(has.T > 0, chances.T, strict=True)]
        columns = [precision(counts), recall(counts), f1(counts), counts.support]
        rows = zip(self.labels, *(column[0].tolist() for column in columns), precisions, strict=True)
        return {
            "names": list(self.labels),
            **{name: float(metric.of_counts(counts)[0]) for name, metric in LABEL_SET_METRICS.items()},
            "ranking_average_precision": ranking,
            "loss": loss,
            "per_label": {
                name: {
                    "precision": own,
                    "recall": found,
                    "f1": both,
                    "average_precision": area,
                    "support": int(support),
                }
                for name, own, found, both, support, area in rows
            },
        }

    @staticmethod
    def notes(report: Mapping[str, Any]) -> Iterator[Note]:
        """Yield notes on labels without a dev row, and on labels that no row with them gets."""
        labels = report["per_label"]
        if without := [name for name, own in labels.items() if not own["support"]]:
            of = f"{len(without):,} of {len(labels):,} labels ({quoted(without)})"
            yield Note(f"no dev row for {of}; each counts as 0 in macro F1")
        missed = [name for name, own in labels.items() if own["support"] and not own["recall"]]
        if missed:
            of = f"{len(missed):,} of {len(labels):,} labels ({quoted(missed)})"
            what = "; --set finetuning.thresholds=macro_f1 chooses a threshold for each"
            yield Note(f"no dev row gets {of} rightly{what}", "warning")

    @staticmethod
    def notes_on_rows(report: Mapping[str, Any]) -> Iterator[Note]:
        """Yield a note with the labels that no row has."""
        labels = report["per_label"]
        if without := [name for name, own in labels.items() if not own["support"]]:
            yield Note(f"no row for {len(without):,} of {len(labels):,} labels ({quoted(without)})", "detail")

    def mistake(self, label: Cell, y: Any, prediction: Any, probabilities: NDArray[np.float64]) -> dict[str, str]:
        """Return the labels that the row has and does not get (`missed`), and those that it gets and has not (`wrong`).

        Beside each list are its probabilities, that of a label not seen in training empty; both are joined by the `separator`.
        """
        has, gets = {*labels_in(label)} - {*self.left_out}, {*labels_in(self.decode(prediction[None])[0])}
        chances = {name: f"{chance:.6f}" for name, chance in zip(self.labels, probabilities.tolist(), strict=True)}
        lists = {"missed": sorted(has - gets), "wrong": sorted(gets - has)}
        return {
            column: self.separator.join(texts)
            for name, labels in lists.items()
            for column, texts in ((name, labels), (f"{name}_probabilities", [chances.get(own, "") for own in labels]))
        }

    def suspects(self, probabilities: Probabilities, y: Y) -> list[tuple[int, list[str]]]:
        """Return the rows with labels that may be missing or wrong, by the probability of the least probable decision on them.

        Each label is a task of two classes (`find_suspects`).
        """
        has, names = y[:, :-1] > 0, np.array(self.labels)
        doubted = np.zeros_like(has)
        for label, chances in enumerate(probabilities.T):
            doubted[find_suspects(np.stack([1 - chances, chances], axis=1), y[:, label]), label] = True
        least = np.where(doubted, np.where(has, probabilities, 1 - probabilities), np.inf).min(axis=1)
        rows = np.argsort(least, kind="stable")[: doubted.any(axis=1).sum()].tolist()
        missing, wrong = doubted & ~has, doubted & has
        changes = ((row, (names[missing[row]], names[wrong[row]])) for row in rows)
        return [(row, [*map(self.separator.join, labels), f"{least[row]:.6f}"]) for row, labels in changes]

    def constant(self, y: Y) -> Y:
        """Return the most frequent set of labels for each row, (N, C + 1)."""
        sets, counts = np.unique(y[self.is_known(y)], axis=0, return_counts=True)
        return np.repeat(sets[[counts.argmax()]], len(y), axis=0)

    def calibration(self, probabilities: Probabilities, y: Y) -> dict[str, Any]:
        """Return the calibration of the probability of each label of each row (`one_label.binned`), with the mean loss."""
        found = binned(probabilities.ravel(), y[:, :-1].ravel() > 0)
        return {**found, "loss": float(self.losses_of_probabilities(probabilities, y).mean())}

    def intervals(self, y: Y, predictions: Y) -> dict[str, list[float] | None]:
        """Return the 95 % percentiles of each metric over RESAMPLES_OF_INTERVALS resamples of the rows (N,), by name.

        That of macro F1 is None where a label has a row and fewer than FEWEST_ROWS_OF_CLASS, as `significance.intervals` says.
        """
        support = y[:, :-1].sum(axis=0)
        is_few = ((support > 0) & (support < FEWEST_ROWS_OF_CLASS)).any()
        columns = label_set_columns(y, predictions, slice(0) if is_few else slice(None))
        drawn = resampled_sums(columns[None], resamples=RESAMPLES_OF_INTERVALS)
        counts = LabelSetCounts.of_sums(np.concatenate([sums[0] for sums in drawn]))
        names = [name for name in LABEL_SET_METRICS if name != "macro_f1" or not is_few]
        found = {name: np.quantile(LABEL_SET_METRICS[name].of_counts(counts), LIMITS).tolist() for name in names}
        return {name: found.get(name) for name in LABEL_SET_METRICS}

    def _metric(self, name: str) -> tuple[CountMetric, slice]:
        """Return a metric, and the labels whose own columns it reads. Raises UsageError if it is none of several labels."""
        if name in LABEL_SET_METRICS:
            return LABEL_SET_METRICS[name].of_counts, slice(None) if name == "macro_f1" else slice(0)
        self.check_metric("metric", name)
        label = name.partition(":")[2]
        place = self.labels.index(label)
        return metric_named(name, (label,)).of_counts, slice(place, place + 1)

    def _check_thresholds(self, metric: str) -> None:
        self._metric(metric)
        if metric in LABEL_SET_METRICS and metric not in ("micro_f1", "macro_f1"):
            known = ", ".join(("micro_f1", "macro_f1", *(f"{kind}:LABEL" for kind in OF_LABEL)))
            raise UsageError(f"thresholds of several labels are chosen for one of {known}, not {metric}")

    def _best_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> list[float]:
        """Return the thresholds (C,) with the best metric on these rows.

        For micro F1 all labels share one, which is best where the probabilities are right (Koyejo et al., 2015). It is the one
        with the best F1 of expected hits: those that are counted depend more on the rows.
        """
        kind, _, label = metric.partition(":")
        has, values = y[:, :-1] > 0, [0.5] * self.width
        if metric == "micro_f1":
            chances = probabilities.ravel()
            cuts = LabelCuts.of(chances, chances)
            best = cuts.best(f1(cuts.counts._replace(support=cuts.counts.support + y[:, -1].sum())))
            values = [float(cuts.values[best])] * self.width
        else:
            of_label = OF_LABEL[kind][1] if label else f1
            for place in [self.labels.index(label)] if label else range(self.width):
                if has[:, place].sum() >= FEWEST_ROWS_OF_CLASS:
                    cuts = LabelCuts.of(probabilities[:, place], has[:, place])
                    values[place] = float(cuts.values[cuts.best(of_label(cuts.counts))])
        before, after = (self.score(metric, y, self.decide(probabilities, own)) for own in ((), values))
        return values if after > before else [0.5] * self.width

    def _weights_for(self, logits: "Tensor") -> "Tensor | None":
        """Return the `weights` (C,) on the device of the `logits`; None: there are none."""
        return logits.new_tensor(self.weights) if self.weights else None

    def _factors(self, y: Y, row_weights: RowWeights = None) -> NDArray[np.float64]:
        """Return the factor of the loss of each label of each row (N, C)."""
        factors = np.where(y[:, :-1] > 0, self.weights or 1.0, 1.0)
        return factors if row_weights is None else factors * row_weights[:, None]
