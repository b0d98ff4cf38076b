"""What a check of a submission found: each cause once, at its first line, with a count of the other lines."""

from typing import Literal, NamedTuple, get_args

Level = Literal["error", "warning", "information"]


class Finding(NamedTuple):
    """One thing that a check has to say; an `error` means that the file would score 0 or that rows would be lost."""

    level: Level
    message: str
    """One line, safe for a terminal, that begins with the file and, where there is one, the line."""


class Findings:
    """Gathers the findings about one file, however many lines of it have the same fault.

    `where` is the file as messages name it.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._first: dict[str, tuple[Level, str]] = {}
        self._count: dict[str, int] = {}

    def add(self, level: Level, cause: str, message: str, *, line: int | None = None) -> None:
        """Note `message`, unless the same `cause` (a word of the caller's) was found before: then only count it."""
        place = self._where if line is None else f"{self._where} line {line}"
        self._first.setdefault(cause, (level, f"{place}: {message}"))
        self._count[cause] = self._count.get(cause, 0) + 1

    def ordered(self) -> list[Finding]:
        """Errors first, then warnings, then information; within a level in the order in which they were found."""
        found = [
            Finding(level, message if self._count[cause] == 1 else f"{message} (and {self._count[cause] - 1:,} more)")
            for cause, (level, message) in self._first.items()
        ]
        return by_gravity(found)


def by_gravity(found: list[Finding]) -> list[Finding]:
    """The same findings, errors before warnings before information."""
    return sorted(found, key=lambda finding: get_args(Level).index(finding.level))
