"""The parts of a trained run that an export format needs."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recurcli.data.config import DataConfig
from recurcli.data.tasks import Task
from recurcli.events import RowsDone
from recurcli.model.models import Classifier
from recurcli.tokens.tokenizer import Tokenizer

Texts = Sequence[tuple[str, str | None]]


@dataclass(frozen=True)
class TrainedRun:
    """A verified run."""

    path: Path
    task: Task
    data: DataConfig
    """The preset's `data`, with the command's `--data`."""
    model: Classifier
    tokenizer: Tokenizer
    predict: Callable[[Texts, int, int], Generator[RowsDone, None, list[str]]]
    """Predicts labels. Arguments: the texts, and for RowsDone the numbers of all rows and of earlier rows."""
