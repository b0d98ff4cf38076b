"""The report of `recur check` on the screen: rows, lengths and labels in tables, then the findings."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from recurcli.display.tables import (
    Cell,
    Styled,
    Table,
    by_columns,
    cell,
    heading,
    listing,
    show,
)
from recurcli.errors import pluralize

MAX_LABELS = 20
"""Labels in the table; of more, the most frequent."""
STYLES = {"error": "bold red", "warning": "yellow", "information": "dim"}

Splits = Sequence[Mapping[str, Any]]


def print_check(result: Mapping[str, Any]) -> None:
    """Print every report, one below the other."""
    shown: list[RenderableType | Table] = []
    for report in result["reports"]:
        counts = ((report["errors"], "error"), (report["warnings"], "warning"))
        count = ", ".join(pluralize(number, word) for number, word in counts if number) or "nothing wrong"
        what = "CLUE submission" if report["kind"] == "submission" else "cannot be read"
        if report["kind"] == "data":
            what = f"task {report['task']} ({report['task_reason']})"
        tables = _data(report) if report["kind"] == "data" else []
        findings = [(Styled(one["level"], STYLES[one["level"]]), one["message"]) for one in report["findings"]]
        shown += [heading(report["path"], what, count), *tables, listing(findings), Text("")]
    show(*shown)


def _data(report: Mapping[str, Any]) -> list[RenderableType | Table]:
    splits = [split for split in report["splits"] if split["fault"] is None]
    shown: list[RenderableType | Table] = [_columns(splits[0]["columns"]), _rows(splits)] if splits else []
    if any(split["lengths"] for split in splits):
        shown += _lengths(splits, report["tokens"])
    if any(split["labels"] for split in splits):
        shown += _labels([split for split in splits if split["labels"]])
    return shown


def _columns(columns: Mapping[str, Any]) -> Text:
    texts = " and ".join(
        " + ".join(f"'{name}'" for name in columns[key]) for key in ("text", "pair") if columns.get(key)
    )
    label = f"labels from '{columns['label']}'" if columns["label"] else "no labels"
    return cell(f"texts from {texts}, {label}", style="dim")


def _rows(splits: Splits) -> Table:
    columns: dict[str, list[Cell]] = {
        "split": [split["split"] for split in splits],
        "file": [split["path"].rpartition("/")[2] for split in splits],
        "rows": [f"{split['rows']:,}" for split in splits],
    }
    if any(split["official"] is not None for split in splits):
        columns["official"] = ["–" if split["official"] is None else f"{split['official']:,}" for split in splits]
    columns["bad"] = [_or_dot(split["bad"]) for split in splits]
    columns["dropped"] = [_or_dot(split["dropped"]) for split in splits]
    columns["repeated"] = [_or_dot(split["repeated"]["rows"]) for split in splits]
    columns["label conflicts"] = [_or_dot(split["repeated"]["conflicting_texts"]) for split in splits]
    return by_columns(columns)


def _lengths(splits: Splits, tokens: Mapping[str, Any]) -> list[RenderableType | Table]:
    source = tokens["vocabulary"]
    if source is not None and "/" not in source:
        source = "the rows" if source == "rows" else f"the {source} rows"
    rows = []
    for split in splits:
        if (lengths := split["lengths"]) is not None:
            keys = ("minimum", "median", "mean", "p95", "p99", "maximum")
            share = f"{lengths['cut'] / split['rows']:.1%}" if lengths["cut"] else ""
            rows.append([split["split"], *(f"{lengths[key]:,.0f}" for key in keys), _or_dot(lengths["cut"]), share])
    title = heading("tokens per row", tokens["kind"], *([f"vocabulary of {source}"] if source else []))
    cut = f"longer than {tokens['max_length']:,}"
    return [title, Table(["split", "min", "median", "mean", "95 %", "99 %", "max", cut, "share"], rows)]


def _labels(splits: Splits) -> list[RenderableType | Table]:
    names = list(dict.fromkeys(label for split in splits for label in split["labels"]))
    more = [f"the {MAX_LABELS} most frequent of {len(names):,}; --json lists all"] if len(names) > MAX_LABELS else []
    rows = []
    for name in names[:MAX_LABELS]:
        row: list[Cell] = [name]
        for split in splits:
            count = split["labels"].get(name, 0)
            share = count / sum(split["labels"].values())
            style = "bold" if share == split["majority"] else ""
            row += [_or_dot(count), Styled(f"{share:.1%}" if count else "", style)]
        rows.append(row)
    headers = [header for split in splits for header in (split["split"], "share")]
    return [heading("labels", *more), Table(["label", *headers], rows)]


def _or_dot(count: int) -> Cell:
    return f"{count:,}" if count else Styled("·", "dim")
