"""A dry run shows the plan of a training, takes no step and writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_task import tiny

from recurcli.training import session

Recur = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("command", ["finetune", "pretrain"])
def test_a_dry_run_shows_its_plan_and_writes_nothing(
    command: str, recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "fit", None)
    line = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", "x", *tiny("pretraining.max_steps=16")]
    code, out, err = recur(command, *line, "--dry-run", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert (plan["steps"], plan["output"], plan["parameters"]["encoder"] > 0) == (16, "x", True)
    assert "16 (" in recur(command, *line, "--dry-run")[1]
    assert not list(tmp_path.iterdir())
