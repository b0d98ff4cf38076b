"""`recur eval --diagnose`: a table, JSON, and a picture."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Recur = Callable[..., tuple[int, str, str]]


def test_the_table_and_the_json_say_the_same(recur: Recur, trained: Path) -> None:
    code, out, err = recur("eval", trained, "--diagnose", "--json", "--quiet")
    assert code == 0, err
    diagnosis = json.loads(out)["diagnosis"]
    assert [layer["layer"] for layer in diagnosis["layers"]] == [1, 2]
    assert diagnosis["rows"] == 24
    code, out, err = recur("eval", trained, "--diagnose", "--quiet")
    assert code == 0, err
    for layer in diagnosis["layers"]:
        assert f"{layer['activation_factor']:.4f}" in out
        assert f"{layer['stats']['alpha']:.4f}" in out


def test_without_the_option_nothing_is_diagnosed(recur: Recur, trained: Path) -> None:
    assert "diagnosis" not in json.loads(recur("eval", trained, "--json", "--quiet")[1])


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("d.png", b"\x89PNG"),
        pytest.param("d.svg", b"<?xml", marks=pytest.mark.slow),
        pytest.param("d.pdf", b"%PDF", marks=pytest.mark.slow),
    ],
)
def test_the_picture_has_the_format_of_its_name(
    name: str, start: bytes, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = recur("eval", trained, "--diagnose", "--plots", tmp_path / name, "--quiet")
    assert code == 0, err
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plots", "d.png"], "add --diagnose"),
        (["--diagnose", "--plots", "d.jpg"], "ends in .png, .svg or .pdf"),
        (["--diagnose", "--plots", "nowhere/d.png"], "no such folder"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_at_once(
    arguments: list[str], message: str, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = recur("eval", trained, *arguments)
    assert (code, out) == (2, "")
    assert message in err
