"""Runs command lines in this process, and reads the JSON files of runs."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recurcli.cli import run


def refuse_constant(name: str) -> None:
    """Called for NaN and the infinities, which JSON lacks and other programs refuse."""
    raise AssertionError(f"--json printed {name}")


@contextmanager
def handlers_kept() -> Iterator[None]:
    """The handlers of the signals that a command listens to are afterwards those of before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Recur:
    """Runs a command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Returns the exit code, stdout and stderr."""
        self._capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        if "--json" in arguments and captured.out:
            json.loads(captured.out, parse_constant=refuse_constant)
        return code, captured.out, captured.err

    def ok(self, *arguments: object) -> tuple[str, str]:
        """Returns stdout and stderr of a command that must succeed."""
        code, out, err = self(*arguments)
        assert code == 0, err
        return out, err

    def json(self, *arguments: object) -> Any:
        """Returns what a command that must succeed prints with --json."""
        return json.loads(self.ok(*arguments, "--json")[0])

    def refused(self, code: int, reason: str, *arguments: object) -> str:
        """Returns stderr of a command that must end with this exit code and one line of error, which has `reason`.

        Stdout must be empty, but for `check` and `compare`, which show what they found before it.
        """
        found, out, err = self(*arguments)
        errors = [line for line in err.splitlines() if line.startswith("recur: error: ")]
        assert (found, len(errors)) == (code, 1), err
        assert not out or arguments[0] in ("check", "compare"), out
        assert reason in errors[0]
        return err


def result_of(run: Path) -> Any:
    """The content of a run's result.json."""
    return json.loads((run / "result.json").read_text())


def lines_of(path: Path) -> list[Any]:
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def saved(path: Path, content: str | bytes) -> Path:
    """Write a file; returns its path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
