"""Finds the columns of text, second text, label and id in a file of labelled rows."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from recurcli.data.columns.names import ID_NAMES, LABEL_NAMES, TEXT_NAMES, ColumnNames, seconds_of
from recurcli.data.columns.texts import TextColumns
from recurcli.data.config import DataConfig
from recurcli.data.formats.records import Records, delimiter_seen
from recurcli.data.tasks import PLAIN, Layout, Task
from recurcli.errors import DataError, escaped

LONGEST_NAME = 40
"""A longer name of a column seems to be a text."""


def setting(key: str, value: str = "COLUMN") -> str:
    """Return the option of `recur finetune` that sets `data.<key>`, as messages show it; a delimiter is quoted."""
    return f"""--set 'data.{key}="{escaped(value)}"'""" if key == "delimiter" else f"--set data.{key}={value}"


def option(key: str, value: str = "COLUMN") -> str:
    """Return the option of `recur check`, `recur eval` and `recur predict` for `data.<key>`, as messages show it."""
    if key == "header":
        return "--header" if value == "true" else "--no-header"
    if key == "delimiter":
        value = "$'\\t'" if value == "\t" else f"'{value}'"
    return f"--{key} {value}"


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
    way_out: Callable[[str, str], str] = setting,
) -> Columns:
    """Find the columns of labelled rows: those that `config` and `task` name, else those with a usual name.

    JSON rows may have different keys, so that named columns are not looked up; an id is required only if `config` names
    it. `labelled` None: the label is optional unless `config` names it. `way_out`: `setting` or `option`. Raises DataError
    for a column that is missing or has no usual name.
    """
    names = records.columns
    columns = ColumnNames(
        records.name,
        names,
        header=records.name if records.named else f"{records.name}:1",
        numbered=records.format in ("tsv", "csv"),
    )
    if (mark := delimiter_seen(names, records.format)) is not None:
        expected = "TAB" if records.format == "tsv" else "a comma"
        columns.hint = (
            f"; its fields seem to be separated by '{escaped(mark)}', not by {expected}: {way_out('delimiter', mark)}"
        )

    def named(name: str, what: str) -> str:
        return name if records.format == "jsonl" else columns.find(name, f"; {way_out(what, 'COLUMN')} names another")

    no_header = ""
    if columns.numbered and any(len(name) > LONGEST_NAME or name.count(" ") > 1 for name in names):
        no_header = f", or {way_out('header', 'false')} if line 1 is a row"

    def usual(candidates: Iterable[str], what: str) -> str:
        if not names:
            raise DataError(f"{records.name}: has no rows, or none at its start that can be read")
        if (name := columns.find_usual(candidates)) is None:
            raise columns.ask(what, f"say {way_out(what, 'COLUMN')}{no_header}")
        return name

    text, pair = layout.text or task.text, task.pair
    if not text:
        text = (usual(TEXT_NAMES, "text"),)
        second = columns.find_usual(seconds_of(text[0]))
        pair = pair or (() if second is None else (second,))
    texts = TextColumns(
        tuple(named(name, "text") for name in text), tuple(named(name, "pair") for name in pair), task.spans
    )
    label, wanted = None, layout.label or task.label
    if labelled is None and config.label is None:
        label = (wanted if wanted in names else None) if wanted else columns.find_usual(LABEL_NAMES)
    elif labelled is not False:
        label = named(wanted, "label") if wanted is not None else usual(LABEL_NAMES, "label")
    row_id = task.id
    if config.id is not None:
        row_id = named(str(config.id), "id")
    elif row_id not in names:
        row_id = next((name for name in ID_NAMES if name in names), row_id)
    return Columns(texts, label, row_id if records.format == "jsonl" or row_id in names else None)
