"""The scores of groups of rows, such as those of a region or of a length, each tested against all other rows.

Shapes: N rows, G groups.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.evaluation.report import EvaluatedRows
from recurcli.metrics import metric_named
from recurcli.significance import LEVEL, group_p_values, holm

MANY_VALUES = 10
"""Numbers of more different values than these are grouped by quarters. Ours."""
FEW_ROWS = 50
"""A group of fewer rows, or with fewer others, that does not differ says little. Ours: the interval of 40 of 50 is 67–89 %."""
NOT_FOUND, TOO_FEW, BETTER, WORSE = "no difference found", "too few rows to tell", "better", "worse"


def group_scores(rows: EvaluatedRows, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the headline score of each group of `rows` by their `values` (N), and that of the `others`, for the JSON.

    `p_value` is that of a permutation test of the group against the others (`group_p_values`), `p_holm` the same adjusted for
    the number of groups.
    """
    target, metric, (names, group) = rows.target, rows.target.headline, divide(values)
    p_values, found = group_p_values(target.row_values(rows.y, rows.predictions), group), []
    for number, (p_value, p_holm) in enumerate(zip(p_values, holm(p_values), strict=True)):
        own = group == number
        parts = (own, own if own.all() else ~own)
        score, others = (target.score(metric, rows.y[part], rows.predictions[part]) for part in parts)
        verdict = TOO_FEW if min(own.sum(), (~own).sum()) < FEW_ROWS else NOT_FOUND
        if p_holm < LEVEL:
            verdict = WORSE if (score < others) != metric_named(metric).minimize else BETTER
        limits = target.interval(rows.y[own], rows.predictions[own])
        facts = {"group": names[number], "rows": int(own.sum()), "score": score, "interval": [*limits]}
        found.append({**facts, "others": others, "p_value": p_value, "p_holm": p_holm, "verdict": verdict})
    return found


def divide(values: Sequence[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the groups (G) of rows with these `values` (N), and the group of each row (N,).

    Numbers of more than MANY_VALUES different values form quarters of about equal size. Else each value is a group, and those
    with the most rows stand first.
    """
    places = {value: place for place, (value, _) in enumerate(Counter(values).most_common())}
    if len(places) > MANY_VALUES:
        with suppress(ValueError):  # they are words
            if np.isfinite(numbers := np.array(values, float)).all():
                limits = np.unique(np.quantile(numbers, (0.25, 0.5, 0.75), method="lower"))
                _, group = np.unique(np.searchsorted(limits, numbers), return_inverse=True)
                parts = (numbers[group == place] for place in range(int(group.max()) + 1))
                return ["–".join(f"{end:,.6g}" for end in sorted({part.min(), part.max()})) for part in parts], group
    return [str(value) or "(blank)" for value in places], np.array([places[value] for value in values])
