"""What a command tells while it works. This file does not import torch."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Note:
    """One sentence that the user should read."""

    text: str
    level: Literal["detail", "info", "warning"] = "info"
    """A detail is what the program chose by itself. It is shown under --verbose alone."""


@dataclass(frozen=True)
class RowsDone:
    """The number of rows that a command has processed."""

    done: int
    total: int | None = None
    """The number of all rows. None where it is unknown, as for a pipe."""
    unit: Literal["row", "window"] = "row"
    """The unit that is counted: rows, or windows of a stream of tokens."""


@dataclass(frozen=True)
class Progress:
    """The state of a training after an optimiser step."""

    step: int
    total_steps: int
    epoch: float
    loss: float
    """The mean loss of the steps since the last line of metrics.jsonl."""
    measures: dict[str, float]
    tokens: int
    seconds: float
    dev_metric: float | None = None
    """The dev metric, if the model was evaluated after this step."""
    best_dev_metric: float | None = None
    linear_dev_metric: float | None = None
    improved: bool = False


@dataclass(frozen=True)
class TrialProgress:
    """The state of a trial of a study after an optimiser step."""

    trial: int
    trials: int
    training: Progress
    best_dev_metric: float | None
    """The best dev metric of the study so far. None before its first evaluation."""


State = RowsDone | Progress | TrialProgress
LOGGER = logging.getLogger("recurcli")
LOGGER.addHandler(logging.NullHandler())  # without it Python would print warnings itself


class Log:
    """Receives the notes and the progress of a command. This one hands notes to the logger "recurcli" and drops the progress;
    `display.screen.Screen` shows both.

    An exception that a method raises ends the command.
    """

    def note(self, text: str) -> None:
        """Receive one sentence that the user may read."""
        LOGGER.info("%s", text)

    def detail(self, text: str) -> None:
        """Receive one sentence on what the command chose by itself, which the user need not read."""
        LOGGER.debug("%s", text)

    def warn(self, text: str) -> None:
        """Receive one sentence that the user should read."""
        LOGGER.warning("%s", text)

    def progress(self, state: State) -> None:
        """Receive the state of the work."""

    def stage(self, text: str) -> None:
        """Receive what the command does from now on, such as "reading the rows"."""

    def scored_by(self, metric: str) -> None:
        """Receive the name of the dev metric of the `Progress` from now on."""

    def rows(
        self, done: int, before: int = 0, total: int | None = None, unit: Literal["row", "window"] = "row"
    ) -> None:
        """Receive the number of rows that are done, besides those that were done `before`."""
        self.progress(RowsDone(before + done, total, unit))

    def add(self, *notes: Note) -> None:
        """Receive notes that functions returned."""
        for note in notes:
            {"detail": self.detail, "info": self.note, "warning": self.warn}[note.level](note.text)


AfterBatch = Callable[[int], object]
"""Called after each batch with the number of finished rows. An exception that it raises ends the inference."""


def ignore(done: int) -> None:
    """Do nothing after a batch."""
