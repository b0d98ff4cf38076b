"""The confusions of a classifier for the page of `recur eval --report`: classes, confusion table, and confused pairs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from recurcli.display.evaluation import MAX_HEAD, class_table
from recurcli.errors import pluralize
from recurcli.evaluation.report import EvaluatedRows

MAX_CLASSES = 40
"""The largest number of classes for which the page has the whole confusion table."""
MAX_PAIRS, ROWS_OF_PAIR = 250, 20
"""The number of pairs of label and prediction that are listed, and the number of rows of each pair."""
PAIRS_AT_FIRST = 10
"""The number of pairs that are visible before the list of the others is opened."""


def confusion_values(result: Mapping[str, Any], rows: EvaluatedRows) -> dict[str, Any]:
    """Return what the page shows of the classes, the confusion table and the pairs of label and prediction."""
    pairs, more_pairs = _pairs(rows)
    return {
        "classes": class_table(result["metrics"]),
        "names": rows.names,
        "numbered": max(map(len, rows.names)) > MAX_HEAD,
        "confusion": result["metrics"]["confusion"] if len(rows.names) <= MAX_CLASSES else None,
        "pairs": pairs,
        "anchors": {pair["anchor"] for pair in pairs},
        "pairs_at_first": PAIRS_AT_FIRST,
        "more_pairs": more_pairs,
    }


def _pairs(rows: EvaluatedRows) -> tuple[list[dict[str, Any]], int]:
    """Return the most frequent pairs of label and wrong prediction with their first rows, and the number of other pairs."""
    members: dict[tuple[int, int], list[int]] = {}
    for row in rows.mistakes.tolist():
        members.setdefault((int(rows.labels[row]), int(rows.predictions[row])), []).append(row)
    support = np.bincount(rows.labels, minlength=len(rows.names))
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    pairs = [
        {
            "label": rows.names[label],
            "prediction": rows.names[prediction],
            "count": pluralize(len(own), "row"),
            "share": len(own) / int(support[label]),
            "anchor": f"rows-{label}-{prediction}",
            "rows": [row_values(rows, row) for row in own[:ROWS_OF_PAIR]],
            "more": len(own[ROWS_OF_PAIR:]),
        }
        for (label, prediction), own in ordered[:MAX_PAIRS]
    ]
    return pairs, len(ordered[MAX_PAIRS:])


def row_values(rows: EvaluatedRows, row: int) -> dict[str, Any]:
    """Return what the page shows of the row number `row`."""
    text, pair = rows.texts[row]
    label, prediction = rows.names[rows.labels[row]], rows.names[rows.predictions[row]]
    return {"text": text, "pair": pair, "label": label, "prediction": prediction, "score": f"{rows.scores[row]:.2f}"}
