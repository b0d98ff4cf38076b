"""What a terminal shows of a command at work: notes in its width, and one live line that goes away."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len

from recurcli.display.screen import ERASE, Screen
from recurcli.log import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Terminal]:
    """Makes stderr a terminal of a width."""

    def made(width: int) -> Terminal:
        screen = Terminal()
        for name, value in (("COLUMNS", str(width)), ("LINES", "24"), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stderr", screen)
        return screen

    return made


def shown(screen: Terminal) -> list[str]:
    """The lines that stay on a terminal, and the last one."""
    lines = screen.getvalue().split("\n")
    return [re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", line.rpartition(ERASE)[2]) for line in lines]


STATE: dict[str, Any] = {"epoch": 3.5, "loss": 2.3026, "measures": {}, "tokens": 98_765, "seconds": 1.0}


@pytest.mark.parametrize("width", [40, 80])
def test_a_note_breaks_between_words_and_goes_on_below_its_first_one(
    width: int, terminal: Callable[[int], Terminal]
) -> None:
    screen = terminal(width)
    note = "the accuracy of the linear model 0.5714 is above that of the encoder, 股市今日大涨 " * 3
    with Screen(quiet=False) as log:
        log.note(note)
    first, *others, last = shown(screen)
    assert first.startswith("recur: the") and all(re.match(" {7}[^ ]", line) for line in others) and last == ""
    assert max(map(cell_len, (first, *others))) <= width
    assert " ".join([first, *map(str.strip, others)]) == f"recur: {note}".strip()


def test_a_stage_shows_control_characters_and_obeys_none(terminal: Callable[[int], Terminal]) -> None:
    screen = terminal(60)
    with Screen(quiet=False) as log:
        log.stage("reading \x1b[31mx\n")
        assert screen.getvalue() == "reading \\x1b[31mx\\n …"


def test_a_pipe_has_a_line_for_each_note_and_no_stage(capsys: pytest.CaptureFixture[str]) -> None:
    note = "a sentence that is longer than a terminal is wide " * 5
    with Screen(quiet=False) as log:
        log.stage("reading the rows")
        log.note(note)
    assert capsys.readouterr().err == f"recur: {note}\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_a_pipe_has_six_lines_of_a_training_and_each_evaluation_if_verbose(
    verbose: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.display.screen.SECONDS_BEFORE_LINE", 1e-9)
    with Screen(quiet=False, verbose=verbose) as log:
        for step in range(1, 681):
            score = 0.5 if step % 34 == 0 else None
            log.progress(Progress(step=step, total_steps=680, dev_metric=score, best_dev_metric=score, **STATE))
    lines = capsys.readouterr().err.splitlines()
    shown = [line.split()[2] for line in lines if "tokens/s" in line]
    assert shown == [f"{step}/680" for step in (114, 227, 340, 454, 567, 680)]
    assert len(lines) - len(shown) == 20 * verbose


def test_a_pipe_of_unknown_length_is_told_of_ever_less_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with Screen(quiet=False) as log:
        for second in range(3600):
            now = float(second)
            log.rows(second)
    rows = [int(line.split()[1].replace(",", "")) for line in capsys.readouterr().err.splitlines()]
    assert rows == [10, 40, 160, 640, 2560]


def test_the_stage_is_the_last_line_until_it_is_over(terminal: Callable[[int], Terminal]) -> None:
    screen = terminal(30)
    with Screen(quiet=False) as log:
        log.stage("reading the rows")
        assert shown(screen) == ["reading the rows …"]
        log.note("one note")
        assert shown(screen) == ["recur: one note", "reading the rows …"]
        log.stage("fitting the linear model of all rows")
        assert shown(screen) == ["recur: one note", "fitting the linear model of …"]
    assert shown(screen) == ["recur: one note", ""]


@pytest.mark.parametrize("metric", ["accuracy", "macro_precision"])
@pytest.mark.parametrize("width", [80, 60, 200])
def test_bar_metric_and_time_left_are_whole(width: int, metric: str, terminal: Callable[[int], Terminal]) -> None:
    screen = terminal(width)
    steps = [
        Progress(step=n, total_steps=2700, dev_metric=None, best_dev_metric=0.4321, improved=False, **STATE)
        for n in (1240, 2700)
    ]
    with Screen(quiet=False, metric=metric, of=" of the encoder") as log:
        for step in steps:
            log.progress(step)
    lines = re.split(r"[\r\n]+", re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()))
    (line,) = {line for line in lines if "2,700/2,700" in line}
    assert len(line) <= width
    assert re.match("[━╸╺]{10,} 2,700/2,700 ", line) and re.search(r" best .*43\.2\b.* 0 s left *$", line)
    if width >= 80:
        assert f"dev {metric.replace('_', ' ')}" in line
