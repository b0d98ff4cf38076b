"""ListOps: nested list operations whose value is a digit (Nangia & Bowman 2018; grammar of Long Range Arena, Tay et al. 2021).

    tree := digit | operator tree … tree ']'        operators [MIN [MAX [MED [SM, 2 to `max_children` children

Below the greatest depth a tree is an operator with probability 1/4, else a digit. MED is the integer part of the median,
SM the sum modulo 10. One space separates tokens; closing brackets are tokens (`data.close_brackets`).
"""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from statistics import median
from typing import NamedTuple

from recurcli.data.tasks import Task, task_named

VALUES: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
"""Maps an operator to the function of its children's values."""
OPERATORS = tuple(VALUES)
OPERATOR_PROBABILITY = 0.25

SEED = 0
SIZES: dict[str, dict[str, int]] = {
    "listops-mini": {"max_depth": 10, "max_children": 5, "min_length": 11, "max_length": 50},
    "listops": {"max_depth": 10, "max_children": 10, "min_length": 501, "max_length": 1999},
}
"""Task to the parameters of its grammar; `listops` has Long Range Arena's, `listops-mini` is ours."""


class Expression(NamedTuple):
    """One row: its tokens joined by spaces, and its value."""

    text: str
    label: str


def value_of(operator: str, values: Sequence[int]) -> int:
    """Return the value of the list operation `operator` on the `values` of its children."""
    return VALUES[operator](values)


def generate(
    seed: int, rows: int, *, max_depth: int = 10, max_children: int = 5, min_length: int = 11, max_length: int = 50
) -> list[Expression]:
    """Return `rows` different expressions of `min_length` to `max_length` tokens; the same arguments give the same rows."""
    draw = random.Random(seed).random  # the one method whose values stay the same between versions of Python
    tokens: list[str] = []

    def grow(depth: int) -> int | None:
        """Append one tree to `tokens` and return its value, or None if the row becomes too long."""
        # A digit alone is too short a row, so the root is an operator without a draw.
        if depth == max_depth or (depth > 1 and draw() >= OPERATOR_PROBABILITY):
            digit = int(draw() * 10)
            tokens.append(str(digit))
            return digit
        operator = OPERATORS[int(draw() * len(OPERATORS))]
        tokens.append(operator)
        values = []
        for _ in range(2 + int(draw() * (max_children - 1))):
            value = grow(depth + 1)
            if value is None or len(tokens) >= max_length:
                return None
            values.append(value)
        tokens.append("]")
        return value_of(operator, values)

    expressions: dict[str, int] = {}
    while len(expressions) < rows:
        tokens.clear()
        value = grow(1)
        if value is not None and len(tokens) >= min_length:
            expressions.setdefault(" ".join(tokens), value)
    return [Expression(text, str(value)) for text, value in expressions.items()]


def listops_rows(task: Task, split: str, *, close_brackets: bool = True) -> list[Expression]:
    """Return the rows of a split of task listops-mini or listops; no row is in two splits.

    Without `close_brackets` the tokens `]` are left out, as Skyformer's tokenizer does (Chen et al., 2021). An expression can
    then be read in several ways.
    """
    rows = _splits(task.name)[split]
    return rows if close_brackets else [row._replace(text=row.text.replace(" ]", "")) for row in rows]


@lru_cache(maxsize=1)
def _splits(name: str) -> dict[str, list[Expression]]:
    task = task_named(name)
    rows = iter(generate(SEED, sum(task.rows.values()), **SIZES[name]))
    return {split: list(islice(rows, size)) for split, size in task.rows.items()}
