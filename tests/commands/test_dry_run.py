"""A dry run shows the plan of a training, takes no step and writes nothing."""

from pathlib import Path

import pytest
from running import Recur
from tiny_task import tiny

from recurcli.training import session


@pytest.mark.parametrize("command", ["finetune", "pretrain"])
def test_a_dry_run_shows_its_plan_and_writes_nothing(
    command: str, recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "fit", None)
    line = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", "x", *tiny("pretraining.max_steps=16")]
    plan = recur.json(command, *line, "--dry-run")
    assert (plan["steps"], plan["output"], plan["parameters"]["encoder"]) == (16, "x", 2 * (4 * 16 * 16 + 1))
    assert plan["forward_flops_per_token"] > 2 * 2 * 4 * 16 * 16
    assert "16 (" in recur(command, *line, "--dry-run")[1]
    assert not list(tmp_path.iterdir())
    if command == "finetune":
        tensors = max((trained / "checkpoints").iterdir()).glob("*.safetensors")
        assert sum(path.stat().st_size for path in tensors) == pytest.approx(plan["checkpoint_bytes"], rel=0.35)
