"""Classification metrics: of predicted labels, of one label, of probabilities, and a table per class.

Labels and predictions are indices of the classes, whose `names` are given where a table has them. An unknown label is -1:
such a row is a mistake, and all of them count as one class, which is in no macro average. A ratio with denominator 0, such as
the precision of a class that is never predicted, counts as 0. Metrics are computed from counts per class, of many resamples
at once or of one list of predictions: B resamples, C classes, N rows. The numbers are those of scikit-learn to the last bit,
without its import, which takes longer than a small evaluation. numpy is imported when counts are made, not with this module.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from recurcli.errors import UsageError, did_you_mean, escaped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

ROUNDING = 1e-12
"""A variance below this share of the mean square is that of equal numbers, which differ by a rounding."""
MAX_IN_FULL = 100
"""The largest number of classes for which files hold the whole confusion table and the probabilities of all classes."""


class ClassCounts(NamedTuple):
    """Numbers of rows of each class, (B, C) each.

    `hits` have its label and are predicted as it, `predicted` are predicted as it, `support` have its label.
    """

    hits: "np.ndarray"
    predicted: "np.ndarray"
    support: "np.ndarray"
    unknown: "np.ndarray | float" = 0.0
    """(B,) numbers of rows with an unknown label."""

    @property
    def rows(self) -> "np.ndarray":
        """(B,) numbers of all rows."""
        return self.support.sum(axis=-1) + self.unknown


CountMetric = Callable[[Any], "np.ndarray"]
"""A metric of each resample: counts or sums over its rows, such as ClassCounts -> (B,), or of each of its classes: (B, C)."""


def counts_of(labels: "ArrayLike", predictions: "ArrayLike", classes: Sequence[int] | None = None) -> ClassCounts:
    """Return the counts (1, C) of the class indices `labels` and `predictions`, each (N,); an unknown label is -1.

    The classes are those in `classes`, which ascends and holds all that occur; None: those that occur.
    """
    import numpy as np

    both = np.array([labels, predictions])  # (2, N)
    known = np.unique(both[both >= 0]) if classes is None else np.array(classes)
    (right, predicted), is_known = np.searchsorted(known, both), both[0] >= 0
    hits, predictions_of, support = (
        np.bincount(rows, minlength=len(known)).astype(float)[None]
        for rows in (right[is_known & (right == predicted)], predicted, right[is_known])
    )
    return ClassCounts(hits, predictions_of, support, (~is_known).sum(keepdims=True))


def accuracy(counts: ClassCounts) -> "np.ndarray":
    """Return the accuracies (B,)."""
    return counts.hits.sum(axis=-1) / counts.rows


def precision(counts: "ClassCounts | LabelSetCounts") -> "np.ndarray":
    """Return the precision of each class (B, C), or 0 for a class that is never predicted."""
    return counts.hits / counts.predicted.clip(min=1)


def recall(counts: "ClassCounts | LabelSetCounts") -> "np.ndarray":
    """Return the recall of each class (B, C), or 0 for a class that no row has."""
    return counts.hits / counts.support.clip(min=1)


def f1(counts: "ClassCounts | LabelSetCounts") -> "np.ndarray":
    """Return the F1 of each class (B, C), or 0 for a class that no row has and none is predicted as."""
    return 2 * counts.hits / (counts.predicted + counts.support).clip(min=1)


def macro(of_classes: CountMetric, *, of_labels: bool = False) -> CountMetric:
    """Return the mean of `of_classes` (B, C) over the classes that occur among labels or predictions, or `of_labels` alone."""

    def compute(counts: ClassCounts) -> "np.ndarray":
        present = counts.support + (0 if of_labels else counts.predicted) > 0
        return of_classes(counts).sum(axis=-1) / present.sum(axis=-1)

    return compute


def mcc(counts: ClassCounts) -> "np.ndarray":
    """Return Matthews' coefficients (B,) (Gorodkin 2004, eq. 8), or 0 if all labels or all predictions are equal."""
    rows, support = counts.rows, (counts.support**2).sum(axis=-1) + counts.unknown**2
    covariance = counts.hits.sum(axis=-1) * rows - (counts.predicted * counts.support).sum(axis=-1)
    spread = (rows**2 - (counts.predicted**2).sum(axis=-1)) * (rows**2 - support)
    return covariance / spread.clip(min=1) ** 0.5


def rank_report(labels: "np.ndarray", probabilities: "np.ndarray") -> dict[str, float | None]:
    """Return the OF_PROBABILITIES of rows by name: `labels` (N,) are class indices, `probabilities` are (N, C).

    The average precision is the sum of the precisions at each of K different probabilities, times the increase of the recall
    there. The other is the area under the curve of the recall over the share of the other rows, by trapezia. Both are of the
    rarer of two classes (the second, if as many rows have both), or means over the classes that a row has, each against all
    others. Rows of one class, or of none, do not define them: None.
    """
    import numpy as np

    present, scores = np.unique(labels), []
    if len(present) < 2:
        return dict.fromkeys(OF_PROBABILITIES)
    for each in present if probabilities.shape[1] > 2 else [int(2 * labels.sum() <= len(labels))]:
        above, hits = cumulated(labels == each, probabilities[:, each])
        recalls, others = (rows / rows[-1] for rows in (hits, above - hits))
        scores.append((np.diff(recalls) @ (hits[1:] / above[1:]), np.trapezoid(recalls, others)))
    return dict(zip(OF_PROBABILITIES, np.mean(scores, axis=0).tolist(), strict=True))


class NumberSums(NamedTuple):
    """Sums over the rows of what metrics of numbers need, (B,) each: a are the rows' numbers, b the predicted ones."""

    rows: "np.ndarray"
    a: "np.ndarray"
    b: "np.ndarray"
    a_squares: "np.ndarray"
    b_squares: "np.ndarray"
    products: "np.ndarray"
    distances: "np.ndarray"
    """Of |a - b|."""
    square_errors: "np.ndarray"

    @classmethod
    def of_columns(cls, sums: "np.ndarray") -> "NumberSums":
        """Return the sums, given those of the columns (B, 8) that `columns` has."""
        return cls(*(sums[..., place] for place in range(len(cls._fields))))

    @staticmethod
    def columns(a: "np.ndarray", b: "np.ndarray") -> "np.ndarray":
        """Return what is summed of numbers `a` (N,) and `b` (…, N): (…, N, 8)."""
        import numpy as np

        a = np.broadcast_to(a, b.shape)
        return np.stack([np.ones_like(b), a, b, a * a, b * b, a * b, abs(a - b), (a - b) ** 2], axis=-1)

    @property
    def covariances(self) -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
        """The variances of a and b, and their covariance, (B,) each. A variance that is a rounding of 0 is 0."""
        rows, a, b = self.rows, self.a / self.rows, self.b / self.rows
        means = (self.a_squares / rows, a), (self.b_squares / rows, b)
        of_a, of_b = ((squares - mean**2) * (squares - mean**2 > ROUNDING * squares) for squares, mean in means)
        return of_a, of_b, self.products / rows - a * b


def ratio_or_zero(part: "np.ndarray", whole: "np.ndarray") -> "np.ndarray":
    """Return part / whole, or 0 where `whole` is 0."""
    return part * (whole > 0) / (whole + (whole <= 0))


def mean_absolute_error(sums: NumberSums) -> "np.ndarray":
    """Return the mean absolute errors (B,)."""
    return sums.distances / sums.rows


def root_mean_squared_error(sums: NumberSums) -> "np.ndarray":
    """Return the roots of the mean squared errors (B,)."""
    return (sums.square_errors / sums.rows) ** 0.5


def r2(sums: NumberSums) -> "np.ndarray":
    """Return 1 - mean squared error / variance of the numbers (B,), or 0 if these are equal."""
    variance = sums.covariances[0]
    return ratio_or_zero(variance - sums.square_errors / sums.rows, variance)


def correlation(sums: NumberSums) -> "np.ndarray":
    """Return Pearson's coefficients (B,), or 0 if all numbers or all predictions are equal. Of ranks they are Spearman's."""
    of_a, of_b, both = sums.covariances
    return ratio_or_zero(both, (of_a * of_b) ** 0.5).clip(-1, 1)


def quadratic_kappa(sums: NumberSums) -> "np.ndarray":
    """Return Cohen's kappas with quadratic weights (B,): 2 cov(a, b) / (var a + var b + (mean a - mean b)²), or 0 for 0 / 0."""
    of_a, of_b, both = sums.covariances
    return ratio_or_zero(2 * both, of_a + of_b + ((sums.a - sums.b) / sums.rows) ** 2)


def plain_columns(y: "np.ndarray", predictions: "np.ndarray") -> "np.ndarray":
    """Return the columns (…, N, 8) of numbers (N,) and predictions (…, N), both less the mean number: squares stay small."""
    return NumberSums.columns(y - y.mean(), predictions - y.mean())


def whole_columns(y: "np.ndarray", predictions: "np.ndarray") -> "np.ndarray":
    """Return the columns of rounded numbers and predictions."""
    return plain_columns(y.round(), predictions.round())


def rank_columns(y: "np.ndarray", predictions: "np.ndarray") -> "np.ndarray":
    """Return the columns of the ranks of numbers and of predictions. Equal ones have the mean of their ranks."""
    import numpy as np

    def ranks(numbers: "np.ndarray") -> "np.ndarray":
        _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        return (counts.cumsum() - (counts - 1) / 2)[place]

    return plain_columns(ranks(y), np.apply_along_axis(ranks, -1, predictions))


def cumulated(has_label: "np.ndarray", probabilities: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
    """Return (K + 1,) each: 0, and the rows with each of the K different probabilities (N,) or a larger one, from the largest,
    and those of them that have the label (N,).
    """
    import numpy as np

    order = np.argsort(-probabilities, kind="stable")
    last = np.flatnonzero(np.diff(probabilities[order], append=-1))  # of the rows of equal probability
    return np.append(0, last + 1), np.append(0, has_label[order].cumsum()[last])


def average_precision(has_label: "np.ndarray", probabilities: "np.ndarray") -> float | None:
    """Return the average precision of one of several labels (see `rank_report`), or None if no row (N,) has it."""
    import numpy as np

    if not has_label.any():
        return None
    above, hits = cumulated(has_label, probabilities)
    return float(np.diff(hits / hits[-1]) @ (hits[1:] / above[1:]))


def ranking_average_precision(has_label: "np.ndarray", probabilities: "np.ndarray") -> float:
    """Return the mean over rows of the mean over the labels that a row has of: the share of labels that it has among those
    that are as probable or more so (Schapire and Singer, 2000). Rows with all labels or none count 1. (N, C), (N, C) -> number.
    """
    import numpy as np

    order = np.argsort(-probabilities, axis=1, kind="stable")
    has, sorted_ = (np.take_along_axis(each, order, axis=1) for each in (has_label, probabilities))
    ends = np.where(np.diff(sorted_, axis=1, append=-1) != 0, np.arange(sorted_.shape[1]), sorted_.shape[1])
    last = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]  # of the labels of equal probability
    shares = np.take_along_axis(has.cumsum(axis=1), last, axis=1) / (last + 1)
    count = has.sum(axis=1)
    return float(np.where(count == 0, 1.0, (shares * has).sum(axis=1) / count.clip(min=1)).mean())


class LabelSetCounts(NamedTuple):
    """Sums over rows with several labels (`label_set_columns`): (B,), and of each of L labels (B, L) as in ClassCounts."""

    rows: "np.ndarray"
    right: "np.ndarray"
    """Labels that are given rightly."""
    given: "np.ndarray"
    labelled: "np.ndarray"
    """Labels of the rows, with unknown ones."""
    row_f1: "np.ndarray"
    """F1 of the labels of each row; 1 for a row without labels that gets none."""
    exact: "np.ndarray"
    wrong: "np.ndarray"
    """Share of the C labels that are wrongly given or missed."""
    hits: "np.ndarray"
    predicted: "np.ndarray"
    support: "np.ndarray"

    @classmethod
    def of_sums(cls, sums: "np.ndarray") -> "LabelSetCounts":
        """Return the counts with these sums of columns (B, 7 + 3 L)."""
        import numpy as np

        return cls(*np.moveaxis(sums[..., :7], -1, 0), *np.split(sums[..., 7:], 3, axis=-1))


def label_set_columns(labels: "np.ndarray", predictions: "np.ndarray", of_labels: slice) -> "np.ndarray":
    """Return what `LabelSetCounts` sums, with the L labels `of_labels`: (N, C + 1), (N, C + 1) -> (N, 7 + 3 L).

    An entry is 1 where a row has a label, or gets it. The last column is the number of its unknown labels.
    """
    import numpy as np

    has, gets = labels[:, :-1], predictions[:, :-1]
    hits = has * gets
    right, given, labelled = hits.sum(axis=1), gets.sum(axis=1), labels.sum(axis=1)
    both, wrong = given + labelled, (has != gets).mean(axis=1)
    row_f1 = np.where(both == 0, 1.0, 2 * right / both.clip(min=1))
    totals = [np.ones(len(has)), right, given, labelled, row_f1, both == 2 * right, wrong]
    return np.column_stack([*totals, *(each[:, of_labels] for each in (hits, gets, has))]).astype(float)


class Metric(NamedTuple):
    """A metric of a model on dev or test data. One of them selects the best model."""

    words: str
    """The name in tables and model cards."""
    of_counts: CountMetric
    """The metric of many resamples at once."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """The smallest and the largest value."""
    minimize: bool = False
    """Whether a smaller value is better."""
    decimals: int | None = None
    """The decimals with which it is shown; None: it is a share, shown in per cent."""
    columns: Callable[["np.ndarray", "np.ndarray"], "np.ndarray"] = plain_columns
    """Of a metric of numbers, what is summed: numbers (N,), predictions (…, N) -> (…, N, 8), for NumberSums."""


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", accuracy),
    "macro_precision": Metric("macro precision", macro(precision)),
    "macro_recall": Metric("macro recall", macro(recall)),
    "macro_f1": Metric("macro F1", macro(f1)),
    "balanced_accuracy": Metric("balanced accuracy", macro(recall, of_labels=True)),
    "mcc": Metric("MCC", mcc, (-1.0, 1.0)),
}
"""The metrics of predicted labels by their name in presets and JSON, in the order of the tables. A new metric is one row here.

Macro averages are over the classes that occur among the labels or the predictions, as by default in scikit-learn.
"""
UNBOUNDED = (-1e100, 1e100)
"""Bounds of a metric that has none. They are so far that they have no effect on tests."""
NUMBER_METRICS: dict[str, Metric] = {
    "mae": Metric("MAE", mean_absolute_error, UNBOUNDED, minimize=True, decimals=4),
    "rmse": Metric("RMSE", root_mean_squared_error, UNBOUNDED, minimize=True, decimals=4),
    "r2": Metric("R²", r2, UNBOUNDED, decimals=3),
    "pearson": Metric("Pearson's r", correlation, (-1.0, 1.0), decimals=3),
    "spearman": Metric("Spearman's rho", correlation, (-1.0, 1.0), decimals=3, columns=rank_columns),
    "quadratic_kappa": Metric(
        "quadratic weighted kappa", quadratic_kappa, (-1.0, 1.0), decimals=3, columns=whole_columns
    ),
}
"""The metrics of predicted numbers by name, in the order of the tables. The last one is of whole numbers alone."""
LABEL_SET_METRICS: dict[str, Metric] = {
    "micro_f1": Metric("micro F1", lambda counts: 2 * counts.right / (counts.given + counts.labelled).clip(min=1)),
    "macro_f1": Metric("macro F1", lambda counts: f1(counts).mean(axis=-1)),
    "samples_f1": Metric("sample F1", lambda counts: counts.row_f1 / counts.rows),
    "exact_match": Metric("exact match", lambda counts: counts.exact / counts.rows),
    "hamming_loss": Metric("Hamming loss", lambda counts: counts.wrong / counts.rows, minimize=True, decimals=4),
}
"""The metrics of several labels a row, of LabelSetCounts. Macro F1 is the mean over all labels, 0 for one that no row has."""
OF_LABEL_SET_PROBABILITIES = {"ranking_average_precision": "label ranking average precision"}
"""The metric of the probabilities of several labels, with its name in tables (`ranking_average_precision`)."""
OF_LABEL = {"f1": ("F1", f1), "precision": ("precision", precision), "recall": ("recall", recall)}
"""The metrics of one label, such as `f1:LABEL`, by the part of their name before the colon."""
AT_LEAST = {f"{kind}_at_least": (words, of_classes) for kind, (words, of_classes) in OF_LABEL.items()}
"""The metrics of numbers that are cut at a number X, such as `f1_at_least:X`, by the part of their name before the colon."""
NUMBER_METRIC_NAMES = (*NUMBER_METRICS, *(f"{kind}:X" for kind in AT_LEAST))
"""The names of the metrics of predicted numbers, for messages."""
OF_PROBABILITIES = {"average_precision": "average precision", "roc_auc": "ROC AUC"}
"""The names of the metrics of probabilities, with those in tables (`rank_report`)."""
PROBABILITY_METRICS = (*OF_PROBABILITIES, *OF_LABEL_SET_PROBABILITIES)
"""The names of the metrics of probabilities, for messages."""
LABEL_METRICS = (*dict.fromkeys((*METRICS, *LABEL_SET_METRICS)), *(f"{kind}:LABEL" for kind in OF_LABEL))
"""The names of the metrics that predicted labels decide, for messages."""


ScoredSplit = Literal["dev", "test", "test-long"]
TEST_SPLITS: tuple[ScoredSplit, ...] = ("test", "test-long")
"""The splits that a chosen model is scored on once. The rows of test-long, which generated tasks have, are longer than those of
training."""
PERPLEXITY = "perplexity"
"""The dev metric of a language model, exp of the mean cross-entropy of its tokens in nats."""
LOG_LOSS = "log_loss"
"""The mean cross-entropy of rows in nats, by which `tune` compares what runs keep."""
SQUARED_ERROR = "squared_error"
"""The mean squared error of rows in variances of the training numbers, by which `tune` compares what runs of numbers keep."""


def undefined(counts: ClassCounts) -> "np.ndarray":
    """Return NaN (B,), for a metric that is not a function of labels and predictions."""
    return counts.hits.sum(axis=-1) * math.nan


def is_of_labels(name: str) -> bool:
    """Return whether `name` is that of a metric that predicted labels decide, one or several a row, or of one label."""
    kind, _, label = name.partition(":")
    return name in METRICS or name in LABEL_SET_METRICS or (kind in OF_LABEL and label != "")


def is_selecting(name: str) -> bool:
    """Return whether `name` is that of a metric that may select a model of one of the kinds of labels."""
    return is_of_labels(name) or is_of_numbers(name) or name in PROBABILITY_METRICS


def is_of_numbers(name: str) -> bool:
    """Return whether `name` is that of a metric of predicted numbers: in NUMBER_METRICS, or of numbers cut at one."""
    kind, _, least = name.partition(":")
    return name in NUMBER_METRICS or (kind in AT_LEAST and least != "")


def cut_metric(kind: str, least: str) -> Metric:
    """Return the precision, recall or F1 of "at least X", where numbers and predictions are cut at `least`, X.

    Raises UsageError if it is not a number.
    """
    try:
        cut = float(least)
    except ValueError:
        raise UsageError(f"metric {kind}:{escaped(least)}: '{escaped(least)}' is not a number") from None
    words, of_classes = AT_LEAST[kind]
    return Metric(
        f"{words} of at least {cut:g}",
        lambda sums: of_classes(ClassCounts(sums.products, sums.b, sums.a)),
        columns=lambda y, predictions: NumberSums.columns(1.0 * (y >= cut), 1.0 * (predictions >= cut)),
    )


def metric_named(name: str, names: Sequence[str] = ()) -> Metric:
    """Return the metric of labels with this name, or a loss; of any other metric only the name is known.

    A metric of one label is computed from counts of the classes `names`. Raises UsageError if it is of none of them.

    A loss has no largest value; far bounds have no effect on its tests.
    """
    kind, _, label = name.partition(":")
    if label and is_of_labels(name):
        if names and label not in names:
            raise UsageError(f"metric {escaped(name)}: unknown label '{escaped(label)}'{did_you_mean(label, names)}")
        place, (words, of_classes) = names.index(label) if names else 0, OF_LABEL[kind]
        own = slice(place, place + 1)  # counts may end before it
        return Metric(f"{words} of {escaped(label)}", lambda counts: of_classes(counts)[..., own].sum(axis=-1))
    if is_of_numbers(name):
        return NUMBER_METRICS.get(name) or cut_metric(kind, label)
    losses = {LOG_LOSS: "log loss", SQUARED_ERROR: "squared error"}
    words = {**OF_PROBABILITIES, **OF_LABEL_SET_PROBABILITIES, **losses}.get(name, name)
    decimals = {PERPLEXITY: 2, LOG_LOSS: 4, SQUARED_ERROR: 4}.get(name)
    return {**LABEL_SET_METRICS, **METRICS}.get(name) or Metric(
        words, undefined, (-1e9, 1e9), minimize=decimals is not None, decimals=decimals
    )


def score_in(report: Mapping[str, Any], name: str) -> Any:
    """Return the metric `name` of a report of a target: a number, or None where it is not defined."""
    kind, _, label = name.partition(":")
    by_label = report.get("per_class") or report.get("per_label", {})
    return by_label[label].get(kind) if label in by_label else report.get(name)


def words_of(metric: str) -> str:
    """Return the name of a metric in tables and messages."""
    return metric_named(metric).words


MANY_DIGITS = 1e5


def format_score(metric: str, score: float, sign: str = "") -> str:
    """Return a score as text: a share in per cent, others with the decimals of their metric, or none from MANY_DIGITS on.

    `sign` is "+" for a difference.
    """
    decimals = metric_named(metric).decimals
    if decimals is None:
        return percent(score, sign)
    return f"{score:{sign}.{decimals if abs(score) < MANY_DIGITS else 0}f}"


def format_interval(metric: str, limits: Sequence[float], sign: str = "") -> str:
    """Return the two ends of an interval of scores as text: 90.0–96.2, or of differences -1.2 – +3.4."""
    return (" – " if sign else "–").join(format_score(metric, limit, sign) for limit in limits)


def percent(share: float, sign: str = "") -> str:
    """Return a share, such as an accuracy, in per cent with one decimal; `sign` is "+" for a difference."""
    return f"{100 * share:{sign}.1f}"


def percent_interval(limits: Sequence[float]) -> str:
    """Return the two ends of an interval of shares in per cent."""
    return format_interval("accuracy", limits)


def label_names(metrics: Mapping[str, Any]) -> list[str]:
    """Return the names of the rows of the confusion table of a `classification_report`: the classes, then unknown labels."""
    return [*metrics["names"], *metrics.get("unknown_labels", ())]


def cells_of(metrics: Mapping[str, Any]) -> dict[tuple[int, int], int]:
    """Return the cells of the confusion table of a `classification_report` that have rows: (label, prediction) to their number.

    A prediction is its index in `names`, a label its index in `label_names`.
    """
    names, confusion = label_names(metrics), metrics["confusion"]
    if confusion and isinstance(confusion[0][0], str):
        place = {name: number for number, name in enumerate(names)}
        return {(place[label], place[prediction]): count for label, prediction, count in confusion}
    return {
        (row, column): count for row, counts in enumerate(confusion) for column, count in enumerate(counts) if count
    }


def classification_report(
    labels: "np.ndarray",
    predictions: "np.ndarray",
    names: Sequence[str],
    *,
    loss: float | None = None,
    unknown: Sequence[str] = (),
) -> dict[str, Any]:
    """Return each metric of METRICS of `predictions` (N,) against `labels` (N,) by its name, for the JSON, and:

    `names`, the C classes; `loss`, the mean cross-entropy in nats (None: unknown); `per_class`, the precision, recall, F1 and
    the number of rows (`support`) of each class; and `confusion`, (C, C) counts: row = label, column = prediction. Of more
    than MAX_IN_FULL classes this is a list of the cells that are not 0: [[label, prediction, rows], ...]. `unknown` are the
    labels of the rows with -1, in their order: `unknown_labels` has the number of rows of each, and each has a row at the end
    of `confusion`.

    There is a row at least.
    """
    classes, others = len(names), sorted({*unknown})
    shown = [*names, *others]
    places = labels.copy()
    places[labels < 0] = [classes + others.index(label) for label in unknown]
    counts, present = counts_of(labels, predictions, range(classes)), counts_of(labels, predictions)
    columns = [precision(counts), recall(counts), f1(counts), counts.support]
    rows = zip(names, *(column[0].tolist() for column in columns), strict=True)
    cells = sorted(Counter(zip(places.tolist(), predictions.tolist(), strict=True)).items())
    confusion: list[list[Any]] = [[0] * classes for _ in shown if classes <= MAX_IN_FULL]
    for (row, column), count in cells:
        if classes <= MAX_IN_FULL:
            confusion[row][column] = count
        else:
            confusion.append([shown[row], names[column], count])
    return {
        "names": list(names),
        **({"unknown_labels": dict(sorted(Counter(unknown).items()))} if unknown else {}),
        **{name: float(metric.of_counts(present)[0]) for name, metric in METRICS.items()},
        "loss": loss,
        "per_class": {
            name: {"precision": precision, "recall": recall, "f1": f1, "support": int(support)}
            for name, precision, recall, f1, support in rows
        },
        "confusion": confusion,
    }
