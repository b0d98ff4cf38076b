"""What a task is: facts about its files, columns and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from recurcli.data.columns.texts import TextColumns


class Submission(NamedTuple):
    """A file that CLUE's leaderboard takes: its name, the test file it answers line by line, and their rows."""

    name: str
    test_file: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way in which the files of a task come, where it is not the task's own."""

    files: Mapping[str, str]
    """Split to file name, or to the name of a folder of folders named by label."""
    header: bool = True
    """TSV and CSV: whether the first row names the columns; without it they are "1", "2", …"""
    delimiter: str | None = None
    """TSV and CSV: what separates fields, where it is not TAB or a comma."""
    text: tuple[str, ...] | None = None
    label: str | None = None
    label_names: Mapping[str, str] = field(default_factory=dict)
    """A label as these files write it, to the task's own."""
    unlabelled: tuple[str, ...] = ()
    """Splits whose rows have no labels."""


PLAIN = Layout(files={})
"""A file of which nothing is known but its task."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A classification task: what its files, columns and labels are called."""

    name: str
    labels: tuple[str, ...] = ()
    """In the order of the class indexes inside a model; outside of it a label is always its string. Empty: they are
    those of the training rows."""
    layouts: tuple[Layout, ...] = ()
    """The ways in which its files come, the usual one first."""
    folder: str | None = None
    """Name of its folder in a parent of task folders, where that is not the task's own name."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Split to the official number of rows in its file, without those with `dropped_label`."""
    text: tuple[str, ...] = ()
    """Columns of the text, or of the first text of a pair; empty: found by name."""
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text, which are marked in it."""
    label: str | None = "label"
    """Column of the label; None: found by name."""
    id: str | None = "id"
    test_ids_from_zero: bool = True
    """Whether the ids in CLUE's test file are its row numbers; CSL's are shuffled and begin at 1."""
    dev_every: int = 10
    """One of this many training rows of a class is a dev row if the task has no dev rows (DevSplitter; ours)."""
    dropped_label: str | None = None
    """Marks rows without a majority label: left out of train and dev, never of a test file."""
    hub: tuple[str, str | None] | None = None
    """(repository, configuration) on the Hugging Face Hub."""
    submissions: tuple[Submission, ...] = ()
    floors: Mapping[str, float] = field(default_factory=dict)
    """Accuracies on dev that need no learning of the task; a score below them says little."""

    @property
    def files(self) -> Mapping[str, str]:
        """Split to file name, as the files usually come."""
        return self.layouts[0].files if self.layouts else {}

    @property
    def columns(self) -> TextColumns:
        """Where the texts of a row stand."""
        return TextColumns(self.text, self.pair, self.spans)

    def has_labels(self, split: str) -> bool:
        """Whether rows of `split` carry labels: the test files of a leaderboard do not."""
        return split in ("train", "dev") or not self.submissions
