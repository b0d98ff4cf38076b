"""Where text, label and id stand in the file at hand."""

from collections.abc import Iterable
from typing import NamedTuple

from recurcli.data.columns.texts import ID_NAMES, LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, TextColumns
from recurcli.data.config import DataConfig
from recurcli.data.formats.records import Records, other_delimiter
from recurcli.data.tasks import PLAIN, Layout, Task
from recurcli.errors import DataError, escaped

OPTION = "--set data.{}=COLUMN"
"""How a message tells to name a column; {} is what the column holds."""


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
    labelled: bool | None,
    layout: Layout = PLAIN,
    records: Records | None = None,
    option: str = OPTION,
) -> Columns:
    """Where text, pair, label and id stand: as told, as the task has it, or else by a usual name.

    JSON rows may each have other keys, so theirs are taken as told; an id must be there only if the configuration names it.
    `labelled` None: the label is where it usually is, or nowhere, unless the configuration names it. `option`: see OPTION.
    """

    def told(column: str) -> str:
        return column if records is None else records.column(column)

    hint = "" if records is None else other_delimiter(there, records.format)
    text, pair = layout.text or task.text, task.pair
    if not text:
        first = _usual(TEXT_NAMES, there, "text", name, option, hint)
        text = (first,)
        second = _spelled([PAIR_NAMES.get(first.strip().casefold(), "")], there)
        if not pair and second is not None:
            pair = (second,)
    texts = TextColumns(tuple(map(told, text)), tuple(map(told, pair)), task.spans)
    label, wanted = None, layout.label or task.label
    if labelled is None and config.label is None:
        label = (wanted if wanted in there else None) if wanted else _spelled(LABEL_NAMES, there)
    elif labelled is not False:
        label = told(wanted) if wanted is not None else _usual(LABEL_NAMES, there, "label", name, option, hint)
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


def _spelled(names: Iterable[str], there: tuple[str, ...]) -> str | None:
    """The first of `names` that is a column, whatever its case; None if none is."""
    spelled = {column.strip().casefold(): column for column in reversed(there)} | {column: column for column in there}
    return next((spelled[name] for name in names if name in spelled), None)


def _usual(names: Iterable[str], there: tuple[str, ...], what: str, file: str, option: str, hint: str) -> str:
    """The column of one's own data that is called as a text or a label usually is."""
    if not there:
        raise DataError(f"{file}: has no rows, or none at its start that can be read")
    found = _spelled(names, there)
    if found is not None:
        return found
    shown = ", ".join(escaped(column, 40) for column in there[:20])
    raise DataError(f"{file}: which column is the {what}? say {option.format(what)}; there are: {shown}{hint}")
