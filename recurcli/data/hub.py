"""Loads the rows of a split from the Hugging Face Hub or its cache with `datasets`."""

from collections.abc import Iterator
from typing import Any

from recurcli.data.readers import with_class_names
from recurcli.data.rows import Record, Records
from recurcli.data.tasks import Task
from recurcli.errors import DataError, escaped

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""Maps a split to its name on the Hub."""


def load_hub_split(task: Task, split: str) -> tuple[Records, bool]:
    """Return the rows of a task's split, and whether they are the rows of both train and dev (no validation split).

    Labels are strings, None where the Hub hides them. `HF_HUB_OFFLINE=1` restricts the search to the cache, as does a
    missing network. Raises DataError if neither has the rows.
    """
    if task.hub is None or split not in HUB_SPLITS:
        raise DataError(f"the Hub has no split {split} of {task.name}; name a folder or file with --data")
    import datasets

    repository, configuration = task.hub
    try:
        splits = datasets.load_dataset(repository, configuration)
    except Exception as error:  # a dozen types of five libraries, for no network, no cache, no repository
        reason = escaped(str(error).strip().partition("\n")[0] or type(error).__name__, limit=300)
        raise DataError(
            f"{task.name} can be loaded neither from the Hub nor from its cache ({repository}, {configuration}: {reason}); "
            "name a folder or file with --data"
        ) from None
    without_dev = HUB_SPLITS["dev"] not in splits
    hub_split = "train" if split == "dev" and without_dev else HUB_SPLITS[split]
    if hub_split not in splits:
        known = ", ".join(map(escaped, splits))
        raise DataError(f"{escaped(repository)} has no split '{hub_split}'; known: {known}")
    rows = splits[hub_split]
    columns = dict.fromkeys(task.id if name == "idx" and task.id is not None else name for name in rows.features)
    name = " ".join(part for part in (repository, configuration, split) if part)
    # Arrow rows share their columns, as those of a Parquet file do.
    records = Records(name, "parquet", tuple(columns), records_of(rows, task))
    return records, without_dev and split in ("train", "dev")


def records_of(rows: Any, task: Task) -> Iterator[Record]:
    """Yield the records of a `datasets.Dataset`: class numbers become names, the Hub's `idx` the row's id."""
    class_names = {column: feature.names for column, feature in rows.features.items() if hasattr(feature, "names")}
    for line, row in enumerate(rows, 1):
        fields = with_class_names(dict(row), class_names)
        if "idx" in fields and task.id is not None:
            fields.setdefault(task.id, fields.pop("idx"))
        yield Record(line, fields)
