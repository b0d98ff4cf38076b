"""Logs for tests: one that keeps what a command tells, and the end of a command in the middle."""

from collections.abc import Callable
from typing import Any

import pytest

from recurcli.log import Log, State


class Kept(Log):
    """Keeps notes, details among them, warnings and states. `watch` is called with each state."""

    def __init__(self, watch: Callable[[Any], object] = id) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.states: list[State] = []
        self._watch = watch

    def note(self, text: str) -> None:
        self.notes.append(text)

    detail = note

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, state: State) -> None:
        self.states.append(state)
        self._watch(state)


class Dropped(BaseException):
    """Ends a command where it stands."""


def drop(command: Callable[[Any, Log], object], request: Any, reached: Callable[[Any], bool]) -> None:
    """Start a command and end it, as a kill would, at the first state of which `reached` is true."""

    def end(state: Any) -> None:
        if reached(state):
            raise Dropped

    with pytest.raises(Dropped):
        command(request, Kept(end))


def drop_at_step(step: int, command: Callable[[Any, Log], object], request: Any) -> None:
    """Start a training and end it after a step, as a kill would."""
    drop(command, request, lambda state: state.step == step)
