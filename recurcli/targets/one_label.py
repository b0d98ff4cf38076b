"""`OneLabel`: each row has one label of C classes. `y` are class numbers (N,), and -1 for a label not seen in training.

Shapes: N rows, C classes, V features, P parts of a model.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, FinetuningConfig
from recurcli.errors import UsageError, did_you_mean, escaped, pluralize, quoted
from recurcli.log import Note
from recurcli.metrics import (
    METRICS,
    OF_PROBABILITIES,
    cells_of,
    classification_report,
    counts_of,
    metric_named,
    rank_report,
)
from recurcli.process import interruptible
from recurcli.significance import FEWEST_ROWS_OF_CLASS, RESAMPLES, intervals, resampled_scores, share_interval, tango
from recurcli.targets.suspects import find_suspects
from recurcli.targets.target import Cell, LinearWeights, Logits, Probabilities, RowWeights, Target, Y
from recurcli.targets.thresholds import fit_thresholds

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

TOLERANCE = 0.1
"""LIBLINEAR's own stopping tolerance. Ours: on four sets 1e-4, scikit-learn's, has the same accuracy in twice the time."""
UNSEEN = -2.0
"""Logit of a class without training rows. LinearSVC's logits of a class that a row does not have are about -1. Ours."""
BINS = 15
"""Number of equal bins of the highest probability, as in Guo et al., section 4."""


def mixed_share(rows: int, classes: int) -> float:
    """Return the weight of the uniform distribution in a mixture that bounds each probability by 1 - 1 / (rows + 2)."""
    return classes / ((classes - 1) * (rows + 2)) if rows and classes > 1 else 0.0


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in the order of their classes: by value if all are whole numbers, else as text."""
    known = sorted(set(labels))
    are_numbers = all(is_number(label) and len(label) < 10 for label in known)
    return tuple(sorted(known, key=int) if are_numbers else known)


def is_number(word: str) -> bool:
    """Return whether `word` consists of ASCII digits."""
    return word.isascii() and word.isdigit()


def weights_by_name(setting: Any, labels: Sequence[str]) -> NDArray[np.float64]:
    """Return the weight of each of the `labels` (C,) in `finetuning.class_weights`, 1 for one that it does not name.

    Raises UsageError for an unknown label.
    """
    weights = np.ones(len(labels))
    for label, weight in setting.items() if isinstance(setting, dict) else ():
        if label not in labels:
            raise UsageError(f"finetuning.class_weights: unknown label '{escaped(label)}'{did_you_mean(label, labels)}")
        weights[labels.index(label)] = weight
    return weights


def binned(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the expected calibration error (Guo et al., ICML 2017, equation 3) and its bins, for the JSON.

    `ece` is the mean of |accuracy - confidence| of the bins, by their number of decisions, each of which has a `confidence` and
    is `right` or not, (N,). `bins` lists the bins that have some, with their limits.
    """
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
    return {
        "ece": sum(own["rows"] * abs(own["accuracy"] - own["confidence"]) for own in bins) / len(right),
        "bins": bins,
    }


class OneLabel(Target):
    """One label a row. The encoder learns it by cross-entropy or hinge loss, the linear model by one SVM a class."""

    kind = "one"
    scores = tuple(METRICS)
    tables = ("names",)
    metrics, of_probabilities = METRICS, OF_PROBABILITIES
    headline = "accuracy"
    constant_name, constant_words = "majority", "majority class"
    prior_weights = (0.5, 2.0)
    """Ours: about those fitted on 600 TNEWS rows."""
    has_score, mistake_columns = True, ("score", "prediction", "label")

    @classmethod
    def of(cls, cells: Collection[Cell], config: DataConfig, labels: tuple[str, ...] = ()) -> Self:
        """Return the target whose classes are the `labels`, or else the different cells, in `ordered_labels`' order."""
        return cls(labels or ordered_labels(map(str, {*cells})))

    @classmethod
    def cell_of(cls, cell: Cell) -> Cell:
        """Return the label. Raises ValueError for a list of none or several labels."""
        if not isinstance(cell, tuple):
            return cell
        if len(cell) != 1:
            shown = f" ({quoted(cell)})" if cell else ""
            raise ValueError(f"has {pluralize(len(cell), 'label')}{shown}; a row has one; --target several takes more")
        return cell[0]

    def unknown_in(self, cell: Cell) -> str | None:
        """Return the label if it is not among `labels`."""
        return None if cell in self.labels else str(cell)

    def encode(self, cells: Iterable[Cell]) -> Y:
        """Return the class number of each label (N,), and -1 for one that is not among `labels`."""
        number: dict[Cell, int] = {label: index for index, label in enumerate(self.labels)}
        return np.fromiter((number.get(cell, -1) for cell in cells), np.int64)

    def is_known(self, y: Y) -> NDArray[np.bool_]:
        """Return whether each row (N,) has one of the `labels`."""
        return y >= 0

    def strata(self, y: Y) -> NDArray[np.int64]:
        """Return the classes (N,)."""
        return y

    def strata_names(self, y: Y) -> Sequence[str]:
        """Return the label of each row (N)."""
        return [*map(str, self.decode(y))]

    def linear_obstacle(self, y: Y) -> str:
        """Return what a linear model would need if all rows have one class, else ""."""
        return "" if len(np.unique(y)) > 1 else "training rows of two classes"

    def weights_of_labels(self, setting: Any, y: Y) -> NDArray[np.float64]:
        """Return the weight of each class (C,): "balanced" ones, those given by name, or 1.

        Raises UsageError for an unknown label.
        """
        if setting == "balanced":
            return len(y) / (self.width * np.maximum(np.bincount(y, minlength=self.width), 1))
        return weights_by_name(setting, self.labels)

    def row_weights(self, weights: NDArray[np.float64], y: Y) -> NDArray[np.float64]:
        """Return the weight of the class of each row (N,)."""
        return weights[y]

    def loss(self, logits: "Tensor", y: "Tensor", config: FinetuningConfig) -> "Tensor":
        """Return the cross-entropy, or the hinge loss, of each row: (B, C), (B,) -> (B,)."""
        import torch.nn.functional as F

        from recurcli.ops.losses import multiclass_hinge

        if config.loss == "hinge":
            return multiclass_hinge(logits, y)
        return F.cross_entropy(logits, y, reduction="none", label_smoothing=config.label_smoothing)

    def soften(self, probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return the teacher's probabilities (N, C) at the temperature (`ops.losses.soften`)."""
        from recurcli.ops.losses import soften

        return soften(probabilities, temperature)

    def teacher_loss(self, logits: "Tensor", probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return the loss of each row beside the teacher's softened probabilities: (B, C), (B, C) -> (B,)."""
        from recurcli.ops.losses import distillation_loss

        return distillation_loss(logits, probabilities, temperature)

    def losses_and_gradient(self, logits: Logits, y: Y) -> tuple[NDArray[np.float64], Logits]:
        """Return the cross-entropy of each row in nats (N,), and its gradient with respect to the logits (N, C)."""
        from scipy.special import log_softmax

        rows, log_probabilities = np.arange(len(y)), log_softmax(logits, axis=1)
        gradient = np.exp(log_probabilities)
        gradient[rows, y] -= 1
        return -log_probabilities[rows, y], gradient

    def losses_of_probabilities(self, probabilities: Probabilities, y: Y) -> NDArray[np.float64]:
        """Return -log of the probability of the class of each row (N,), given the probabilities (N, C)."""
        return -np.log(probabilities[np.arange(len(y)), y].clip(min=np.finfo(float).tiny))

    def curvature(
        self, logits: Logits, parts: NDArray[np.float64], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the Hessian (P, P) of the summed cross-entropies with respect to the weights of the parts (P, N, C)."""
        from scipy.special import softmax

        probabilities = softmax(logits, axis=1)
        means = np.einsum("nc,pnc->pn", probabilities, parts)
        squares = np.einsum("n,nc,pnc,qnc->pq", factors, probabilities, parts, parts, optimize=True)
        return squares - (factors * means) @ means.T

    def fit_linear(self, features: "csr_matrix", y: Y, c: float, row_weights: RowWeights = None) -> LinearWeights:
        """Fit scikit-learn's LinearSVC on `features` (N, V). A class without a training row gets the logit UNSEEN."""
        from sklearn.svm import LinearSVC

        classes = np.unique(y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about many classes, and about steps that did not converge
            solver = interruptible(partial(LinearSVC(C=c, tol=TOLERANCE, random_state=0).fit, features, y, row_weights))
        weights, bias = solver.coef_, solver.intercept_
        if len(classes) == 2:  # one vector stands for both classes
            weights, bias = np.concatenate([-weights, weights]), np.concatenate([-bias, bias])
        all_weights = np.zeros((self.width, features.shape[1]), np.float32)
        all_bias = np.full(self.width, UNSEEN, np.float32)
        all_weights[classes], all_bias[classes] = weights, bias
        return np.ascontiguousarray(all_weights.T), all_bias

    def linear_goals(self, y: Y) -> NDArray[np.float64]:
        """Return 1 for the class of a row, and -1 for the others (N, C)."""
        return np.where(y[:, None] == np.arange(self.width), 1.0, -1.0)

    def default_bias(self, bias: NDArray[np.float32], y: Y) -> NDArray[np.float32]:
        """Return the bias (C,) with UNSEEN for classes without a row."""
        return np.where(np.isin(np.arange(self.width), y), bias, np.float32(UNSEEN))

    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        """Return 1 for the class of the rows, as LinearSVC's logit of the right class, and UNSEEN for the others (C,)."""
        return np.where(np.isin(np.arange(self.width), y), 1.0, UNSEEN)

    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        """Return softmax(logits) of the logits (N, C), mixed with the uniform distribution: none is above 1 - 1 / (rows + 2).

        With 0 `rows` nothing is mixed. By Laplace's rule of succession the chance of a mistake after n rows without one is
        1 / (n + 2). The order of the labels of a row stays, and that of the rows by the probability of one of two labels.
        """
        probabilities: Probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        if mixed := mixed_share(rows, self.width):
            probabilities = np.minimum((1 - mixed) * probabilities + mixed / self.width, 1 - 1 / (rows + 2))
        return probabilities

    def least_probability(self, rows: int) -> float:
        """Return what each class has of the uniform distribution (`mixed_share`)."""
        return mixed_share(rows, self.width) / self.width

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        """Return the class (N,) with the largest ratio of its probability (N, C) to its threshold (C,), if there are any."""
        return (probabilities / np.array(thresholds) if thresholds else probabilities).argmax(axis=1)

    def fit_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> dict[str, Any]:
        """Choose the thresholds with the best `metric` (`thresholds.fit_thresholds`). Rows of unknown labels are left out."""
        known = self.is_known(y)
        return fit_thresholds(probabilities[known], y[known], metric, self.labels)

    def decode(self, y: Y) -> list[Cell]:
        """Return the labels (N) of class numbers (N,)."""
        return [self.labels[number] for number in y.tolist()]

    def hits(self, y: Y, predictions: Y) -> NDArray[np.bool_]:
        """Return whether each predicted class (N,) is that of the row, (N,)."""
        return y == predictions

    def errors(self, y: Y, predictions: Y, probabilities: Probabilities) -> NDArray[np.float64]:
        """Return the probability of the predicted class of each row whose prediction is wrong, and 0 for the others (N,)."""
        return np.where(self.hits(y, predictions), 0.0, probabilities[np.arange(len(y)), predictions])

    def score(self, metric: str, y: Y, predictions: Y) -> float:
        """Return a metric of predicted classes (N,)."""
        return float(metric_named(metric, self.labels).of_counts(counts_of(y, predictions, range(self.width)))[0])

    def resampled(
        self, metric: str, y: Y, predictions: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
    ) -> NDArray[np.float64]:
        """Return a metric of predicted classes (R, N) on resamples (`significance.resampled_scores`)."""
        of_counts = metric_named(metric, self.labels).of_counts
        return resampled_scores(of_counts, y, predictions, resamples=resamples, seed=seed)

    def report(
        self,
        y: Y,
        predictions: Y,
        probabilities: Probabilities | None,
        *,
        loss: float | None = None,
        unknown: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the `classification_report` of the predictions (N,), and the `rank_report` of the probabilities (N, C).

        The latter leaves out rows of unknown labels. `probabilities` None: there is none.
        """
        known, report = self.is_known(y), classification_report(y, predictions, self.labels, loss=loss, unknown=unknown)
        return report if probabilities is None else {**report, **rank_report(y[known], probabilities[known])}

    @staticmethod
    def notes(report: Mapping[str, Any]) -> Iterator[Note]:
        """Yield notes on classes without a dev row, and on a model that predicts one class alone."""
        names, cells = report["names"], cells_of(report)
        predicted, labelled = {prediction for _, prediction in cells}, {label for label, _ in cells}
        if without := [name for number, name in enumerate(names) if number not in labelled]:
            of = f"{len(without):,} of {len(names):,} classes ({quoted(without)})"
            yield Note(f"no dev row for {of}, which the dev scores leave out")
        if len(predicted) == 1 < len(labelled):
            only = escaped(names[predicted.pop()])
            yield Note(f"every dev row is predicted as '{only}': the model tells no classes apart", "warning")

    @staticmethod
    def notes_on_rows(report: Mapping[str, Any]) -> Iterator[Note]:
        """Yield a note with the classes that have no row, and a warning with those that have too few rows for `intervals`."""
        support = {name: own["support"] for name, own in report["per_class"].items()}
        if missing := [name for name, rows in support.items() if not rows]:
            of = f"{len(missing):,} of {len(support):,} classes ({quoted(missing)})"
            yield Note(f"no row for {of}, which the scores leave out", "detail")
        if rare := {name: rows for name, rows in support.items() if 0 < rows < FEWEST_ROWS_OF_CLASS}:
            named = [f"'{escaped(name, 40)}' has {rows}" for name, rows in rare.items()]
            shown = ", ".join([*named[:3], *["…"][: len(named) > 3]])
            few = f"{'a class has' if len(rare) == 1 else f'{len(rare):,} classes have'} fewer than {FEWEST_ROWS_OF_CLASS} rows"
            what = f"{few} ({shown}), so only the accuracy and the recall of such a class have an interval"
            yield Note(what, "warning")

    def mistake(self, label: Cell, y: Any, prediction: Any, probabilities: NDArray[np.float64]) -> dict[str, str]:
        """Return the probability of the predicted class, and of the right one, which is empty for an unknown label."""
        own = f"{probabilities[y]:.6f}" if y >= 0 else ""
        return {"score": f"{probabilities[prediction]:.6f}", "label_probability": own}

    def suspects(self, probabilities: Probabilities, y: Y) -> list[tuple[int, list[str]]]:
        """Return the rows of `find_suspects`, each with its most probable class and the probability of its own."""
        best, rows = self.decode(self.decide(probabilities)), find_suspects(probabilities, y).tolist()
        return [(row, [str(best[row]), f"{probabilities[row, y[row]]:.6f}"]) for row in rows]

    def constant(self, y: Y) -> Y:
        """Return the most frequent class for each row (N,)."""
        return np.full_like(y, np.bincount(y[self.is_known(y)]).argmax())

    def calibration(self, probabilities: Probabilities, y: Y) -> dict[str, Any]:
        """Return the calibration of the most probable class (Guo et al., ICML 2017) on the classes (N,).

        `ece` is the expected calibration error (equation 3): the mean over the rows of |accuracy - confidence| of their bin.
        `bins` lists the bins that have rows, with their limits. `loss` is the mean cross-entropy in nats.
        """
        found = binned(probabilities.max(axis=1), self.hits(y, self.decide(probabilities)))
        return {**found, "loss": float(self.losses_of_probabilities(probabilities, y).mean())}

    def intervals(self, y: Y, predictions: Y) -> dict[str, list[float] | None]:
        """Return the 95 % interval of each metric of predicted classes (`significance.intervals`)."""
        return intervals(y, predictions, self.labels)

    def interval(self, y: Y, predictions: Y) -> tuple[float, float]:
        """Return the 95 % interval of the accuracy (Wilson, 1927)."""
        return share_interval(int(self.hits(y, predictions).sum()), len(y))

    def paired_interval(self, y: Y, first: Y, second: Y) -> tuple[float, float] | None:
        """Return the 95 % interval of the accuracy of the predictions `first` less that of `second` (Tango, 1998)."""
        right, other = self.hits(y, first), self.hits(y, second)
        return tango(int((right & ~other).sum()), int((other & ~right).sum()), len(y)).interval
