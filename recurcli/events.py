"""The events that commands yield while they work, and the findings of a check. This file does not import torch."""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

Result = TypeVar("Result")


@dataclass(frozen=True)
class Note:
    """One sentence that the user should read."""

    text: str
    level: Literal["info", "warning"] = "info"


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
    """Learning rate, gradient norm and auxiliary losses of the step."""
    tokens: int
    seconds: float
    dev_metric: float | None = None
    """The dev metric, if the model was evaluated after this step."""
    best_dev_metric: float | None = None
    linear_dev_metric: float | None = None
    """The dev metric of the linear model, if there is one."""
    improved: bool = False
    """Whether this step has the best dev metric so far."""


@dataclass(frozen=True)
class TrialProgress:
    """The state of a trial of a study after an optimiser step."""

    trial: int
    trials: int
    training: Progress
    best_dev_metric: float | None
    """The best dev metric of the study so far. None before its first evaluation."""


@dataclass(frozen=True)
class Measured:
    """What `recur bench` has measured so far, in the form of its result. The last of its `settings` is new."""

    result: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """The end of a command, with the result that result.json and `--json` hold."""

    result: dict[str, Any]


def run_to_end(steps: Generator[object, None, Result], check_stop: Callable[[], None] = lambda: None) -> Result:
    """Run `steps` to their end and return their result. `check_stop` is called before the first step and after each one.

    An exception that `check_stop` raises ends the steps.
    """
    check_stop()
    with contextlib.closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            check_stop()


Level = Literal["error", "warning", "information"]


class Finding(NamedTuple):
    """One finding; an `error` means that a file would score 0, that a training would stop or that rows would be lost."""

    level: Level
    message: str
    """One line of printable text: the file, the line if there is one, and the fault."""


class Findings:
    """Collects the findings about one file; `name` is its name in messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: dict[str, tuple[Level, str]] = {}
        self._count: dict[str, int] = {}

    def add(self, level: Level, cause: str, message: str, *, line: int | None = None) -> None:
        """Add a finding. A `cause` that was added before is only counted."""
        where = self._name if line is None else f"{self._name} line {line}"
        self._first.setdefault(cause, (level, f"{where}: {message}"))
        self._count[cause] = self._count.get(cause, 0) + 1

    def ordered(self) -> list[Finding]:
        """Return errors, then warnings, then information; within a level in the order in which they were added."""
        findings = [
            Finding(level, message if self._count[cause] == 1 else f"{message} (and {self._count[cause] - 1:,} more)")
            for cause, (level, message) in self._first.items()
        ]
        return sort_by_severity(findings)


def sort_by_severity(findings: list[Finding]) -> list[Finding]:
    """Return the findings with errors before warnings before information."""
    return sorted(findings, key=lambda finding: get_args(Level).index(finding.level))
