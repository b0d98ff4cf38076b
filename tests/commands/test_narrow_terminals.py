"""Narrow terminals: tables of one block per row where the columns do not fit, and a bar that leaves out what does not."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from recurcli.commands.bench import _settings, in_words
from recurcli.commands.benchmark.candidates import encoder_candidates, shapes
from recurcli.commands.benchmark.request import BenchRequest
from recurcli.display import progress
from recurcli.errors import pluralize
from recurcli.log import Progress


def test_no_key_of_a_preset_is_broken_on_40_columns(
    recur: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, err = recur("presets", "starsaber-tnews")
    assert code == 0, err
    out = re.sub("\x1b\\[[0-9;]*m", "", out)
    assert max(map(len, out.splitlines())) <= 40
    lines = [line.split() for line in out.splitlines()]
    assert ["key", "encoder.hidden_size"] in lines
    assert ["value", "256"] in lines


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
    with progress.Screen(quiet=False, metric=metric, of=" of the encoder") as log:
        for step in steps:
            log.progress(step)
    lines = re.split(r"[\r\n]+", re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()))
    (line,) = {line for line in lines if "2,700/2,700" in line}
    assert len(line) <= width
    assert re.match("[━╸╺]{10,} 2,700/2,700 ", line) and re.search(r" best .*0\.4321\b.* \d+:\d\d:\d\d *$", line)
    if width >= 80:
        assert f"best dev {metric.replace('_', ' ')}" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1), "0 of 1 row is"),
        ((1, 1), "1 of 1 row is"),
        ((0, 2), "0 of 2 rows are"),
        ((1, 2), "1 of 2 rows is"),
        ((1, None), "1 row is"),
        ((0, None), "0 rows are"),
    ],
)
def test_sentences_with_numbers_agree(arguments: tuple[int, int | None], words: str) -> None:
    number, of = arguments
    assert pluralize(number, "row", "are", of=of) == words


def test_an_iterated_encoder_has_no_number_of_layers() -> None:
    request = BenchRequest(preset="starsaber-tied-cmnli", lengths=(8,), peers=False)
    (shape,) = shapes(request)
    (_, setting), *_ = _settings(request, {shape: encoder_candidates(request, shape)}, torch.device("cpu"))
    assert "an iterated layer of 512" in in_words(setting.to_json())
