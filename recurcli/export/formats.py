"""The formats of `recur export`: one file a format, one row in FORMATS."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurcli.events import Note, RowsDone
from recurcli.export.clue_export import export_clue
from recurcli.export.trained_run import TrainedRun

Export = Callable[[Sequence[TrainedRun], Path], Generator[Note | RowsDone, None, list[dict[str, Any]]]]
"""Write the runs to a path; return name, rows, source and run of each file written."""


@dataclass(frozen=True)
class ExportFormat:
    """A format: how to write it, and the ending of its file's name."""

    export: Export
    suffix: str
    title: str
    """The format in words, for messages."""


FORMATS: dict[str, ExportFormat] = {"clue": ExportFormat(export_clue, ".zip", "a CLUE submission is a zip")}
"""Every format by its name, as `--format` takes it."""
