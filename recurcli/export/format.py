"""The interface of an export format, and the parts of a trained run that it is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurcli.data.config import DataConfig
from recurcli.data.tasks import Task
from recurcli.files import CommittedFolder, OutputKind
from recurcli.linear.ensemble import Ensemble
from recurcli.log import AfterBatch, Log
from recurcli.model.models import Classifier
from recurcli.tokens.tokenizer import Tokenizer

Texts = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A verified run."""

    folder: CommittedFolder
    task: Task
    data: DataConfig
    """The preset's `data`, with the command's `--data`; the rows may be gone if the format does not read them."""
    model: Classifier
    tokenizer: Tokenizer
    ensemble: Ensemble | None
    """The linear model whose logits are added to the encoder's. None if there is none."""
    is_linear: bool
    """Whether the ensemble is the linear part of a sum, whose encoder is left out."""
    temperature: float
    """The probabilities are softmax(logits / temperature)."""
    predict: Callable[[Texts, AfterBatch], list[str]]
    """Predicts the label of each text."""

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.folder.path


@dataclass(frozen=True)
class ExportFormat:
    """One export format."""

    export: Callable[[Sequence[TrainedRun], Path, Log], dict[str, Any]]
    """Writes the runs to a path, replacing what is there, and returns `files`: facts of each for a table, `name` first."""
    kind: OutputKind
    """The format in words, for messages, and the ending of a file."""
    folder_with: str = ""
    """For a format that writes a folder (by `commit_directory`): the file by which an earlier export is recognised."""
    reads_data: bool = True
    """Whether it reads rows of the task, so that the command's --data makes sense."""
    quantized: Callable[[Sequence[TrainedRun], Path, Log, float], dict[str, Any]] | None = None
    """Writes them in int8, if so large a share of the labels of the dev rows stays, and returns `quantization` too; None: the
    format has no weights."""
