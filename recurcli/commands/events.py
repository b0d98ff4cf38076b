"""What commands that go through rows report on the way; importable without torch."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class RowsDone:
    """How many rows are scored; `total` is None where nobody can know, as of a pipe."""

    done: int
    total: int | None = None


def counted(
    steps: Generator[int, None, Result], total: int | None, *, before: int = 0
) -> Generator[RowsDone, None, Result]:
    """The counts that `steps` yields as RowsDone, on top of `before`; returns what `steps` returns."""
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            return end.value
        yield RowsDone(before + done, total)
