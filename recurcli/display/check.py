"""The report of `recur check` on the screen: rows, lengths and labels in tables, then the findings."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recurcli.display.tables import cell, heading, show, table
from recurcli.errors import pluralize

MAX_LABELS = 20
"""Labels in the table; of more, the most frequent."""
BAD_ROWS_SHOWN = 5
STYLES = {"error": "bold red", "warning": "yellow", "information": "dim"}

Splits = Sequence[Mapping[str, Any]]


def print_check(result: Mapping[str, Any]) -> None:
    """Print every report, one below the other."""
    shown: list[RenderableType] = []
    for report in result["reports"]:
        counts = ((report["errors"], "error"), (report["warnings"], "warning"))
        count = ", ".join(pluralize(number, word) for number, word in counts if number) or "nothing wrong"
        what = "CLUE submission" if report["kind"] == "submission" else "cannot be read"
        if report["kind"] == "data":
            what = f"task {report['task']} ({report['task_reason']})"
        tables = _data(report) if report["kind"] == "data" else []
        findings = [_findings(report["findings"])] if report["findings"] else []
        shown += [heading(report["path"], what, count), *tables, *findings, Text("")]
    show(*shown)


def _data(report: Mapping[str, Any]) -> list[RenderableType]:
    splits = [split for split in report["splits"] if split["fault"] is None]
    shown: list[RenderableType] = [_columns(splits[0]["columns"]), _rows(splits)] if splits else []
    if any(split["lengths"] for split in splits):
        shown += _lengths(splits, report["tokens"])
    if any(split["labels"] for split in splits):
        shown += _labels([split for split in splits if split["labels"]])
    if any(split["bad"] for split in splits):
        shown += [heading("rows that cannot be used", "the first; --json lists more"), _bad_rows(splits)]
    return shown


def _columns(columns: Mapping[str, Any]) -> Text:
    texts = " and ".join(
        " + ".join(f"'{name}'" for name in columns[key]) for key in ("text", "pair") if columns.get(key)
    )
    label = f"labels from '{columns['label']}'" if columns["label"] else "no labels"
    return cell(f"texts from {texts}, {label}", style="dim")


def _rows(splits: Splits) -> Table:
    known = any(split["official"] is not None for split in splits)
    official = ["official"] if known else []
    shown = table("split", "file", "rows", *official, "bad", "dropped", "repeated", "label conflicts", numbers=True)
    shown.columns[1].justify = "left"
    for split in splits:
        expected = ["–" if split["official"] is None else f"{split['official']:,}"] if known else []
        repeated = split["repeated"]
        counts = (split["bad"], split["dropped"], repeated["rows"], repeated["conflicting_texts"])
        file = cell(split["path"].rpartition("/")[2])
        shown.add_row(cell(split["split"]), file, f"{split['rows']:,}", *expected, *map(_or_dot, counts))
    return shown


def _lengths(splits: Splits, tokens: Mapping[str, Any]) -> list[RenderableType]:
    source = tokens["vocabulary"]
    if source is not None and "/" not in source:
        source = "the rows" if source == "rows" else f"the {source} rows"
    cut = f"longer than {tokens['max_length']:,}"
    shown = table("split", "min", "median", "mean", "95 %", "99 %", "max", cut, "share", numbers=True)
    for split in splits:
        if (lengths := split["lengths"]) is not None:
            keys = ("minimum", "median", "mean", "p95", "p99", "maximum")
            numbers = [f"{lengths[key]:,.{int(key == 'mean')}f}" for key in keys]
            share = f"{lengths['cut'] / split['rows']:.1%}" if lengths["cut"] else ""
            shown.add_row(cell(split["split"]), *numbers, _or_dot(lengths["cut"]), share)
    return [heading("tokens per row", tokens["kind"], *([f"vocabulary of {source}"] if source else [])), shown]


def _labels(splits: Splits) -> list[RenderableType]:
    names = list(dict.fromkeys(label for split in splits for label in split["labels"]))
    more = [f"the {MAX_LABELS} most frequent of {len(names):,}; --json lists all"] if len(names) > MAX_LABELS else []
    shown = table("label", *(column for split in splits for column in (split["split"], "share")), numbers=True)
    for name in names[:MAX_LABELS]:
        row = []
        for split in splits:
            count = split["labels"].get(name, 0)
            share = count / sum(split["labels"].values())
            style = "bold" if share == split["majority"] else ""
            row += [_or_dot(count), Text(f"{share:.1%}" if count else "", style=style)]
        shown.add_row(cell(name), *row)
    return [heading("labels", *more), shown]


def _bad_rows(splits: Splits) -> Table:
    shown = table("")
    for split in splits:
        for reason in split["bad_rows"][:BAD_ROWS_SHOWN]:
            shown.add_row(cell(reason))
        if split["bad"] > BAD_ROWS_SHOWN:
            shown.add_row(cell(f"… and {split['bad'] - BAD_ROWS_SHOWN:,} more in {split['path']}", style="dim"))
    return shown


def _findings(findings: Sequence[Mapping[str, Any]]) -> RenderableType:
    shown = table("", "")
    for finding in findings:
        shown.add_row(cell(finding["level"], style=STYLES[finding["level"]]), cell(finding["message"]))
    return shown


def _or_dot(count: int) -> Text:
    return Text(f"{count:,}" if count else "·", style="" if count else "dim")
