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
"""How a message says to name a column; {} is the column's role."""


class Columns(NamedTuple):
    """Names of the text, pair, label and id columns in one file of labelled rows; None: absent or not requested."""

    texts: TextColumns
    label: str | None
    id: str | None


def find_columns(
    records: Records,
    task: Task,
    config: DataConfig,
    layout: Layout = PLAIN,
    *,
    labelled: bool | None,
    option: str = OPTION,
) -> Columns:
    """Find the columns of labelled rows: those that `config` and `task` name, else those with a usual name.

    JSON rows may have different keys, so that named columns are not looked up; an id is required only if `config` names
    it. `labelled` None: the label is optional unless `config` names it. `option`: see OPTION. Raises DataError for a
    column that is missing or has no usual name.
    """
    names = records.columns
    columns = ColumnNames(
        records.name,
        names,
        header=records.name if records.named else f"{records.name}:1",
        numbered=records.format in ("tsv", "csv"),
        hint=other_delimiter(names, records.format),
    )

    def named(name: str) -> str:
        return name if records.format == "jsonl" else columns.find(name)

    def usual(candidates: Iterable[str], what: str) -> str:
        if not names:
            raise DataError(f"{records.name}: has no rows, or none at its start that can be read")
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
    elif row_id not in names:
        row_id = next((name for name in ID_NAMES if name in names), row_id)
    return Columns(texts, label, row_id if records.format == "jsonl" or row_id in names else None)
