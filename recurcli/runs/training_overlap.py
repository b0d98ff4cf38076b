"""The rows that a run was trained on and selected on, as hashes of their texts, and how many of them other rows hold."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recurcli.data.dev_split import row_hash
from recurcli.errors import ModelError, pluralize
from recurcli.events import Note
from recurcli.files import read_manifest
from recurcli.model.saved import load_tensors
from recurcli.runs.run_directory import KNOWN_ROWS

Hashes = NDArray[np.uint64]
NONE: Hashes = np.zeros(0, np.uint64)
LINES_REPEAT = 0.1
"""Share of known lines of plain text up to which they need no warning. 2.5 % of the Penn Treebank's dev lines are training
lines."""


@dataclass(frozen=True)
class KnownRows:
    """Hashes (`row_hash`) of different rows, sorted; rows without text are left out."""

    trained: Hashes
    """The rows that a model was trained on, (N,); those of the run that it started from too."""
    selected: Hashes
    """The rows that selected the model, (M,); those of the run that it started from too."""

    @classmethod
    def of(cls, trained: Hashes, selected: Hashes = NONE) -> "KnownRows":
        """Return the known rows of the hashes of rows, which may repeat."""
        blank = np.array([row_hash("", None)], np.uint64)
        return cls(np.setdiff1d(trained, blank), np.setdiff1d(selected, blank))

    def joined(self, other: "KnownRows") -> "KnownRows":
        """Return the rows of both."""
        return KnownRows(np.union1d(self.trained, other.trained), np.union1d(self.selected, other.selected))

    def among(
        self, rows: Hashes, *, name: str = "", of: str = "", lines: bool = False
    ) -> tuple[dict[str, int | None], Note]:
        """Return how many of `rows` (hashes) were trained on and how many selected the model, and a note on them.

        The note calls the rows `name` and the run `of`. It is a warning if there are training rows among them; for
        `lines` of plain text, if they are more than LINES_REPEAT of them.
        """
        trained, selected = (int(np.isin(rows, known).sum()) for known in (self.trained, self.selected))
        unit = "line" if lines else "row"
        text = f"{name and f'{name}: '}{pluralize(trained, unit, 'are', of=len(rows))} in the training {unit}s{of}"
        if selected:
            text += f", {selected:,} in the dev {unit}s, on which the model was selected"
        warned = trained > (LINES_REPEAT * len(rows) if lines else 0)
        return {"training_rows": trained, "dev_rows": selected}, Note(text, "warning" if warned else "info")

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        from safetensors.numpy import save

        return save({"trained": self.trained, "selected": self.selected})


def read_known_rows(folder: Path) -> KnownRows | None:
    """Read the known rows of a run that `read_model` has verified; None for a run of an older recur, which has none.

    Raises ModelError if they are damaged.
    """
    path = folder / KNOWN_ROWS
    if KNOWN_ROWS not in read_manifest(folder):
        return None
    tensors = {name: tensor.numpy() for name, tensor in load_tensors(path).items()}
    if tensors.keys() != {"trained", "selected"} or any(
        hashes.dtype != np.uint64 or hashes.ndim != 1 for hashes in tensors.values()
    ):
        raise ModelError(f"{path}: does not hold the hashes of a run's rows")
    return KnownRows(**tensors)
