"""Tasks from the Hugging Face Hub or its cache, through `datasets` (CLUE: repository clue/clue, a configuration a task)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from recurcli.data.formats.parquet import class_name
from recurcli.data.formats.records import Record
from recurcli.data.tasks import Task
from recurcli.errors import DataError, escaped

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


class HubSplit(NamedTuple):
    """A split of the Hub."""

    records: Iterator[Record]
    columns: tuple[str, ...]
    divided: bool
    """Whether there are no dev rows of their own, and these are the rows of train and of dev."""


def load_hub_split(task: Task, split: str) -> HubSplit:
    """The rows of a task's split as records, in their order, labels as strings (None where the Hub hides them).

    `HF_HUB_OFFLINE=1` keeps to the cache, as does having no network. Raises DataError if neither has the rows.
    """
    if task.hub is None or split not in HUB_SPLITS:
        raise DataError(f"the Hub has no split {split} of {task.name}; name a folder or file with --data")
    import datasets

    repository, configuration = task.hub
    try:
        everything = datasets.load_dataset(repository, configuration)
    except Exception as error:  # a dozen types of five libraries, for no network, no cache, no repository
        reason = escaped(str(error).strip().partition("\n")[0] or type(error).__name__, limit=300)
        raise DataError(
            f"{task.name} is neither on the Hub within reach nor in its cache ({repository}, {configuration}: {reason}); "
            "name a folder or file with --data"
        ) from None
    without_dev = HUB_SPLITS["dev"] not in everything
    name = "train" if split == "dev" and without_dev else HUB_SPLITS[split]
    if name not in everything:
        there = ", ".join(map(escaped, everything))
        raise DataError(f"{escaped(repository)} has no split '{name}'; there are: {there}")
    rows = everything[name]
    return HubSplit(records_of(rows, task), _columns_of(rows, task), without_dev and split in ("train", "dev"))


def _columns_of(rows: Any, task: Task) -> tuple[str, ...]:
    names = [task.id if name == "idx" and task.id is not None else name for name in rows.features]
    return tuple(dict.fromkeys(names))


def records_of(rows: Any, task: Task) -> Iterator[Record]:
    """Records of a `datasets.Dataset`: class indexes as the names they stand for, the Hub's `idx` as the row's id."""
    names = {column: feature.names for column, feature in rows.features.items() if hasattr(feature, "names")}
    for line, row in enumerate(rows, 1):
        fields = dict(row)
        for column, classes in names.items():
            fields[column] = class_name(fields[column], classes)
        if "idx" in fields and task.id is not None:
            fields.setdefault(task.id, fields.pop("idx"))
        yield Record(line, fields)
