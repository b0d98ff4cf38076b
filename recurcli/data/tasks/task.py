"""Types of the facts about a task: its files, columns and labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One set of files of a task; other settings override the task's."""

    files: Mapping[str, str]
    """Split to the name of a file, or of a folder of folders named by label."""
    header: bool = True
    """TSV and CSV: whether the first row names the columns; without it they are "1", "2", …"""
    delimiter: str | None = None
    """TSV and CSV: the separator of fields; None: TAB or a comma."""
    text: tuple[str, ...] | None = None
    label: str | None = None
    label_names: Mapping[str, str] = field(default_factory=dict)
    """Label in these files to the task's label."""
    unlabelled: tuple[str, ...] = ()
    """Splits whose rows have no labels."""


PLAIN = Layout(files={})
"""The layout of a file without settings."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A classification task: names of its files, columns and labels."""

    name: str
    labels: tuple[str, ...] = ()
    """Labels in the order of a model's class indexes; empty: those of the training rows."""
    layouts: tuple[Layout, ...] = ()
    """Sets of files in which the task is distributed, the usual one first."""
    folder: str | None = None
    """Name of its folder in a parent of task folders; None: the task's name."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Split to the official number of rows in its file, without those with `dropped_label`."""
    text: tuple[str, ...] = ()
    """Columns of the text, or of the first text of a pair; empty: a column with a usual name."""
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text, which are marked in it."""
    label: str | None = "label"
    """Column of the label; None: a column with a usual name."""
    id: str | None = "id"
    test_ids_from_zero: bool = True
    """Whether the ids in CLUE's test file are row numbers; CSL's are shuffled and begin at 1."""
    dev_every: int = 10
    """One of this many training rows of a class is a dev row if the task has no dev rows (DevSplitter; ours)."""
    dropped_label: str | None = None
    """Label of rows without a majority label, which are left out of train and dev but not of a test file."""
    hub: tuple[str, str | None] | None = None
    """(repository, configuration) on the Hugging Face Hub."""
    submissions: Mapping[str, str] = field(default_factory=dict)
    """Split to the name of the file that CLUE's leaderboard takes for it, the newest test set first."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """Accuracies on dev of rules that do not learn the task."""

    @property
    def files(self) -> Mapping[str, str]:
        """Split to file name in the usual layout."""
        return self.layouts[0].files if self.layouts else {}

    def targets(self, labels: Iterable[str]) -> list[int]:
        """Return the class number of each label."""
        number = {label: index for index, label in enumerate(self.labels)}
        return [number[label] for label in labels]

    def has_labels(self, split: str) -> bool:
        """Return whether rows of `split` have labels; the test files of a leaderboard have none."""
        return split in ("train", "dev") or not self.submissions
