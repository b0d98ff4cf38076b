"""`Target`: what the label of a row is, and all that depends on it, from the cells of a file to the metrics.

Shapes: N rows, C logits of a row, V features, P parts of a model, F folds. `y` stands for the encoded labels of the rows, one
entry a row (N, …). Its form is the target's own: `OneLabel` has class numbers (N,).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, FinetuningConfig
from recurcli.errors import UsageError, did_you_mean, escaped, quoted
from recurcli.log import Note
from recurcli.metrics import LOG_LOSS, OF_LABEL, Metric
from recurcli.significance import LIMITS, RESAMPLES, RESAMPLES_OF_INTERVALS
from recurcli.validation import STRICT

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch import Tensor

Cell = str | tuple[str, ...] | float
"""The label of a row as its file has it: a label, the labels in the order of their names, or a number."""


def cell_from_json(value: Any) -> Cell:
    """Return the cell that JSON holds as a string, a number or a list."""
    return tuple(value) if isinstance(value, list) else value


def labels_in(cell: Cell) -> tuple[str, ...]:
    """Return the labels of a cell."""
    return cell if isinstance(cell, tuple) else (str(cell),)


Y = NDArray[Any]
"""Encoded labels (N, …)."""
Logits = NDArray[np.float64]
"""(N, C)."""
Probabilities = NDArray[np.float64]
"""Probabilities (N, C)."""
LinearWeights = tuple[NDArray[np.float32], NDArray[np.float32]]
"""W (V, C) and b (C,) of a linear model: logits = features W + b."""
RowWeights = NDArray[np.float64] | None
"""(N,) factors of the rows' losses; None: 1."""
Calibration = Sequence[Sequence[float]]
"""The slope and the offset of each logit, (2, C)."""
MAX_LABELS = 10_000
"""The largest number of classes or labels, which a test trains."""


@dataclass(frozen=True)
class Target(ABC):
    """The labels of a task, and how they are read, learned, predicted and scored."""

    __pydantic_config__ = STRICT

    kind: ClassVar[str]
    """Its name in config.json, and its key in `TARGETS`."""
    scores: ClassVar[tuple[str, ...]]
    """The numbers that `report` always has. A result.json without them is damaged."""
    tables: ClassVar[tuple[str, ...]] = ()
    """The lists that `report` always has."""
    metrics: ClassVar[Mapping[str, Metric]]
    """The metrics of predictions by name, in the order of the tables."""
    of_probabilities: ClassVar[Mapping[str, str]] = {}
    """The names of the metrics of probabilities in the JSON, with those in tables."""
    headline: ClassVar[str]
    """The metric with which results open, and which selects the encoder's step unless a setting names another."""
    thresholds_for: ClassVar[str | None] = None
    """The metric for which thresholds are chosen if no setting names another. Labels that have one are calibrated one by one,
    so that thresholds hold for each part of a model."""
    loss_name: ClassVar[str] = LOG_LOSS
    """The name of the mean of `losses_of_probabilities`, by which `tune` compares what runs keep."""
    constant_name: ClassVar[str]
    """The key of the score of `constant` among the baselines of the JSON."""
    constant_words: ClassVar[str]
    """What `constant` predicts, in words."""
    model_words: ClassVar[str] = "text classifier"
    """What a model of such rows is called."""
    stratum: ClassVar[str] = "class"
    """The rows of which draws take the same share, in words."""
    has_labels: ClassVar[bool] = True
    """Whether `labels` are those of the rows. Numbers have none."""
    prior_weights: ClassVar[tuple[float, float]] = (1.0, 1.0)
    """The weights of encoder and linear model to which an L2 penalty pulls those of an ensemble, after any calibration."""
    label_noun: ClassVar[str] = "label"
    """What a row has, in words."""
    has_score: ClassVar[bool] = False
    """Whether a prediction has the probability of its one label as score."""
    mistake_columns: ClassVar[tuple[str, ...]]
    """What a page shows of a wrongly predicted row, by column: keys of `mistake`, prediction and label."""
    suspect_columns: ClassVar[tuple[str, ...]] = ("suggested", "probability")
    """The columns that a file of `suspects` has beside those of the rows."""
    linear_solver: ClassVar[str] = "LinearSVC"
    """The name of what `fit_linear` fits."""
    labels: tuple[str, ...]
    """The names of the logits (C), in their order."""

    @property
    def width(self) -> int:
        """C, the number of logits of a row."""
        return len(self.labels)

    @classmethod
    @abstractmethod
    def of(cls, cells: Collection[Cell], config: DataConfig, labels: tuple[str, ...] = ()) -> Self:
        """Return the target of training rows with these cells; `labels`: those that a setting or a task names.

        Raises DataError, without the name of a file, for cells that cannot be learned.
        """

    def doubts(self) -> Iterable[str]:
        """Return warnings on the labels of the training rows."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return what `targets.target_from_json` reads: the kind, and all fields but the labels."""
        return {
            "kind": self.kind,
            **{key.name: getattr(self, key.name) for key in fields(self) if key.name != "labels"},
        }

    @classmethod
    @abstractmethod
    def cell_of(cls, cell: Cell) -> Cell:
        """Return the cell of a row of this kind, given one as it was read. Raises ValueError with the reason if it is none."""

    def unknown_in(self, cell: Cell) -> str | None:
        """Return the first label of a cell that is not among `labels`, or None if there is none."""
        return None

    def describe(self, column: str) -> str:
        """Return in words what a `column` of training rows holds."""
        several = ", several a row" if self.kind == "several" else ""
        return f"{len(self.labels)} labels from '{escaped(column)}'{several}: {quoted(self.labels)}"

    def text_of(self, cell: Cell) -> str:
        """Return a cell as a table shows it."""
        return str(cell)

    @abstractmethod
    def encode(self, cells: Iterable[Cell]) -> Y:
        """Return the cells of rows as `y` (N, …)."""

    @abstractmethod
    def is_known(self, y: Y) -> NDArray[np.bool_]:
        """Return whether each row (N,) has a label seen in training."""

    @abstractmethod
    def strata(self, y: Y) -> NDArray[np.int64]:
        """Return the stratum of each row (N,), by which draws and folds are stratified."""

    @classmethod
    def metric_of(cls, setting: str) -> str:
        """Return the metric that `finetuning.metric` names; auto: the `headline`."""
        return cls.headline if setting == "auto" else setting

    def strata_names(self, y: Y) -> Sequence[str]:
        """Return the name of the stratum of each row (N)."""
        return [*map(str, self.strata(y).tolist())]

    def divide(
        self, y: Y, group_ids: NDArray[np.uint64], shares: Sequence[float], seed: int
    ) -> NDArray[np.int64] | None:
        """Return the part of each row (N,), if this kind divides rows otherwise than by strata: part i has `shares[i]` of them.

        Rows of a group are in one part.
        """
        return None

    def check_settings(self, config: FinetuningConfig) -> None:
        """Raise UsageError for a setting that does not apply to this kind of labels, and for a metric of an unknown label."""
        for key in ("metric", "thresholds"):
            setting = getattr(config, key)
            if setting not in (None, "auto"):
                self.check_metric(f"finetuning.{key}", setting)

    def check_metric(self, whose: str, name: str) -> None:
        """Raise UsageError, which names `whose` it is, for a metric that results of this kind do not have."""
        kind, _, label = name.partition(":")
        of_label = kind in OF_LABEL and label
        if of_label and label not in self.labels:
            raise UsageError(
                f"{whose} {escaped(name)}: unknown label '{escaped(label)}'{did_you_mean(label, self.labels)}"
            )
        if not of_label and name not in {*self.metrics, *self.of_probabilities}:
            known = ", ".join((*self.metrics, *self.of_probabilities, *(f"{kind}:LABEL" for kind in OF_LABEL)))
            raise UsageError(f"{whose}: labels of this kind have {known}, not {escaped(name)}")

    @abstractmethod
    def linear_obstacle(self, y: Y) -> str:
        """Return what a linear model would need and these rows lack; "" if it can be fitted."""

    @abstractmethod
    def weights_of_labels(self, setting: Any, y: Y) -> NDArray[np.float64]:
        """Return the weight of each label (C,) by `finetuning.class_weights`, for training rows with `y`.

        Raises UsageError for a label that is not among `labels`.
        """

    def row_weights(self, weights: NDArray[np.float64], y: Y) -> NDArray[np.float64]:
        """Return the factor of each row's loss (N,), given the weights of the labels (C,)."""
        return np.ones(len(y))

    def weighted(self, weights: NDArray[np.float64]) -> Self:
        """Return the target by whose losses a model is learned and chosen, given the weights of the labels (C,).

        It is another one where rows have several labels, whose weights `row_weights` cannot express.
        """
        return self

    @abstractmethod
    def loss(self, logits: "Tensor", y: "Tensor", config: FinetuningConfig) -> "Tensor":
        """Return the loss of each row that the encoder minimizes: (B, C), (B, …) -> (B,)."""

    def soften(self, probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return a teacher's soft labels (N, C) at the `temperature`."""
        raise UsageError(f"finetuning.teacher: labels of the kind {self.kind} are not learned from a teacher")

    def teacher_loss(self, logits: "Tensor", probabilities: "Tensor", temperature: float) -> "Tensor":
        """Return the loss of each row beside a teacher's softened labels: (B, C), (B, C) -> (B,)."""
        raise UsageError(f"finetuning.teacher: labels of the kind {self.kind} are not learned from a teacher")

    @abstractmethod
    def losses_and_gradient(self, logits: Logits, y: Y) -> tuple[NDArray[np.float64], Logits]:
        """Return the loss of each row (N,) and its gradient with respect to the logits (N, C).

        The kept model is chosen by this loss.
        """

    @abstractmethod
    def losses_of_probabilities(self, probabilities: Probabilities, y: Y) -> NDArray[np.float64]:
        """Return the loss of each row (N,) as `losses_and_gradient` does, given its probabilities (N, C)."""

    @abstractmethod
    def curvature(
        self, logits: Logits, parts: NDArray[np.float64], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the Hessian (P, P) of the losses, summed with the `factors` (N,), with respect to the weights of the `parts`.

        The `logits` (N, C) are the weighted sum of the parts (P, N, C).
        """

    def fit_calibration(self, logits: Logits, y: Y, row_weights: RowWeights = None) -> Calibration | None:
        """Return the slope and the offset of each logit of a candidate, given held-out logits (N, C); None: it needs none."""
        return None

    @abstractmethod
    def fit_linear(self, features: "csr_matrix", y: Y, c: float, row_weights: RowWeights = None) -> LinearWeights:
        """Fit a linear model on the `features` (N, V) of many rows; `c` is a factor of the rows' losses beside the penalty."""

    @abstractmethod
    def linear_goals(self, y: Y) -> NDArray[np.float64]:
        """Return the logits (N, C) with which a row costs the linear model nothing. Those of a `LinearSVC` are 1 and -1."""

    def linear_factors(self, y: Y, row_weights: RowWeights = None) -> NDArray[np.float64]:
        """Return the factors (N, 1) or (N, C) of the losses of each row's logits in `fit_linear`."""
        return (np.ones(len(y)) if row_weights is None else row_weights)[:, None]

    def linear_loss_gradient(
        self, logits: NDArray[np.floating[Any]], y: Y, row_weights: RowWeights = None
    ) -> NDArray[np.float64]:
        """Return the gradient (B, C), with respect to the logits, of squared hinge losses times the rows' factors, for SGD."""
        goals = self.linear_goals(y)
        return -2 * self.linear_factors(y, row_weights) * goals * np.maximum(1 - goals * logits, 0)

    def default_bias(self, bias: NDArray[np.float32], y: Y) -> NDArray[np.float32]:
        """Return the bias (C,) of a linear model, with a default for labels that no row of `y` has."""
        return bias

    @abstractmethod
    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        """Return the logits (C,) for rows with `y` on which no linear model can be fitted (`linear_obstacle`)."""

    @abstractmethod
    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        """Return the probabilities (N, C) of logits (N, C).

        `rows` is the number of dev rows by which the model was chosen, which bounds them; 0: it is not known.
        """

    def least_probability(self, rows: int) -> float:
        """Return the smallest probability of a model that was chosen by so many dev `rows`; 0: it is not bounded."""
        return 0.0

    @abstractmethod
    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        """Return the predictions (N, …) for probabilities (N, C); `thresholds` (C,), or () for none."""

    def fit_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> dict[str, Any]:
        """Choose the thresholds of the labels with the best `metric`. Returns the content of thresholds.json."""
        raise UsageError(f"thresholds: labels of the kind {self.kind} have none")

    @abstractmethod
    def decode(self, y: Y) -> list[Cell]:
        """Return the predictions `y` (N, …) as the cells of a file (N)."""

    @abstractmethod
    def hits(self, y: Y, predictions: Y) -> NDArray[np.bool_]:
        """Return whether each prediction (N, …) is right, (N,)."""

    def row_values(self, y: Y, predictions: Y) -> NDArray[np.float64]:
        """Return a value of each row (N,), whose means tell where the headline score of some rows is not that of all."""
        return self.hits(y, predictions).astype(float)

    def agreement(self, first: Y, second: Y) -> float:
        """Return how far two predictions (N, …) agree: the share of the rows whose label, or set of labels, is the same."""
        return float(self.hits(first, second).mean())

    @abstractmethod
    def errors(self, y: Y, predictions: Y, probabilities: Probabilities) -> NDArray[np.float64]:
        """Return how wrong each prediction is (N,), 0 where it is right, by which lists of mistakes are ordered."""

    @abstractmethod
    def score(self, metric: str, y: Y, predictions: Y) -> float:
        """Return a metric of the predictions (N, …). Raises UsageError for one that predictions of this kind do not have."""

    @abstractmethod
    def resampled(
        self, metric: str, y: Y, predictions: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
    ) -> NDArray[np.float64]:
        """Return a metric of each of R runs with `predictions` (R, N, …) on resamples of the rows, (R, B).

        The rows of a resample are drawn with replacement, the same for all runs.
        """

    @abstractmethod
    def report(
        self,
        y: Y,
        predictions: Y,
        probabilities: Probabilities | None,
        *,
        loss: float | None = None,
        unknown: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the metrics of `predictions` (N, …), and of the `probabilities` (N, C) if they are given, for the JSON.

        `loss` is the mean loss in nats; None: unknown. `unknown` are the cells of the rows whose label is not known, in their
        order.
        """

    @staticmethod
    def notes(report: Mapping[str, Any]) -> Iterable[Note]:
        """Return notes on a report of dev rows in a training."""
        return ()

    @staticmethod
    def notes_on_rows(report: Mapping[str, Any]) -> Iterable[Note]:
        """Return notes on what the rows of a report are too few for, in an evaluation."""
        return ()

    @abstractmethod
    def mistake(self, label: Cell, y: Any, prediction: Any, probabilities: NDArray[np.float64]) -> dict[str, str]:
        """Return what a list of mistakes shows of one row beside label and prediction, by column.

        `label` is as the row's file has it, `y` and `prediction` as they are encoded; `probabilities` are (C,).
        """

    @abstractmethod
    def suspects(self, probabilities: Probabilities, y: Y) -> list[tuple[int, list[str]]]:
        """Return the numbers of the rows whose label may be wrong, the likeliest first, each with its `suspect_columns`.

        `probabilities` (N, C) are out of fold.
        """

    @abstractmethod
    def constant(self, y: Y) -> Y:
        """Return the best constant prediction for rows with `y`, (N, …)."""

    @abstractmethod
    def calibration(self, probabilities: Probabilities, y: Y) -> dict[str, Any]:
        """Return the calibration of probabilities (N, C) on rows of known labels, for the JSON."""

    @abstractmethod
    def intervals(self, y: Y, predictions: Y) -> dict[str, list[float] | None]:
        """Return the 95 % interval [low, high] of each metric, by name; None: the rows are too few."""

    def interval(self, y: Y, predictions: Y) -> tuple[float, float]:
        """Return the 95 % interval of the `headline`: percentiles over resamples of the rows."""
        scores = self.resampled(self.headline, y, predictions[None], resamples=RESAMPLES_OF_INTERVALS)
        low, high = np.quantile(scores, LIMITS).tolist()
        return low, high

    def paired_interval(self, y: Y, first: Y, second: Y) -> tuple[float, float] | None:
        """Return the 95 % interval of the `headline` of the predictions `first` less that of `second`; None: unknown.

        It has the percentiles of the difference on the same resamples of the rows.
        """
        both = np.stack([first, second])
        scores = self.resampled(self.headline, y, both, resamples=RESAMPLES_OF_INTERVALS)
        low, high = np.quantile(scores[0] - scores[1], LIMITS).tolist()
        return low, high
