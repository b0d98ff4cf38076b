"""The table of `recur compare` as a file: Markdown, LaTeX with booktabs, CSV or JSON."""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recurcli.commands.comparison.groups import text_of
from recurcli.display.comparison import group_table, test_table
from recurcli.display.tables import UNLIMITED, to_latex, to_markdown
from recurcli.errors import escaped
from recurcli.files import OutputKind, to_json, write_atomically


def write_table(result: Mapping[str, Any], output: Path) -> None:
    """Write the comparison in the format that the suffix of `output` names."""
    write_atomically(output, FORMATS[output.suffix](result))


def _markdown(result: Mapping[str, Any]) -> str:
    tests = ["", *to_markdown(test_table(result))] if result["tests"] else []
    return "\n".join([*to_markdown(group_table(result)), *tests]) + "\n"


def _latex(result: Mapping[str, Any]) -> str:
    tests = ["", *to_latex(test_table(result))] if result["tests"] else []
    return "\n".join([r"% needs \usepackage{booktabs}", *to_latex(group_table(result)), *tests]) + "\n"


def _shown(text: str) -> str:
    return escaped(text, limit=UNLIMITED)


def _csv(result: Mapping[str, Any]) -> str:
    """One row a group or baseline, with all digits. A cell of text is escaped."""
    keys = [*result["differences"], *result["other_differences"]]
    numbers = ["n", "mean", "std", "best", "parameters", "parameters_without_embeddings", "forward_flops_per_token"]
    numbers += ["seconds", "cpu_seconds", "tokens_per_second"]
    nested = [(part, key) for part in ("encoder", "test") for key in ("mean", "std", "best")]
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    heads = ["name", "preset", *keys, "metric", *numbers, *(f"{part}_{key}" for part, key in nested), "seeds", "runs"]
    writer.writerow([_shown(head) for head in heads])
    single = ({**baseline, "test": baseline["test"] and {"mean": baseline["test"]}} for baseline in result["baselines"])
    for group in (*result["groups"], *single):
        values = group.get("values", {})
        row = [
            _shown(group["name"]),
            _shown(group.get("preset", "")),
            *(_shown(text_of(values[key])) if key in values else "" for key in keys),
            result["metric"],
            *(group.get(key) for key in numbers),
            *((group.get(part) or {}).get(key) for part, key in nested),
            *(_shown(" ".join(map(str, group.get(key, ())))) for key in ("seeds", "runs")),
        ]
        writer.writerow(row)
    return paper.getvalue()


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    ".md": _markdown,
    ".tex": _latex,
    ".csv": _csv,
    ".json": lambda result: to_json(dict(result)),
}
"""The formats of a table by the suffix of its file."""
TABLE = OutputKind("a table", tuple(FORMATS))
