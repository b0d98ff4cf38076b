"""Tests aim faults, and patch, at public names: a private one may be renamed without a test."""

import ast
from pathlib import Path

import pytest
import shims

TESTS = Path(__file__).resolve().parent


def strings_of_setattr(path: Path) -> list[str]:
    """The string arguments of the calls of setattr in a file."""
    return [
        argument.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setattr"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_no_private_name_is_patched() -> None:
    names = [(path, name) for path in sorted(TESTS.rglob("*.py")) for name in strings_of_setattr(path)]
    assert len(names) > 50
    assert not [(path, name) for path, name in names if any(part.startswith("_") for part in name.split("."))]


def test_a_fault_aimed_at_a_private_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shims.MOMENTS, "a sum of files", ("recurcli.files:_beside",))
    with pytest.raises(ValueError, match=r"recurcli\.files:_beside is private"):
        shims.die_at("a sum of files", 1, 0)
