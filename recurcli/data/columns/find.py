"""Finds the columns of text, second text, label and id in a file of labelled rows."""

from collections.abc import Iterable
from typing import NamedTuple

from recurcli.data.columns.names import ID_NAMES, LABEL_NAMES, TEXT_NAMES, ColumnNames, seconds_of
from recurcli.data.columns.texts import TextColumns
from recurcli.data.config import DataConfig
from recurcli.data.formats.records import Records, other_delimiter
from recurcli.data.tasks import PLAIN, Layout, Task
from recurcli.errors import DataError

OPTION = "--set data.{}=COLUMN"
"""How a message says to name a column; {} is what the column holds."""


class Columns(NamedTuple):
    """Names of the text, pair, label and id columns in one file of labelled rows; None: absent or not requested."""

    texts: TextColumns
    label: str | None
    id: str | None


def find_columns(
    task: Task,
    names: tuple[str, ...],
    config: DataConfig,
    source: str,
    *,
    labelled: bool | None,
    layout: Layout = PLAIN,
    records: Records | None = None,
    option: str = OPTION,
) -> Columns:
    """Find the columns of labelled rows: those that `config` and `task` name, else those with a usual name.

    JSON rows may have different keys, so a named column is not looked up there; an id is required only if `config`
    names it. `labelled` None: the label is optional unless `config` names it. `option`: see OPTION.
    """
    format = "jsonl" if records is None else records.format
    columns = ColumnNames(
        source,
        names,
        header=source if records is None or records.named else f"{source}:1",
        numbered=format in ("tsv", "csv"),
        hint=other_delimiter(names, format),
    )

    def named(name: str) -> str:
        return name if format == "jsonl" else columns.find(name)

    def usual(candidates: Iterable[str], what: str) -> str:
        if not names:
            raise DataError(f"{source}: has no rows, or none at its start that can be read")
        if (name := columns.find_usual(candidates)) is None:
            raise columns.ask(what, f"say {option.format(what)}")
        return name

    text, pair = layout.text or task.text, task.pair
    if not text:
        text = (usual(TEXT_NAMES, "text"),)
        second = columns.find_usual(seconds_of(text[0]))
        pair = pair or (() if second is None else (second,))
    texts = TextColumns(tuple(map(named, text)), tuple(map(named, pair)), task.spans)
    label, wanted = None, layout.label or task.label
    if labelled is None and config.label is None:
        label = (wanted if wanted in names else None) if wanted else columns.find_usual(LABEL_NAMES)
    elif labelled is not False:
        label = named(wanted) if wanted is not None else usual(LABEL_NAMES, "label")
    row_id = task.id
    if config.id is not None:
        row_id = named(str(config.id))
    elif row_id is None or row_id not in names:
        row_id = next((name for name in (row_id, *ID_NAMES) if name in names), row_id)
    return Columns(
        texts=texts,
        label=label,
        id=row_id if (records is not None and format == "jsonl") or row_id in names else None,
    )
