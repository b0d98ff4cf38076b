"""The rows that a model was trained on and selected on, as hashes of their texts: which of other rows are among them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recurcli.data.splits import row_hash
from recurcli.errors import pluralize
from recurcli.log import Log

Hashes = NDArray[np.uint64]
NONE: Hashes = np.zeros(0, np.uint64)
LINES_REPEAT = 0.1
"""Share of known lines of plain text up to which they need no warning. 2.5 % of the Penn Treebank's dev lines are training
lines."""


@dataclass(frozen=True)
class KnownRows:
    """Hashes (`row_hash`) of different rows, sorted; rows without text are left out."""

    trained: Hashes
    """Hashes (N,) of the rows that a model was trained on. They include those of the run that it started from."""
    selected: Hashes
    """Hashes (M,) of the rows that selected the model. They include those of the run that it started from."""

    @classmethod
    def of(cls, trained: Hashes, selected: Hashes = NONE) -> "KnownRows":
        """Return the known rows of the hashes of rows, which may repeat."""
        blank = np.array([row_hash("", None)], np.uint64)
        return cls(np.setdiff1d(trained, blank), np.setdiff1d(selected, blank))

    def joined(self, other: "KnownRows") -> "KnownRows":
        """Return the rows that are known in this set, in `other`, or in both."""
        return KnownRows(np.union1d(self.trained, other.trained), np.union1d(self.selected, other.selected))

    def refitted(self) -> "KnownRows":
        """Return the rows of a run whose linear model was fitted again on the dev rows too: all of them are trained on."""
        return KnownRows(np.union1d(self.trained, self.selected), NONE)

    def count(self, rows: Hashes) -> dict[str, int]:
        """Return how many of `rows` (hashes) were trained on and how many selected the model. Equal texts and nearly equal ones
        count alike (see `text_key`)."""
        return {"training_rows": int(self.trains(rows).sum()), "dev_rows": int(np.isin(rows, self.selected).sum())}

    def trains(self, rows: Hashes) -> NDArray[np.bool_]:
        """Return whether each of `rows` (hashes, N) was trained on, (N,)."""
        if not len(self.trained):
            return np.zeros(len(rows), np.bool_)
        return self.trained.take(np.searchsorted(self.trained, rows), mode="clip") == rows  # isin would sort both


def log_known_rows(
    log: Log,
    counts: Mapping[str, int],
    rows: int,
    *,
    name: str = "",
    run: str = "",
    lines: bool = False,
    warnings_only: bool = False,
) -> None:
    """Log how many of the `rows` of the split `name` are known, by `counts` from `KnownRows.count`. `run` names their run.

    It is a warning if there are training rows among them; for `lines` of plain text, if they are more than LINES_REPEAT. With
    `warnings_only` anything else is not logged.
    """
    trained, unit = counts["training_rows"], "line" if lines else "row"
    found = f"{name and f'{name}: '}{pluralize(trained, unit, 'are', of=rows)}"
    text = f"{found} in the training {unit}s{run and f' of {run}'} (equal or nearly equal texts)"
    if counts["dev_rows"]:
        text += f", {counts['dev_rows']:,} in the dev {unit}s, on which the model was selected"
    if trained > (LINES_REPEAT * rows if lines else 0):
        log.warn(text)
    elif not warnings_only:
        log.note(text)
