"""Tables on a terminal of 40 columns: one block per row where the columns do not fit."""

import re
from collections.abc import Callable

import pytest


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
