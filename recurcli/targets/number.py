"""`Number`: each row has one number, which is predicted by least squares. `y` are the numbers (N,).

Shapes: N rows, V features, P parts of a model. The one logit of a row is its number less the mean of the training rows, in
their standard deviations; its "probability" is the predicted number itself.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, FinetuningConfig
from recurcli.errors import DataError, UsageError, escaped, pluralize, quoted
from recurcli.log import Note
from recurcli.metrics import (
    NUMBER_METRIC_NAMES,
    NUMBER_METRICS,
    SQUARED_ERROR,
    Metric,
    NumberSums,
    is_of_numbers,
    metric_named,
)
from recurcli.significance import LIMITS, RESAMPLES, RESAMPLES_OF_INTERVALS, resampled_sums
from recurcli.targets.target import Cell, LinearWeights, Logits, Probabilities, RowWeights, Target, Y
from recurcli.validation import Positive

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

TOLERANCE = 1e-3
"""Relative residual at which the ridge regression stops. Ours: the weights are then within 0.2 % of the exact ones; 1e-4,
scikit-learn's, takes up to twice the time. By conjugate gradients it takes a fifth of the time of SAG."""
LARGEST_ERROR = 3.0
"""Standard deviations above which an error counts no more in SGD. Ours: texts that have most n-grams in common would else
drive it to infinity. With half the gradient it is as good as ridge regression: R² 0.457 and 0.458 on 10,000 rows."""
STRATA = 10
"""The strata of numbers are their deciles."""
FAR = 20.0
"""Standard deviations from the mean beyond which a training number is warned of. Ours: of 10,000 rows of an exponential
distribution the largest is at 9."""
HARDLY = 0.1
"""Predictions whose standard deviation is below this share of that of the numbers hardly differ. Ours."""
FAR_OFF = 3.0
"""Robust standard deviations of the residuals beyond which a number may be wrong. Ours: of normal residuals 0.3 % are there."""
MAD_OF_NORMAL = 0.6745
"""The median absolute deviation of a normal distribution, in its standard deviations."""
FEWEST_ROWS = 10
"""Rows that a resampled interval needs, as of each class (`significance.FEWEST_ROWS_OF_CLASS`)."""


def deciles(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the decile of each number (N,) by rank, from 0. Equal numbers are in one."""
    return np.searchsorted(np.sort(numbers), numbers) * STRATA // max(1, len(numbers))


@dataclass(frozen=True)
class Number(Target):
    """One number a row. The encoder learns it by squared error, the linear model by ridge regression."""

    kind = "number"
    scores = ("mae", "rmse", "r2", "pearson", "spearman")
    metrics = NUMBER_METRICS
    headline, stratum, loss_name, has_labels = "mae", "decile", SQUARED_ERROR, False
    constant_name, constant_words = "mean", "constant mean"
    label_noun, suspect_columns = "number", ("suggested", "distance")
    mistake_columns = ("error", "prediction", "label")
    model_words, linear_solver = "model that predicts a number of each text", "Ridge"

    low: float
    """The smallest number of the training rows, and the smallest that is predicted."""
    high: float
    mean: float
    std: Positive[float]
    """The standard deviation of the numbers of the training rows."""
    is_whole: bool
    """Whether all numbers of the training rows are whole."""

    @classmethod
    def of(cls, cells: Collection[Cell], config: DataConfig, labels: tuple[str, ...] = ()) -> Self:
        """Return the target of rows with these numbers. Raises DataError if all are equal, or too large to be squared.

        Raises UsageError if a setting names `labels`.
        """
        if labels:
            raise UsageError(f"labels are named ({quoted(labels)}), and the rows have numbers")
        numbers = np.array([cls.cell_of(cell) for cell in cells])
        low, high = float(numbers.min()), float(numbers.max())
        if low == high:
            every = "its only row" if len(numbers) == 1 else f"all {len(numbers):,} rows"
            raise DataError(f"holds only {low:g} in {every}; there is nothing to predict")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = float(numbers.mean()), float(numbers.std())
        if not (math.isfinite(std) and std > 0):
            raise DataError(f"holds numbers from {low:g} to {high:g}, whose variance no double can hold; rescale them")
        return cls(("number",), low, high, mean, std, bool((numbers == np.rint(numbers)).all()))

    def doubts(self) -> Iterator[str]:
        """Yield a warning on a number far from the others, which counts with the square of its distance."""
        far = max(self.low, self.high, key=lambda number: abs(number - self.mean))
        if (distance := abs(far - self.mean) / self.std) > FAR:
            what = f"the number {far:g} is {distance:.0f} standard deviations from the mean"
            yield f"{what}, and squared errors count it most; take logarithms of such numbers, or leave it out"

    @classmethod
    def cell_of(cls, cell: Cell) -> float:
        """Return the number. Raises ValueError with the reason for a list, and for text that is no finite number."""
        if isinstance(cell, tuple):
            shown = f" ({quoted(cell)})" if cell else ""
            raise ValueError(f"has {pluralize(len(cell), 'label')}{shown} in a list, not a number")
        try:
            number = float(cell)
        except ValueError:
            way_out = "; decimals stand after a point, and a row without a number has an empty cell"
            raise ValueError(f"label '{escaped(cell)}' is not a number{way_out}") from None
        if not math.isfinite(number):
            raise ValueError(f"label '{escaped(cell)}' is not a finite number")
        return number

    def describe(self, column: str) -> str:
        """Return the range of the numbers in words."""
        return f"numbers from '{escaped(column)}': {self.low:g} to {self.high:g}"

    def text_of(self, cell: Cell) -> str:
        """Return a number with as many decimals as give the standard deviation of the training rows six digits."""
        decimals = max(0, 5 - math.floor(math.log10(self.std)))
        text = f"{round(self.cell_of(cell), decimals) + 0.0:.{decimals}f}"  # + 0.0: no -0
        return text.rstrip("0").rstrip(".") if decimals else text

    def encode(self, cells: Iterable[Cell]) -> Y:
        """Return the numbers (N,)."""
        return np.fromiter(map(self.cell_of, cells), np.float64)

    def is_known(self, y: Y) -> NDArray[np.bool_]:
        """Return True for each row (N,)."""
        return np.ones(len(y), np.bool_)

    def strata(self, y: Y) -> NDArray[np.int64]:
        """Return the decile of each number (N,)."""
        return deciles(y)

    def strata_names(self, y: Y) -> Sequence[str]:
        """Return the smallest and the largest number of the decile of each row (N), such as 0.5 to 1.25."""
        strata = self.strata(y)
        ends = {each: [end(y[strata == each]) for end in (np.min, np.max)] for each in np.unique(strata).tolist()}
        return [" to ".join(dict.fromkeys(f"{end:.12g}" for end in ends[each])) for each in strata.tolist()]

    def linear_obstacle(self, y: Y) -> str:
        """Return what a linear model would need if all numbers are equal, else ""."""
        return "" if len(y) and y.min() < y.max() else "training rows with two different numbers"

    def check_settings(self, config: FinetuningConfig) -> None:
        """Raise UsageError for a setting that is of classes."""
        if config.metric != "auto":
            self.check_metric("finetuning.metric", config.metric)
        settings = {
            "loss": config.loss == "hinge",
            "label_smoothing": config.label_smoothing > 0,
            "thresholds": config.thresholds not in (None, "auto"),
            "class_weights": config.class_weights != "none",
        }
        for name in (name for name, is_set in settings.items() if is_set):
            raise UsageError(f"finetuning.{name} is for classes, and the labels are numbers; leave it out")

    def check_metric(self, whose: str, name: str) -> None:
        """Raise UsageError for a metric of labels, for that of whole numbers if there are others, and for an unusable cut."""
        if not is_of_numbers(name) or (name in NUMBER_METRICS and name not in self._names):
            known = ", ".join((*self._names, *NUMBER_METRIC_NAMES[len(NUMBER_METRICS) :]))
            raise UsageError(f"{whose}: these numbers have {known}, not {escaped(name)}")
        metric_named(name)  # refuses a cut that is not a number

    def weights_of_labels(self, setting: Any, y: Y) -> NDArray[np.float64]:
        """Return [1]."""
        return np.ones(1)

    def loss(self, logits: "Tensor", y: "Tensor", config: FinetuningConfig) -> "Tensor":
        """Return the squared error of each row, in training variances: (B, 1), (B,) -> (B,)."""
        return (logits[:, 0] - self._standardized(y).to(logits.dtype)) ** 2

    def soften(self, probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return a teacher's numbers (N, 1) as they are."""
        return probabilities

    def teacher_loss(self, logits: "Tensor", probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return the squared error of each row against a teacher's number, as `loss`: (B, 1), (B, 1) -> (B,)."""
        return (logits - self._standardized(probabilities.double()).to(logits.dtype))[:, 0] ** 2

    def losses_and_gradient(self, logits: Logits, y: Y) -> tuple[NDArray[np.float64], Logits]:
        """Return the squared error of each row in training variances (N,), and its gradient with respect to the logits (N, 1).

        Of the mean of the training rows it is 1 in the mean.
        """
        errors = logits[:, 0] - self._standardized(y)
        return errors**2, 2 * errors[:, None]

    def losses_of_probabilities(self, probabilities: Probabilities, y: Y) -> NDArray[np.float64]:
        """Return the squared error of each predicted number (N, 1) in training variances (N,)."""
        return ((probabilities[:, 0] - y) / self.std) ** 2

    def curvature(
        self, logits: Logits, parts: NDArray[np.float64], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the Hessian (P, P) of the summed squared errors with respect to the weights of the parts (P, N, 1)."""
        own = parts[..., 0]
        return 2 * (factors * own) @ own.T

    def fit_linear(self, features: "csr_matrix", y: Y, c: float, row_weights: RowWeights = None) -> LinearWeights:
        """Fit scikit-learn's Ridge on `features` (N, V): the least (|w|² + b²) / 2 + c times the sum of the rows' losses."""
        from scipy.sparse import csr_matrix, hstack
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / (2 * c), solver="sparse_cg", tol=TOLERANCE, fit_intercept=False)
        with_ones = hstack([features, csr_matrix(np.ones((len(y), 1), np.float32))], format="csr")
        weights = ridge.fit(with_ones, self._standardized(y).astype(np.float32), row_weights).coef_.astype(np.float32)
        return weights[:-1, None], weights[-1:]

    def linear_goals(self, y: Y) -> NDArray[np.float64]:
        """Return the numbers in deviations from their mean (N, 1)."""
        return self._standardized(y)[:, None]

    def linear_loss_gradient(
        self, logits: NDArray[np.floating[Any]], y: Y, row_weights: RowWeights = None
    ) -> NDArray[np.float64]:
        """Return the gradient (B, 1) of half the squared error, LARGEST_ERROR at most, with which no step of SGD diverges."""
        errors = (logits - self.linear_goals(y)).clip(-LARGEST_ERROR, LARGEST_ERROR)
        return self.linear_factors(y, row_weights) * errors

    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        """Return the logit (1,) of the mean of the rows."""
        return self._standardized(y.mean(keepdims=True))

    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        """Return the predicted numbers (N, 1) of logits (N, 1), within the range of the training rows."""
        return (self.mean + self.std * logits).clip(self.low, self.high)

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        """Return the predicted numbers (N,)."""
        return probabilities[:, 0]

    def decode(self, y: Y) -> list[Cell]:
        """Return the numbers (N)."""
        return [*y.tolist()]

    def hits(self, y: Y, predictions: Y) -> NDArray[np.bool_]:
        """Return whether each prediction (N,) is the number of its row, (N,).

        Both are rounded if the training rows have whole numbers. Otherwise hardly any prediction is, and lists of mistakes
        have all rows.
        """
        return np.rint(y) == np.rint(predictions) if self.is_whole else y == predictions

    def row_values(self, y: Y, predictions: Y) -> NDArray[np.float64]:
        """Return how far each prediction is from the number (N,)."""
        return np.abs(y - predictions)

    def agreement(self, first: Y, second: Y) -> float:
        """Return 1 less the mean square of the differences in variances of the training rows, as R² is of errors."""
        return 1 - float((((second - first) / self.std) ** 2).mean())

    def errors(self, y: Y, predictions: Y, probabilities: Probabilities) -> NDArray[np.float64]:
        """Return how far each prediction is from the number (N,)."""
        return np.abs(y - predictions)

    def score(self, metric: str, y: Y, predictions: Y) -> float:
        """Return a metric of predicted numbers (N,)."""
        own = self._metric(metric)
        return float(own.of_counts(NumberSums.of_columns(own.columns(y, predictions).sum(axis=0))))

    def resampled(
        self, metric: str, y: Y, predictions: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
    ) -> NDArray[np.float64]:
        """Return a metric of predicted numbers (R, N) on resamples.

        The ranks of Spearman's coefficient are those of all rows: a resample does not rank its rows anew.
        """
        own = self._metric(metric)
        drawn = resampled_sums(own.columns(y, predictions), resamples=resamples, seed=seed)
        return np.concatenate([own.of_counts(NumberSums.of_columns(sums)) for sums in drawn], axis=1)

    def report(
        self,
        y: Y,
        predictions: Y,
        probabilities: Probabilities | None,
        *,
        loss: float | None = None,
        unknown: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the metrics of predicted numbers (N,), `loss`, and the standard deviations of both (`spread`)."""
        spread = {"numbers": float(y.std()), "predictions": float(predictions.std())}
        return {**{name: self.score(name, y, predictions) for name in self._names}, "loss": loss, "spread": spread}

    @staticmethod
    def notes(report: Mapping[str, Any]) -> Iterator[Note]:
        """Yield a warning on predictions that are all equal, or hardly differ."""
        numbers, predictions = report["spread"]["numbers"], report["spread"]["predictions"]
        if numbers and predictions < HARDLY * numbers:
            what = f"a standard deviation of {predictions:.3g}, and their numbers one of {numbers:.3g}"
            yield Note(f"the predictions of the dev rows hardly differ: they have {what}", "warning")

    def mistake(self, label: Cell, y: Any, prediction: Any, probabilities: NDArray[np.float64]) -> dict[str, str]:
        """Return by how much the prediction is too high (`error`)."""
        return {"error": f"{prediction - y:.6g}"}

    def suspects(self, probabilities: Probabilities, y: Y) -> list[tuple[int, list[str]]]:
        """Return the rows whose number is far from the predicted one, each with that and the distance of its residual.

        It is the distance from the median of the residuals, in standard deviations that the median distance estimates.
        """
        predictions = self.decide(probabilities)
        distances = np.abs(y - predictions - np.median(y - predictions))
        distances = distances * MAD_OF_NORMAL / max(float(np.median(distances)), 1e-300)
        rows = np.argsort(-distances, kind="stable")[: (distances > FAR_OFF).sum()].tolist()
        return [(row, [self.text_of(predictions[row]), f"{distances[row]:.2f}"]) for row in rows]

    def constant(self, y: Y) -> Y:
        """Return the mean for each row (N,)."""
        return np.full(len(y), y.mean())

    def calibration(self, probabilities: Probabilities, y: Y) -> dict[str, Any]:
        """Return the mean loss, and the deciles of the predictions beside the numbers of their rows (`bins`)."""
        predictions = self.decide(probabilities)
        places = deciles(predictions)
        bins = [
            {
                "low": float(predictions[inside].min()),
                "high": float(predictions[inside].max()),
                "rows": int(inside.sum()),
                "prediction": float(predictions[inside].mean()),
                "number": float(y[inside].mean()),
            }
            for inside in (places == each for each in np.unique(places))
        ]
        return {"loss": float(self.losses_of_probabilities(probabilities, y).mean()), "bins": bins}

    def intervals(self, y: Y, predictions: Y) -> dict[str, list[float] | None]:
        """Return the percentiles of each metric over resamples; None below FEWEST_ROWS rows."""
        if len(y) < FEWEST_ROWS:
            return dict.fromkeys(self._names)
        drawn = {
            name: self.resampled(name, y, predictions[None], resamples=RESAMPLES_OF_INTERVALS) for name in self._names
        }
        return {name: np.quantile(scores, LIMITS).tolist() for name, scores in drawn.items()}

    @property
    def _names(self) -> list[str]:
        """The metrics that these numbers have."""
        return [name for name in NUMBER_METRICS if self.is_whole or name != "quadratic_kappa"]

    def _metric(self, name: str) -> Metric:
        """Return a metric by name. Raises UsageError as `check_metric` does."""
        self.check_metric("metric", name)
        return metric_named(name)

    def _standardized(self, numbers: Any) -> Any:
        return (numbers - self.mean) / self.std
