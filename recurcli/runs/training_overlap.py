"""The rows that a run was trained on and selected on, as hashes of their texts, and how many of them other rows hold."""

from collections.abc import Iterable, Sequence
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

Text = tuple[str, str | None]
LINES_REPEAT = 0.1
"""Share of known lines of plain text up to which they need no warning. 2.5 % of the Penn Treebank's dev lines are training
lines."""


@dataclass(frozen=True)
class KnownRows:
    """Hashes (`row_hash`) of different rows, sorted; rows without text are left out."""

    trained: NDArray[np.uint64]
    """The rows that a model was trained on, (N,); those of the run that it started from too."""
    selected: NDArray[np.uint64]
    """The rows that selected the model, (M,); those of the run that it started from too."""

    @classmethod
    def of(cls, trained: Iterable[Text], selected: Iterable[Text] = ()) -> "KnownRows":
        """Return the hashes of texts and pairs."""
        blank = np.array([row_hash("", None)], np.uint64)
        found = (np.setdiff1d(hashes_of(texts), blank) for texts in (trained, selected))
        return cls(*found)

    def joined(self, other: "KnownRows") -> "KnownRows":
        """Return the rows of both."""
        return KnownRows(np.union1d(self.trained, other.trained), np.union1d(self.selected, other.selected))

    def among(
        self, texts: Sequence[Text], *, name: str = "", of: str = "", lines: bool = False
    ) -> tuple[dict[str, int | None], Note]:
        """Return how many of `texts` are rows that were trained on and rows that selected the model, and a note on them.

        The note calls the texts `name` and the run `of`. It is a warning if there are training rows among the texts; for
        `lines` of plain text, if they are more than LINES_REPEAT of them.
        """
        hashes = hashes_of(texts)
        trained, selected = (int(np.isin(hashes, rows).sum()) for rows in (self.trained, self.selected))
        unit = "line" if lines else "row"
        text = f"{name and f'{name}: '}{pluralize(trained, unit, 'are', of=len(texts))} in the training {unit}s{of}"
        if selected:
            text += f", {selected:,} in the dev {unit}s, on which the model was selected"
        warned = trained > (LINES_REPEAT * len(texts) if lines else 0)
        return {"training_rows": trained, "dev_rows": selected}, Note(text, "warning" if warned else "info")

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file."""
        from safetensors.numpy import save

        return save({"trained": self.trained, "selected": self.selected})


def hashes_of(texts: Iterable[Text]) -> NDArray[np.uint64]:
    """Return the `row_hash` of each text or pair, (N,)."""
    return np.fromiter((row_hash(text, pair) for text, pair in texts), np.uint64)


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
