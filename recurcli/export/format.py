"""The interface of an export format, and the trained run that it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.config import DataConfig
from recurcli.data.tasks import Task
from recurcli.errors import ModelError
from recurcli.evaluation.predictor import Predictor
from recurcli.files import OutputKind
from recurcli.runs.predictions import RowText, read_texts
from recurcli.runs.run_directory import PREDICTIONS, Run

MIN_AGREEMENT = 0.98
"""Smallest agreement on the dev rows of a model with weights of fewer bits with the one in full precision. Ours."""


class TrainedRun(NamedTuple):
    """A verified run."""

    folder: Run
    predictor: Predictor
    task: Task
    data: DataConfig
    """The preset's `data`, with the command's `--data`; the rows may be gone if the format does not read them."""

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.folder.path

    def dev_rows(self, use: str) -> list[RowText]:
        """Return the dev rows that the run keeps for this `use`. Raises ModelError if it keeps none."""
        if rows := read_texts(self.folder) if PREDICTIONS in self.folder else []:
            return rows
        raise ModelError(f"{self.path}: keeps no texts of dev rows, {use}")


@dataclass(frozen=True)
class ExportFormat:
    """One export format: the predictions of test rows in a file, or the model in a folder."""

    export: Callable[..., dict[str, Any]]
    """A function of the runs (a sequence), the path and the log. It writes the runs to the path, replacing what is there, and
    returns `files`: facts of each for a table, `name` first. That of a folder takes `min_agreement`, too: it then writes the
    model in int8 if so large a share of the labels of the dev rows stays, and returns `quantization`."""
    kind: OutputKind
    """The format in words, for messages, and the ending of a file."""
    is_folder: bool = False
    """Whether it writes a folder (by `commit_directory`), with a README.md, and reads no rows of the task."""
