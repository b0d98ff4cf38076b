"""How right predictions are: accuracy, macro averages, Matthews' coefficient and the confusion table, by scikit-learn.

Labels are strings from end to end; `names` fixes their order. Macro averages are over all of `names`, a class without
a single row too, and a ratio whose denominator is 0 – a class never predicted, say – counts as 0. scikit-learn is
imported only when something is computed, so that importing this module costs nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, get_args

from recurcli.errors import DataError, UsageError, did_you_mean, escaped

MetricName = Literal["accuracy", "macro_f1", "mcc"]


class ClassScores(TypedDict):
    """One class beside all others; `support` is how many rows have it as their right label."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `classification_report` finds; every ratio is in [0, 1], `mcc` in [-1, 1], `loss` in nats a row."""

    names: tuple[str, ...]
    accuracy: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    mcc: float
    loss: float | None
    per_class: dict[str, ClassScores]
    confusion: tuple[tuple[int, ...], ...]
    """(C, C): rows are the right labels, columns the predictions, both in the order of `names`."""

    def to_json(self) -> dict[str, Any]:
        """The report as a plain value that `recurcli.files.to_json` or `json.dumps` can write."""
        return asdict(self)


def classification_report(
    labels: Sequence[str], predictions: Sequence[str], names: Sequence[str], *, loss: float | None = None
) -> Report:
    """Compare the right `labels` (N) with the `predictions` (N); `loss` is the mean cross-entropy, if there is one.

    Raises DataError for an empty set and for a label that is not one of `names`.
    """
    from sklearn.metrics import precision_recall_fscore_support

    right, predicted = _class_indexes(labels, predictions, names)
    precision, recall, f1, support = precision_recall_fscore_support(
        right, predicted, labels=range(len(names)), zero_division=0
    )
    confusion = [[0] * len(names) for _ in names]
    for row, column in zip(right, predicted, strict=True):
        confusion[row][column] += 1
    return Report(
        names=tuple(names),
        accuracy=_accuracy(right, predicted),
        macro_precision=float(precision.mean()),
        macro_recall=float(recall.mean()),
        macro_f1=float(f1.mean()),
        mcc=_mcc(right, predicted),
        loss=loss,
        per_class={
            name: ClassScores(
                precision=float(precision[index]),
                recall=float(recall[index]),
                f1=float(f1[index]),
                support=int(support[index]),
            )
            for index, name in enumerate(names)
        },
        confusion=tuple(tuple(row) for row in confusion),
    )


def score(name: MetricName, labels: Sequence[str], predictions: Sequence[str], names: Sequence[str]) -> float:
    """The one number that a run is judged by; higher is better. Raises as `classification_report` does."""
    right, predicted = _class_indexes(labels, predictions, names)
    if name == "accuracy":
        return _accuracy(right, predicted)
    if name == "macro_f1":
        return _macro_f1(right, predicted, classes=len(names))
    if name == "mcc":
        return _mcc(right, predicted)
    raise UsageError(f"unknown metric '{escaped(name)}'{did_you_mean(name, get_args(MetricName))}")


def _class_indexes(
    labels: Sequence[str], predictions: Sequence[str], names: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Both sides as positions in `names`: numpy drops a NUL at the end of a string, an integer is safe from it."""
    if len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labels but {len(predictions)} predictions")
    if not labels:
        raise DataError("there is nothing to score: the set has no rows with a label")
    index = {name: position for position, name in enumerate(names)}
    for kind, words in (("label", labels), ("prediction", predictions)):
        for word in words:
            if word not in index:
                near = did_you_mean(word, names)
                raise DataError(f"{kind} '{escaped(word)}' is not one of the {len(index)} classes{near}")
    return [index[label] for label in labels], [index[prediction] for prediction in predictions]


def _accuracy(right: list[int], predicted: list[int]) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(right, predicted))


def _macro_f1(right: list[int], predicted: list[int], *, classes: int) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(right, predicted, labels=range(classes), average="macro", zero_division=0))


def _mcc(right: list[int], predicted: list[int]) -> float:
    """Matthews' coefficient for any number of classes (Gorodkin 2004); 0 where one side has a single class."""
    from sklearn.metrics import matthews_corrcoef

    if len(set(right)) == 1 or len(set(predicted)) == 1:
        return 0.0  # 0/0 by the formula; scikit-learn warns
    return float(matthews_corrcoef(right, predicted))
