"""`recur eval --diagnose`: a table and JSON."""

import json
import math
from pathlib import Path

import pytest
from running import Recur
from tiny_task import write_rows

from recurcli.display.screen import print_json


def test_the_table_and_the_json_say_the_same(recur: Recur, trained: Path) -> None:
    diagnosis = recur.json("eval", trained, "--diagnose", "--quiet")["diagnosis"]
    assert [layer["layer"] for layer in diagnosis["layers"]] == [1, 2]
    assert diagnosis["rows"] == 24
    out, _ = recur.ok("eval", trained, "--diagnose", "--quiet")
    for layer in diagnosis["layers"]:
        assert f"{layer['activation_factor']:.4f}" in out
        assert f"{layer['stats']['alpha']:.4f}" in out


def test_measures_that_short_texts_do_not_define_are_null(recur: Recur, trained: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "x.json", [{"sentence": text, "label": "100"} for text in ("鼠牛", "鼠", "")])
    line = ("eval", trained, "--data", tmp_path / "x.json", "--diagnose", "--quiet")
    assert {layer["distance_preservation"] for layer in recur.json(*line)["diagnosis"]["layers"]} == {None}
    table, _ = recur.ok(*line)
    assert "nan" not in table and "–" in table


def test_texts_of_one_token_are_scored_without_a_diagnosis(recur: Recur, trained: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "x.json", [{"sentence": text, "label": "100"} for text in ("鼠", "牛")])
    data, page = ("--data", tmp_path / "x.json"), tmp_path / "r.html"
    out, err = recur.ok("eval", trained, *data, "--report", page, "--diagnose", "--json", "--quiet")
    assert json.loads(out)["diagnosis"] is None
    assert "no row has two tokens, so the layers are not diagnosed" in err
    assert "Confusions" in page.read_text() and "layer by layer" not in page.read_text()


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.nan, 1.5, (math.inf,)], "b": {"c": -math.inf, "d": "NaN"}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, [None]], "b": {"c": None, "d": "NaN"}}
