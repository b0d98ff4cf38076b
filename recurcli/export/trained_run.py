"""A trained run as an export format sees it."""

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
    """A verified run with what a format needs of it."""

    path: Path
    task: Task
    data: DataConfig
    """Where its rows are: the preset's `data`, with the `--data` of the command."""
    model: Classifier
    tokenizer: Tokenizer
    predict: Callable[[Texts, int, int], Generator[RowsDone, None, list[str]]]
    """Labels of texts; takes the texts, the number of all rows and of the rows done before, for the RowsDone."""
