"""The time that a dry run estimates, from steps that leave no trace."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from logs import Kept
from tiny_task import tiny

from recurcli.commands.finetune import finetune
from recurcli.commands.training import estimate
from recurcli.commands.training.request import TrainingRequest
from recurcli.display.training import print_plan
from recurcli.preset import compose
from recurcli.training import fit

Recur = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(("command", "evaluations"), [("finetune", 4), ("pretrain", None)])
def test_the_estimate_is_made_of_steps_and_evaluations(
    command: str, evaluations: int | None, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = tiny("finetuning.evaluate_every=5", "pretraining.max_steps=16")
    line = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *settings, "--dry-run"]
    code, out, err = recur(command, *line, "--json")
    assert code == 0, err
    found = json.loads(out)["estimate"]
    assert (found["steps"], found.get("evaluations")) == (16, evaluations)
    rest = (evaluations + 1) * found["seconds_per_evaluation"] if evaluations else 0  # the chosen model once more
    assert found["seconds"] == pytest.approx(16 * found["seconds_per_step"] + rest)
    assert 0 < found["seconds_per_step"] < 60
    assert not (tmp_path / "x").exists()
    text = " ".join(recur(command, *line)[1].split())
    assert "estimated time about " in text
    assert "16 steps of " in text
    assert ("4 evaluations of " in text) is (evaluations is not None)


def test_the_timed_steps_leave_no_trace(tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = compose("starsaber-tnews", data=str(tiny_tnews), settings=[part for part in tiny() if part != "--set"])
    states = []
    original = fit.take_step

    def watched(*arguments: object) -> None:
        states.append(torch.get_rng_state())
        original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(estimate, "take_step", watched)
    log = Kept()
    finetune(TrainingRequest(resolved, tmp_path / "x", dry_run=True), log)
    assert not log.states
    assert torch.equal(torch.get_rng_state(), states[0]), "the generator is where it was before the first step"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "about 1 second:"), (80, "about 80 seconds:"), (200, "about 3 minutes:"), (9000, "about 2 hours:")],
)
def test_a_time_is_told_in_words(
    seconds: float, words: str, tiny_tnews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [part for part in tiny("finetuning.patience=2") if part != "--set"]
    resolved = compose("starsaber-tnews", data=str(tiny_tnews), settings=settings)
    plan = finetune(TrainingRequest(resolved, tmp_path / "x", dry_run=True), Kept())
    print_plan({**plan, "estimate": {**plan["estimate"], "seconds": seconds}})
    out = capsys.readouterr().out
    assert words in out
    assert "early stopping may end it before" in out
