"""Narrow terminals: a bar that leaves out what does not fit."""

import io
import re
from typing import Any

import pytest

from recurcli.display.screen import Screen
from recurcli.log import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("metric", ["accuracy", "macro_precision"])
@pytest.mark.parametrize("width", [80, 60, 200])
def test_bar_metric_and_time_left_are_whole(width: int, metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    for name, value in (("COLUMNS", str(width)), ("LINES", "24"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", screen)
    state: dict[str, Any] = {"epoch": 3.5, "loss": 2.3026, "measures": {}, "tokens": 98_765, "seconds": 1.0}
    steps = [
        Progress(step=n, total_steps=2700, dev_metric=None, best_dev_metric=0.4321, improved=False, **state)
        for n in (1240, 2700)
    ]
    with Screen(quiet=False, metric=metric, of=" of the encoder") as log:
        for step in steps:
            log.progress(step)
    lines = re.split(r"[\r\n]+", re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()))
    (line,) = {line for line in lines if "2,700/2,700" in line}
    assert len(line) <= width
    assert re.match("[━╸╺]{10,} 2,700/2,700 ", line) and re.search(r" best .*43\.2\b.* \d+:\d\d:\d\d *$", line)
    if width >= 80:
        assert f"dev {metric.replace('_', ' ')}" in line
