"""Where text, label and id stand in the file at hand."""

from collections.abc import Iterable
from typing import NamedTuple

from recurcli.data.columns import ID_NAMES, LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, TextColumns
from recurcli.data.config import DataConfig
from recurcli.data.records import Records, other_delimiter
from recurcli.data.task import PLAIN, Layout, Task
from recurcli.errors import DataError, visible


class Columns(NamedTuple):
    """What the columns that matter are called in this file; None for one that is not there or not wanted."""

    texts: TextColumns
    label: str | None
    id: str | None


def find_columns(
    task: Task,
    there: tuple[str, ...],
    config: DataConfig,
    name: str,
    *,
    labelled: bool,
    layout: Layout = PLAIN,
    records: Records | None = None,
) -> Columns:
    """Where text, pair, label and id stand: as told, as the task has it, or else by a usual name.

    JSON rows may each have other keys, so theirs are taken as told; an id must be there only if the configuration names it.
    """

    def told(column: str) -> str:
        return column if records is None else records.column(column)

    hint = "" if records is None else other_delimiter(there, records.format)
    text, pair = layout.text or task.text, task.pair
    if not text:
        first = _usual(TEXT_NAMES, there, "text", name, hint)
        text = (first,)
        if not pair and PAIR_NAMES.get(first) in there:
            pair = (PAIR_NAMES[first],)
    texts = TextColumns(tuple(map(told, text)), tuple(map(told, pair)), task.spans)
    label = None
    if labelled:
        wanted = layout.label or task.label
        label = told(wanted) if wanted is not None else _usual(LABEL_NAMES, there, "label", name, hint)
    row_id = task.id
    if config.id is not None:
        row_id = told(str(config.id))
    elif row_id is None or row_id not in there:
        row_id = next((column for column in (row_id, *ID_NAMES) if column in there), row_id)
    is_json = records is not None and records.format == "jsonl"
    return Columns(
        texts=texts,
        label=label,
        id=row_id if is_json or row_id in there else None,
    )


def _usual(names: Iterable[str], there: tuple[str, ...], what: str, file: str, hint: str) -> str:
    """The column of one's own data that is called as a text or a label usually is."""
    if not there:
        raise DataError(f"{file}: has no rows, or none at its start that can be read")
    spelled = {column.strip().casefold(): column for column in reversed(there)} | {column: column for column in there}
    found = next((spelled[name] for name in names if name in spelled), None)
    if found is not None:
        return found
    shown = ", ".join(visible(column, 40) for column in there[:20])
    raise DataError(f"{file}: which column is the {what}? say --set data.{what}=COLUMN; there are: {shown}{hint}")
