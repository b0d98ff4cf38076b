"""The report of `recur check` on the screen: rows, lengths and labels in tables, then the findings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from recurcli.display.screen import Cell, Styled, Table, cell, heading, listing, show
from recurcli.errors import escaped, pluralize
from recurcli.metrics import percent

MAX_LABELS = 20
"""Labels in the table; of more, the most frequent."""
MAX_SHOWN = 100
"""Characters of a text that is least like those of a training."""
STYLES = {"error": "bold red", "warning": "yellow", "information": "dim"}

Splits = Sequence[Mapping[str, Any]]


def print_check(result: Mapping[str, Any]) -> None:
    """Print every report, one below the other."""
    shown: list[RenderableType | Table] = []
    for report in result["reports"]:
        counts = [pluralize(report[f"{word}s"], word) for word in ("error", "warning") if report[f"{word}s"]]
        kinds = {"submission": "CLUE submission", "unreadable": "cannot be read", "data": f"task {report.get('task')}"}
        kinds["drift"] = f"{report.get('rows')} rows against {report.get('run')}"
        shown.append(heading(report["path"], kinds[report["kind"]], ", ".join(counts) or "nothing wrong"))
        if splits := report.get("splits"):
            columns = splits[0]["columns"]
            texts = " and ".join(" + ".join(map(repr, columns[key])) for key in ("text", "pair") if columns.get(key))
            what = "numbers" if splits[0]["numbers"] else "labels"
            label = f"{what} from '{' + '.join(columns['label'])}'" if columns["label"] else "no labels"
            shown += [cell(f"texts from {texts}, {label}", style="dim"), _rows(splits)]
            if report["tokens"]:
                shown += [heading("tokens per row", report["tokens"]["kind"]), _lengths(splits, report["tokens"])]
            if labelled := [split for split in splits if split["labels"]]:
                shown += _labels(labelled)
            if numbers := [split for split in splits if split["numbers"]]:
                shown += [heading("numbers"), _numbers(numbers)]
        findings = [(Styled(one["level"], STYLES[one["level"]]), one["message"]) for one in report["findings"]]
        shown += [listing(findings), *(_drift(report) if report["kind"] == "drift" else []), Text("")]
    show(*shown)


def _drift(report: Mapping[str, Any]) -> list[RenderableType | Table]:
    """Return the shift of the predicted labels, and the texts that are least like those of the training."""
    rows = [[own["label"], percent(own["before"]), percent(own["now"])] for own in report["labels"][:MAX_LABELS]]
    texts = [[escaped(" [SEP] ".join(filter(None, text)), MAX_SHOWN)] for text in report["furthest"]]
    labels = Table(["prediction", "dev rows (%)", "these (%)"], rows)
    return [table for table in (labels, Table([f"least like {report['against']}"], texts)) if table.rows]


def _rows(splits: Splits) -> Table:
    names = ["split", "file", "rows", "bad", "dropped", "repeated", "label conflicts"]
    rows = []
    for split in splits:
        repeated = split["repeated"]
        counts = (split["bad"], split["dropped"], repeated["rows"], repeated["conflicting_texts"])
        rows.append([split["split"], Path(split["path"]).name, f"{split['rows']:,}", *map(_or_dot, counts)])
    return Table(names, rows)


def _lengths(splits: Splits, tokens: Mapping[str, Any]) -> Table:
    most = tokens["max_length"]
    names = ["split", "min", "median", "mean", "95 %", "99 %", "max", *([f"longer than {most:,}"] if most else [])]
    rows, notes = [], [] if most else ["no encoder is trained on these rows, so none is cut"]
    for split in splits:
        if (lengths := split["lengths"]) is not None:
            keys = ("minimum", "median", "mean", "p95", "p99", "maximum")
            cut = [_or_dot(lengths["cut"])] if most else []
            rows.append([split["split"], *(f"{lengths[key]:,.0f}" for key in keys), *cut])
            if lengths["rows"] < split["rows"]:
                notes.append(f"{split['split']}: measured on {lengths['rows']:,} rows at equal distances")
    return Table(names, rows, notes)


def _numbers(splits: Splits) -> Table:
    """Return range, median and mean of the numbers of the splits."""
    rows = [[split["split"], *(f"{number:.6g}" for number in split["numbers"].values())] for split in splits]
    return Table(["split", "min", "median", "mean", "max"], rows)


def _labels(splits: Splits) -> list[RenderableType | Table]:
    names = list(dict.fromkeys(label for split in splits for label in split["labels"]))
    more = [f"the {MAX_LABELS} most frequent of {len(names):,}; --json lists all"] if len(names) > MAX_LABELS else []
    rows = []
    for name in names[:MAX_LABELS]:
        row: list[Cell] = [name]
        for split in splits:
            count = split["labels"].get(name, 0)
            whole = split["rows"] if split["label_sets"] else sum(split["labels"].values())
            row += [_or_dot(count), f"{count / whole:.1%}" if count else ""]
        rows.append(row)
    headers = [header for split in splits for header in (split["split"], "share")]
    return [heading("labels", *more), Table(["label", *headers], rows, [*filter(None, map(_sets, splits))])]


def _sets(split: Mapping[str, Any]) -> str:
    """Return a sentence on the sets of labels of rows with several, else ""."""
    if (sets := split["label_sets"]) is None:
        return ""
    without = pluralize(sets["without_labels"], "row", "have", of=split["rows"])
    return f"{split['split']}: {without} no label; {pluralize(sets['different'], 'different set')} of labels"


def _or_dot(count: int) -> Cell:
    return f"{count:,}" if count else Styled("·", "dim")
