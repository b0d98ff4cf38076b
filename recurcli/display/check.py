"""The report of `recur check`: rows, lengths, overlaps and labels in tables, then what they mean."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recurcli.display.tables import cell, heading, show, table

MOST_LABELS = 20
"""Labels that are listed; of more, the most frequent."""
BAD_ROWS_SHOWN = 5
STYLES = {"error": "bold red", "warning": "yellow", "information": "dim"}


def print_check(result: Mapping[str, Any]) -> None:
    """Every report, one below the other."""
    parts: list[RenderableType] = []
    for report in result["reports"]:
        parts += [*_report(report), Text("")]
    show(*parts)


def _report(report: Mapping[str, Any]) -> list[RenderableType]:
    if report["kind"] != "data":
        what = "CLUE submission" if report["kind"] == "submission" else "cannot be read"
        return [heading(report["path"], what, _count(report)), _findings(report["findings"])]
    splits = [split for split in report["splits"] if split["fault"] is None]
    parts: list[RenderableType] = [
        heading(report["path"], f"task {report['task']}, {report['taken_for_it']}", _count(report)),
    ]
    if splits:
        parts += [_columns(splits), _rows(splits)]
    if report["tokens"] is not None and any(split["lengths"] for split in splits):
        parts += [_tokens_heading(report["tokens"]), _lengths(splits, report["tokens"]["max_length"])]
    if any(overlap["texts"] for overlap in report["overlaps"]):
        parts += [heading("in two splits"), _overlaps(report["overlaps"])]
    if any(split["labels"] for split in splits):
        parts += _labels(splits)
    if any(split["bad"] for split in splits):
        parts += [heading("rows that cannot be used", "the first; --json has more"), _bad_rows(splits)]
    return [*parts, _findings(report["findings"])]


def _count(report: Mapping[str, Any]) -> str:
    counts = ((report["errors"], "error"), (report["warnings"], "warning"))
    return ", ".join(f"{count:,} {word}{'s' * (count > 1)}" for count, word in counts if count) or "nothing wrong"


def _columns(splits: Sequence[Mapping[str, Any]]) -> Text:
    """Where texts and labels were read."""
    columns = splits[0]["columns"]
    texts = [" + ".join(columns[key]) for key in ("text", "pair") if columns.get(key)]
    label = next((split["columns"]["label"] for split in splits if split["columns"]["label"]), None)
    read = f"texts from {' and '.join(texts)}" + (f", labels from {label}" if label else ", no labels")
    return cell(read, style="dim")


def _rows(splits: Sequence[Mapping[str, Any]]) -> Table:
    made = table("split", "file", "rows", "official", "bad", "dropped", "repeated", "two labels", numbers=True)
    made.columns[1].justify = "left"
    for split in splits:
        official = "–" if split["official"] is None else f"{split['official']:,}"
        repeated = split["repeated"]
        counts = (split["bad"], split["dropped"], repeated["rows"], repeated["conflicting_texts"])
        file = cell(split["path"].rpartition("/")[2])
        made.add_row(cell(split["split"]), file, f"{split['rows']:,}", official, *map(_or_dot, counts))
    return made


def _tokens_heading(tokens: Mapping[str, Any]) -> Text:
    source = tokens["vocabulary"]
    if source is not None and "/" not in source:
        source = "the rows" if source == "rows" else f"the {source} rows"
    return heading("tokens a row", tokens["kind"], *([f"vocabulary of {source}"] if source else []))


def _lengths(splits: Sequence[Mapping[str, Any]], max_length: int) -> Table:
    made = table(
        "split", "min", "median", "mean", "95 %", "99 %", "max", f"longer than {max_length:,}", "share", numbers=True
    )
    for split in splits:
        if (found := split["lengths"]) is None:
            continue
        numbers = [f"{found[key]:,.0f}" for key in ("minimum", "median")]
        numbers += [f"{found['mean']:,.1f}"] + [f"{found[key]:,.0f}" for key in ("p95", "p99", "maximum")]
        share = f"{found['cut'] / split['rows']:.1%}" if found["cut"] else ""
        made.add_row(cell(split["split"]), *numbers, _or_dot(found["cut"]), share)
    return made


def _overlaps(overlaps: Sequence[Mapping[str, Any]]) -> Table:
    made = table("splits", "different texts", "rows of the first", "rows of the second", "other labels", numbers=True)
    for overlap in overlaps:
        keys = ("texts", "first_rows", "second_rows", "other_labels")
        made.add_row(cell(f"{overlap['first']} and {overlap['second']}"), *(_or_dot(overlap[key]) for key in keys))
    return made


def _labels(splits: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    labelled = [split for split in splits if split["labels"]]
    names = list(dict.fromkeys(label for split in labelled for label in split["labels"]))
    more = f"the {MOST_LABELS} most frequent of {len(names):,}; --json has all" if len(names) > MOST_LABELS else ""
    made = table("label", *(column for split in labelled for column in (split["split"], "share")), numbers=True)
    for name in names[:MOST_LABELS]:
        row = []
        for split in labelled:
            count = split["labels"].get(name, 0)
            share = count / sum(split["labels"].values())
            most = share == split["majority"]
            row += [_or_dot(count), Text(f"{share:.1%}" if count else "", style="bold" if most else "")]
        made.add_row(cell(name), *row)
    return [heading("labels", *([more] if more else [])), made]


def _bad_rows(splits: Sequence[Mapping[str, Any]]) -> Table:
    made = table("")
    for split in splits:
        for reason in split["bad_rows"][:BAD_ROWS_SHOWN]:
            made.add_row(cell(reason))
        if split["bad"] > BAD_ROWS_SHOWN:
            made.add_row(cell(f"… and {split['bad'] - BAD_ROWS_SHOWN:,} more in {split['path']}", style="dim"))
    return made


def _findings(findings: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not findings:
        return Text("  Nothing was found.", style="dim")
    made = table("", "")
    for finding in findings:
        made.add_row(cell(finding["level"], style=STYLES[finding["level"]]), cell(finding["message"]))
    return made


def _or_dot(count: int) -> Text:
    return Text(f"{count:,}" if count else "·", style="" if count else "dim")
