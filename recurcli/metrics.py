"""Classification metrics: accuracy, macro averages, Matthews' coefficient, and a table per class.

Labels are strings; `names` fixes their order. A ratio with denominator 0, such as the precision of a class that is
never predicted, counts as 0. Metrics are computed from counts per class, of many resamples at once or of one list of
predictions: B resamples, C classes, N rows. The numbers are those of scikit-learn to the last bit, without its import, which
takes longer than a small evaluation. numpy is imported when counts are made, not with this module.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.errors import pluralize

if TYPE_CHECKING:
    import numpy as np

MAX_IN_FULL = 100
"""The largest number of classes for which files hold the whole confusion table and the probabilities of all classes."""


class ClassCounts(NamedTuple):
    """Numbers of rows of each class, each (B, C)."""

    hits: "np.ndarray"
    """Rows of the class that are predicted as it."""
    predicted: "np.ndarray"
    """Rows that are predicted as the class."""
    support: "np.ndarray"
    """Rows that have the class as label."""


CountMetric = Callable[[ClassCounts], "np.ndarray"]
"""A metric of each resample: ClassCounts -> (B,), or of each of its classes: (B, C)."""


def counts_of(labels: Sequence[int], predictions: Sequence[int], classes: Sequence[int] | None = None) -> ClassCounts:
    """Return the counts (1, C) of the class indices `labels` and `predictions`, each (N,).

    The classes are those in `classes`, which ascends and holds all that occur; None: those that occur.
    """
    import numpy as np

    both = np.array([labels, predictions])  # (2, N)
    known = np.unique(both) if classes is None else np.array(classes)
    right, predicted = np.searchsorted(known, both)
    hits, predictions_of, support = (
        np.bincount(rows, minlength=len(known)).astype(float)[None]
        for rows in (right[right == predicted], predicted, right)
    )
    return ClassCounts(hits, predictions_of, support)


def accuracy(counts: ClassCounts) -> "np.ndarray":
    """Return the accuracies (B,)."""
    return counts.hits.sum(axis=-1) / counts.support.sum(axis=-1)


def precision(counts: ClassCounts) -> "np.ndarray":
    """Return the precision of each class (B, C), or 0 for a class that is never predicted."""
    return counts.hits / counts.predicted.clip(min=1)


def recall(counts: ClassCounts) -> "np.ndarray":
    """Return the recall of each class (B, C), or 0 for a class that no row has."""
    return counts.hits / counts.support.clip(min=1)


def f1(counts: ClassCounts) -> "np.ndarray":
    """Return the F1 of each class (B, C), or 0 for a class that no row has and none is predicted as."""
    return 2 * counts.hits / (counts.predicted + counts.support).clip(min=1)


def macro(of_classes: CountMetric) -> CountMetric:
    """Return the mean of `of_classes` (B, C) over the classes that occur among labels or predictions."""

    def compute(counts: ClassCounts) -> "np.ndarray":
        present = counts.predicted + counts.support > 0
        return of_classes(counts).sum(axis=-1) / present.sum(axis=-1)

    return compute


def mcc(counts: ClassCounts) -> "np.ndarray":
    """Return Matthews' coefficients (B,) (Gorodkin 2004, eq. 8), or 0 if all labels or all predictions are equal."""
    rows = counts.support.sum(axis=-1)
    covariance = counts.hits.sum(axis=-1) * rows - (counts.predicted * counts.support).sum(axis=-1)
    spread = (rows**2 - (counts.predicted**2).sum(axis=-1)) * (rows**2 - (counts.support**2).sum(axis=-1))
    return covariance / spread.clip(min=1) ** 0.5


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


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", accuracy),
    "macro_precision": Metric("macro precision", macro(precision)),
    "macro_recall": Metric("macro recall", macro(recall)),
    "macro_f1": Metric("macro F1", macro(f1)),
    "mcc": Metric("MCC", mcc, (-1.0, 1.0)),
}
"""The metrics of classifiers by their name in presets and JSON, in the order of the tables. A new metric is one row here.

Macro averages are over the classes that occur among the labels or the predictions, as by default in scikit-learn.
"""


PERPLEXITY = "perplexity"
"""The dev metric of a language model, exp of the mean cross-entropy of its tokens in nats."""


def undefined(counts: ClassCounts) -> "np.ndarray":
    """Return NaN (B,), for a metric that is no function of labels and predictions."""
    return counts.hits.sum(axis=-1) * math.nan


def metric_named(name: str) -> Metric:
    """Return the row of METRICS with this name, or that of the perplexity; of another version's metric only the name is known.

    A perplexity has no largest value; far bounds have no effect on its tests.
    """
    return METRICS.get(name) or Metric(name, undefined, (-1e9, 1e9), minimize=name == PERPLEXITY)


def words_of(metric: str) -> str:
    """Return the name of a metric in tables and messages."""
    return metric_named(metric).words


def format_score(metric: str, score: float) -> str:
    """Return a score as text for the screen: a perplexity with two decimals, any other metric in per cent with one."""
    return f"{score:.2f}" if metric == PERPLEXITY else f"{100 * score:.1f}"


_PARTS = {"encoder": "encoder", "linear": "linear model"}


def score_rows(scores: Mapping[str, Any], split: str, metric: str = "accuracy") -> Iterator[tuple[str, str]]:
    """Yield the names and values of the metrics of a model for a table, and those of `unseen_rows` and `part_rows`.

    A run of an earlier version may lack a metric.
    """
    for name, each in METRICS.items():
        if name in scores:
            yield f"{split}{each.words}", format_score(name, scores[name])
    yield from unseen_rows(scores, split, dict.fromkeys(("accuracy", metric)))
    yield from part_rows(scores, split, metric)


def unseen_rows(
    scores: Mapping[str, Any], split: str = "", metrics: Iterable[str] = METRICS
) -> Iterator[tuple[str, str]]:
    """Yield the scores of a model by `metrics` on the rows that it was not trained on, where some of the rows were."""
    if unseen := scores.get("unseen"):
        for name in metrics:
            yield (
                f"{split}{words_of(name)} on {pluralize(unseen['rows'], 'unseen row')}",
                format_score(name, unseen[name]),
            )


def part_rows(scores: Mapping[str, Any], split: str = "", metric: str = "accuracy") -> Iterator[tuple[str, str]]:
    """Yield the scores of the parts of an ensemble, by accuracy and `metric`, and those of the baselines.

    `split` stands before each name.
    """
    for name in dict.fromkeys(("accuracy", metric)):
        for part, own in scores.get("parts", {}).items():
            if name in own and (part, name) != ("linear", "accuracy"):  # a baseline
                yield f"{split}{_PARTS[part]}: {words_of(name)}", format_score(name, own[name])
    for name, value in scores.get("baselines", {}).items():
        who = _PARTS.get(name) or f"{name.replace('_', ' ')} baseline"
        yield f"{split}{who}: accuracy", format_score("accuracy", value)


def perplexity_rows(score: Mapping[str, Any], split: str = "", *, carry: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the perplexity of a text and its loss for a table. `carry`: whether a state was carried over windows."""
    how = "; state carried over windows" if carry else ""
    shown = format_score(PERPLEXITY, score["perplexity"])
    yield f"{split}perplexity", f"{shown} (of {score['tokens']:,} tokens, `<eos>` included{how})"
    yield f"{split}loss", f"{score['loss']:.4f} nats a token"


def cells_of(metrics: Mapping[str, Any]) -> dict[tuple[int, int], int]:
    """Return the numbers of rows by places of label and prediction in `names`, without zeros, of a `classification_report`."""
    names, confusion = metrics["names"], metrics["confusion"]
    if confusion and isinstance(confusion[0][0], str):
        place = {name: number for number, name in enumerate(names)}
        return {(place[label], place[prediction]): count for label, prediction, count in confusion}
    return {
        (row, column): count for row, counts in enumerate(confusion) for column, count in enumerate(counts) if count
    }


def classification_report(
    labels: Sequence[str], predictions: Sequence[str], names: Sequence[str], *, loss: float | None = None
) -> dict[str, Any]:
    """Return each metric of METRICS of `predictions` (N,) against `labels` (N,) by its name, for the JSON, and:

    `names`, the C classes; `loss`, the mean cross-entropy in nats (None: unknown); `per_class`, the precision, recall, F1 and
    the number of rows (`support`) of each class; and `confusion`, (C, C) counts: row = label, column = prediction. Of more than
    MAX_IN_FULL classes this is a list of the cells that are not 0: [[label, prediction, rows], ...].

    There is a row at least, and all labels are in `names`.
    """
    index = {
        name: number for number, name in enumerate(names)
    }  # as strings, numpy would drop a trailing NUL of a label
    right, predicted = ([index[word] for word in words] for words in (labels, predictions))
    counts, present = counts_of(right, predicted, range(len(names))), counts_of(right, predicted)
    columns = [precision(counts), recall(counts), f1(counts), counts.support]
    rows = zip(names, *(column[0].tolist() for column in columns), strict=True)
    cells = sorted(Counter(zip(right, predicted, strict=True)).items())
    confusion: list[list[Any]] = [[0] * len(names) for _ in names if len(names) <= MAX_IN_FULL]
    for (row, column), count in cells:
        if len(names) <= MAX_IN_FULL:
            confusion[row][column] = count
        else:
            confusion.append([names[row], names[column], count])
    return {
        "names": list(names),
        **{name: float(metric.of_counts(present)[0]) for name, metric in METRICS.items()},
        "loss": loss,
        "per_class": {
            name: {"precision": precision, "recall": recall, "f1": f1, "support": int(support)}
            for name, precision, recall, f1, support in rows
        },
        "confusion": confusion,
    }
