"""Tasks from the Hugging Face Hub or its cache, through `datasets` (CLUE: repository clue/clue, a configuration a task)."""

from collections.abc import Iterable, Iterator
from typing import Any

from recurcli.data.readers import Record
from recurcli.data.tasks import Task
from recurcli.errors import DataError, visible

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
NO_LABEL = -1


def load_hub_split(task: Task, split: str) -> Iterator[Record]:
    """The rows of a task's split as records, in their order, labels as strings (None where the Hub hides them).

    `HF_HUB_OFFLINE=1` keeps to the cache, as does having no network. Raises DataError if neither has the rows.
    """
    if task.hub is None or split not in HUB_SPLITS:
        raise DataError(f"the Hub has no split {split} of {task.name}; name a folder or file with --data")
    import datasets

    repository, configuration = task.hub
    source = "train" if split == "dev" and task.dev_every else HUB_SPLITS[split]
    try:
        rows = datasets.load_dataset(repository, configuration, split=source)
    except Exception as error:  # a dozen types of five libraries, for no network, no cache, no repository
        reason = visible(str(error).strip().partition("\n")[0] or type(error).__name__, limit=300)
        raise DataError(
            f"{task.name} is neither on the Hub within reach nor in its cache ({repository}, {configuration}: {reason}); "
            "name a folder or file with --data"
        ) from None
    return records_of(rows, task)


def records_of(rows: Any, task: Task) -> Iterator[Record]:
    """Records of a `datasets.Dataset`: class indexes as the names they stand for, the Hub's `idx` as the row's id."""
    feature = rows.features.get(task.label)
    names: list[str] | None = getattr(feature, "names", None)
    numbered: Iterable[tuple[int, dict[str, Any]]] = enumerate(rows, 1)
    for line, row in numbered:
        fields = dict(row)
        if names is not None:
            index = fields[task.label]
            fields[task.label] = None if index is None or index == NO_LABEL else names[index]
        if "idx" in fields:
            fields.setdefault(task.id, fields.pop("idx"))
        yield Record(line, fields)
