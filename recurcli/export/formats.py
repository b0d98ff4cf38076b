"""The formats of `recur export`; each has one file and one row in FORMATS."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurcli.events import Note, RowsDone
from recurcli.export.clue_export import export_clue
from recurcli.export.trained_run import TrainedRun

Export = Callable[[Sequence[TrainedRun], Path], Generator[Note | RowsDone, None, list[dict[str, Any]]]]
"""Writes the runs to a path and returns name, rows, source and run of each written file."""


@dataclass(frozen=True)
class ExportFormat:
    """One export format."""

    export: Export
    suffix: str
    """Ending of the file's name."""
    title: str
    """The format in words, for messages."""


FORMATS: dict[str, ExportFormat] = {"clue": ExportFormat(export_clue, ".zip", "a CLUE submission is a zip")}
"""Format by its name, the value of `--format`."""
