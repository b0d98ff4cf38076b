"""One table on a terminal, in Markdown and HTML: the same cells, safe in each."""

import re

import pytest
from rich.cells import cell_len

from recurcli.display.comparison import to_markdown
from recurcli.display.report.page import environment
from recurcli.display.screen import Styled, Table, by_columns, show
from recurcli.errors import escaped
from recurcli.metrics import format_interval, percent, percent_interval

MADE = Table(
    ["name", "score ± spread", "left"],
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


def test_a_table_that_does_not_fit_is_a_list_of_records(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    show(by_columns({"name": ["first run", "x"], "tokens": ["1,234,567", "8"]}, ["two"]))
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert out == "  name:    first run\n  tokens:  1,234,567\n\n  name:    x\n  tokens:  8\n\ntwo\n"


def test_markdown_aligns_numbers_and_escapes_its_marks() -> None:
    assert to_markdown(MADE) == [
        "| name | score ± spread | left |",
        "|---|---:|---:|",
        r"| \[red\]a\|b\_\<i\>\\x1b\[2J | -0.5 ± 0.1 | 1 |",
        "| 100 % | – |",
        "",
        "50 % of $x",
    ]


def test_html_aligns_numbers_and_escapes_its_tags() -> None:
    pytest.importorskip("jinja2")
    page = environment().from_string("{% from 'parts.html' import table %}{{ table(made, 'all') }}").render(made=MADE)
    assert '<th scope="col" class="number">score ± spread</th>' in page and '<td class="number">-0.5 ± 0.1</td>' in page
    assert r'<th scope="row" class="words">[red]a|b_&lt;i&gt;\x1b[2J</th>' in page and "<p>50 % of $x</p>" in page


def test_a_column_that_ends_early_is_filled_with_dashes() -> None:
    assert by_columns({"a": ["x", "y"], "b": ["1"]}).texts == [["x", "1"], ["y", "–"]]


def test_percentages_have_one_decimal_and_their_intervals_a_dash() -> None:
    assert (percent(0.50671), percent(0.012, "+")) == ("50.7", "+1.2")
    assert percent_interval([0.9, 0.962]) == "90.0–96.2"
    assert format_interval("accuracy", [-0.012, 0.034], "+") == "-1.2 – +3.4"
    assert format_interval("perplexity", [-1.5, 2.25], "+") == "-1.50 – +2.25"


@pytest.mark.parametrize("width", [40, 60, 80, 200, None])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(
    width: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["财经新闻" * 5, "learning_rate=0.01, num_layers=4", "[red]\x1b" * 4]
    made = by_columns({"group of runs": names, "mean accuracy": ["95.8 ± 1.1"] * 3, "no embeddings": ["1,234"]})
    if width is not None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(width))
    show(made)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(cell_len, out.splitlines())) <= (width or 1000)
    assert (out.count("95.8"), out.count("± 1.1"), out.count("1,234"), out.count("–")) == (3, 3, 1, 2)
    letters = sorted("".join(escaped(name) for name in names).replace(" ", ""))
    assert not set(letters) - set(out)
    if width in (80, 200, None):
        assert all(escaped(name)[:12] in out for name in names)
