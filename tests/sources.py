"""Sources of training rows, and what rows in memory are decided to be like."""

import io
from typing import Any

from recurcli.config import DataConfig
from recurcli.data.columns import TextColumns
from recurcli.data.rows import Record, Records
from recurcli.data.source import UNKNOWN, Source, find_source
from recurcli.data.tasks import TASKS, task_with_columns


def like(
    text: str | tuple[str, ...] = "text", *pair: str, name: str = "runs/x", explicit: tuple[str, ...] = ()
) -> Source:
    """The source of JSON rows with these columns."""
    columns = TextColumns((text,) if isinstance(text, str) else text, pair)
    return Source(name=name, format="jsonl", columns=columns, explicit=explicit)


def found(
    content: str, *, like: Source = UNKNOWN, labelled: bool = False, is_input: bool = False, **told: Any
) -> tuple[Source, Records, list[Record]]:
    """What a TSV of this content, called x.tsv, is decided to be like, and its rows. `told` are keys of DataConfig."""
    config = DataConfig(**told)
    task, stream = task_with_columns(TASKS["custom"], config), io.BytesIO(content.encode())
    source, records = find_source(
        stream, task, config, like=like, labelled=labelled, is_input=is_input, name="x.tsv", format="tsv"
    )
    return source, records, [*records]


def texts_of(source: Source, records: Records) -> TextColumns:
    """The names of the columns of texts."""
    names = dict(zip(records.columns, records.names, strict=True))
    text, pair = (tuple(map(names.__getitem__, keys)) for keys in (source.columns.text, source.columns.pair))
    return TextColumns(text, pair)
