"""The table of `recur compare` as a file: Markdown, LaTeX with booktabs, CSV or JSON."""

import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recurcli.commands.comparison.groups import text_of
from recurcli.display.comparison import (
    COSTS,
    TESTS,
    baseline_texts,
    cost_texts,
    difference_texts,
    p_text,
    score_columns,
    score_texts,
    sentence_on_tests,
)
from recurcli.errors import escaped
from recurcli.files import OutputKind, to_json, write_atomically

Rows = list[list[str]]
"""A table of text; the first row is the header."""


def write_table(result: Mapping[str, Any], output: Path) -> None:
    """Write the comparison in the format that the suffix of `output` names."""
    write_atomically(output, FORMATS[output.suffix](result))


def group_rows(result: Mapping[str, Any]) -> Rows:
    """Return the table of the groups and baselines with their names, scores and costs."""
    keys = [*result["differences"], *result["other_differences"]]
    rows = [[*(keys or ["preset"]), *score_columns(result), *COSTS]]
    for group in result["groups"]:
        values = [_shown(text_of(group["values"][key])) if key in group["values"] else "–" for key in keys]
        rows.append([*(values or [_shown(group["name"])]), *score_texts(result, group), *cost_texts(group)])
    for baseline in result["baselines"]:
        name = [_shown(baseline["name"]), *["–"] * (len(keys) - 1)]
        rows.append([*name, *baseline_texts(result, baseline), *["–"] * len(COSTS)])
    return rows


def keys_of(result: Mapping[str, Any]) -> int:
    """Return the number of columns that say what a group is."""
    return max(1, len(result["differences"]) + len(result["other_differences"]))


def test_rows(result: Mapping[str, Any]) -> Rows:
    """Return the table of the tests."""
    rows = [["A", "B", "A - B", "95 % interval", "test", "p", "p (Holm)"]]
    for test in result["tests"]:
        p_values = p_text(test["p_value"]), p_text(test["p_holm"])
        names = _shown(test["a"]), _shown(test["b"])
        rows.append([*names, *difference_texts(test), TESTS[test["test"]], *p_values])
    return rows


def _shown(text: str) -> str:
    return escaped(text, limit=100_000)


def _markdown(result: Mapping[str, Any]) -> str:
    def drawn(rows: Rows, left: int) -> list[str]:
        lines = ["| " + " | ".join(re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text) for text in row) + " |" for row in rows]
        return [lines[0], "|" + "---|" * left + "---:|" * (len(rows[0]) - left), *lines[1:]]

    lines = drawn(group_rows(result), keys_of(result))
    if result["tests"]:
        lines += ["", *drawn(test_rows(result), 2), "", sentence_on_tests(result)]
    return "\n".join(lines).rstrip() + "\n"


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "–": "--",
}


def _in_latex(text: str) -> str:
    """Return `text` with the characters that LaTeX would read as commands escaped, and with minus signs before numbers."""
    return re.sub(r"(?<![\w$-])-(?=\d)", "$-$", "".join(_LATEX.get(character, character) for character in text))


def _latex(result: Mapping[str, Any]) -> str:
    def drawn(rows: Rows, left: int) -> list[str]:
        lines = [" & ".join(map(_in_latex, row)) + r" \\" for row in rows]
        columns = "l" * left + "r" * (len(rows[0]) - left)
        begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        return [*begin, lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"]

    lines = [r"% needs \usepackage{booktabs}", *drawn(group_rows(result), keys_of(result))]
    if result["tests"]:
        note = _in_latex(sentence_on_tests(result))
        lines += ["", *drawn(test_rows(result), 2), *(["", f"% {note}"] if note else [])]
    return "\n".join(lines) + "\n"


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
