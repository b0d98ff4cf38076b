"""Floors: accuracies that need no encoder, to compare a score with.

Shapes: N rows, C classes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from recurcli.linear.model import LinearModel
from recurcli.linear.ngrams import Texts


def accuracy_floors(
    labels: Sequence[str],
    names: Sequence[str],
    texts: Texts,
    linear: LinearModel | None,
    known: Mapping[str, float],
) -> dict[str, float]:
    """Return the accuracy on these rows of each floor, by name.

    majority    the most frequent of `labels` for every row
    linear      the linear model on n-grams, if there is one
    `known`     the task's own floors, such as those of ListOps
    """
    floors = {"majority": max(Counter(labels).values()) / len(labels), **known}
    if linear is not None:
        predictions = linear.logits(texts).argmax(axis=1).tolist()
        right = sum(names[prediction] == label for prediction, label in zip(predictions, labels, strict=True))
        floors["linear"] = right / len(labels)
    return floors
