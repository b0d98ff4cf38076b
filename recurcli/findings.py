"""The findings of a check on files. This file does not import torch."""

from typing import Literal, NamedTuple, get_args

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
