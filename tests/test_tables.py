"""One table on a terminal, in Markdown, LaTeX, CSV and HTML: the same cells, safe in each."""

import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from recurcli.display.report.page import write_page
from recurcli.display.tables import (
    Styled,
    Table,
    by_columns,
    number_columns,
    show,
    text_columns,
    to_csv,
    to_latex,
    to_markdown,
)
from recurcli.errors import escaped

MADE = Table(
    [*text_columns("name"), *number_columns("score ± spread", "left")],
    [["[red]a|b_<i>\x1b[2J", Styled("-0.5 ± 0.1", "bold"), "1"], ["100 %", "–"]],
    notes=["50 % of $x"],
)


def test_a_terminal_shows_every_cell_and_obeys_none(capsys: pytest.CaptureFixture[str]) -> None:
    show(MADE)
    head, rule, first, second, note = filter(None, capsys.readouterr().out.splitlines())
    assert head.split() == ["name", "score", "±", "spread", "left"] and set(rule) == {" ", "─"}
    assert first.split() == [r"[red]a|b_<i>\x1b[2J", "-0.5", "±", "0.1", "1"]
    assert (second.split(), note) == (["100", "%", "–"], "50 % of $x")
    assert first.index("-0.5 ± 0.1") + len("-0.5 ± 0.1") == head.index("score ± spread") + len("score ± spread")


def test_markdown_aligns_numbers_and_escapes_its_marks() -> None:
    assert to_markdown(MADE) == [
        "| name | score ± spread | left |",
        "|---|---:|---:|",
        r"| \[red\]a\|b\_\<i\>\\x1b\[2J | -0.5 ± 0.1 | 1 |",
        "| 100 % | – |",
        "",
        "50 % of $x",
    ]


def test_latex_aligns_numbers_and_escapes_its_commands() -> None:
    assert to_latex(MADE) == [
        *(r"\begin{tabular}{lrr}", r"\toprule", r"name & score $\pm$ spread & left \\", r"\midrule"),
        r"[red]a|b\_$<$i$>$\textbackslash{}x1b[2J & $-$0.5 $\pm$ 0.1 & 1 \\",
        *(r"100 \% & -- \\", r"\bottomrule", r"\end{tabular}", "", r"% 50 \% of \$x"),
    ]


def test_html_aligns_numbers_and_escapes_its_tags(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    values: dict[str, Any] = {
        "title": "t",
        "rows": "",
        "whose": "",
        "metric": "",
        "score_plot": "",
        "over": None,
        "tests": Table([], []),
    }
    values |= {"curves": None, "calibration": None, "classes": Table([], []), "differences": [], "best": ""}
    write_page(tmp_path / "page.html", "comparison.html", groups=MADE, unfinished=Table([], []), **values)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<th class="number">score ± spread</th>' in page and '<td class="number">-0.5 ± 0.1</td>' in page
    assert r'<td class="words">[red]a|b_&lt;i&gt;\x1b[2J</td>' in page and "<p>50 % of $x</p>" in page


def test_csv_escapes_control_characters() -> None:
    assert to_csv(MADE) == ["name,score ± spread,left", r"[red]a|b_<i>\x1b[2J,-0.5 ± 0.1,1", "100 %,–"]


def test_a_column_that_ends_early_is_filled_with_dashes() -> None:
    assert by_columns({"a": ["x", "y"]}, {"b": ["1"]}).texts == [["x", "1"], ["y", "–"]]


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (40, r"  group of runs +财经新闻财经新闻财"),
        (46, r"group of runs +mean accuracy embeddings"),
        *((width, r"  group of runs +mean accuracy +no embeddings") for width in (60, 80, 200, None)),
    ],
)
def test_no_number_is_broken_and_no_line_is_wider_than_the_terminal(
    width: int | None, head: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is too wide has narrower columns of text, then narrower headers too, then a block for each row."""
    names = ["财经新闻" * 5, "learning_rate=0.01, num_layers=4", "[red]\x1b" * 4]
    made = by_columns({"group of runs": names}, {"mean accuracy": ["0.9583 ± 0.0589"] * 3, "no embeddings": ["1,234"]})
    if width is not None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(width))
    show(made)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(cell_len, lines)) <= (width or 1000)
    assert any(re.fullmatch(head, line) for line in lines), out
    assert (out.count("0.9583 ± 0.0589"), out.count("1,234"), out.count("–")) == (3, 1, 2)
    if width in (40, 80, 200, None):  # no other cell stands between the lines of a name
        assert all(escaped(name).replace(" ", "") in re.sub(r"\s", "", out) for name in names)
