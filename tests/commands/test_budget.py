"""`finetune --budget`: the planned steps, what repeats them, and a resume."""

import re
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import yaml
from forked import ForkServer
from ranks import run_ranks
from running import Recur
from small_runs import fingerprint
from tiny_task import tiny

STEPS = 48
SETTINGS = (
    "finetuning.epochs=6",
    "encoder.dropout=0.2",
    "embedding.dropout=0.1",
    "finetuning.word_dropout=0.2",
    "ensemble=linear",
    "finetuning.checkpoint_every=3",
)


@pytest.fixture(autouse=True)
def restart_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Each look at the CPU time finds a second more, from 0 or a new start, so a plan is the same on every machine."""

    def restart() -> None:
        monkeypatch.setattr(time, "process_time", partial(next, count()))

    restart()
    return restart


def finetuning(data: Path, output: Path, *more: str, preset: str = "starsaber-tnews") -> list[object]:
    source = ["finetune", "--preset", preset, "--data", data, "--output", output, "--keep-checkpoints"]
    return [*source, *tiny(*SETTINGS), *more]


def planned(err: str, budget: str, steps: int = STEPS) -> int:
    note = re.search(
        rf"--budget {budget}: ([\d,]+) of {steps} steps, after .* s; --set finetuning.max_steps=(\d+) repeats the run",
        err,
    )
    assert note is not None, err
    assert note[1] == note[2]
    return int(note[1])


def values(run: Path) -> object:
    return yaml.safe_load((run / "preset.yaml").read_text(encoding="utf-8"))


def interrupt(run: Path) -> None:
    """Leave the run as a kill after its first checkpoint does."""
    (run / "result.json").unlink()
    for file in max((run / "checkpoints").iterdir()).iterdir():
        file.write_bytes(b"")


def test_the_steps_that_the_note_names_repeat_the_run_to_the_bit(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    steps = planned(recur.ok(*finetuning(tiny_tnews, one, "--budget", "20s"))[1], "20s")
    assert 1 < steps < STEPS
    recur.ok(*finetuning(tiny_tnews, two, "--set", f"finetuning.max_steps={steps}"))
    assert fingerprint(one) == fingerprint(two)
    assert values(one) == values(two)


def test_more_time_gives_more_steps_but_never_more_than_the_preset(
    recur: Recur, restart_clock: Callable[[], None], tiny_tnews: Path, tmp_path: Path
) -> None:
    plans = []
    for budget, seconds in (("15", 15), ("0.5m", 30), ("1h", 3600)):
        restart_clock()
        _, err = recur.ok(*finetuning(tiny_tnews, tmp_path / f"{seconds}", "--budget", budget))
        plans.append(planned(err, f"{seconds}s"))
    assert plans == sorted(set(plans))
    assert plans[-1] == STEPS


@pytest.mark.parametrize("budget", [(), ("--budget", "50s")])
def test_a_resume_keeps_the_plan(budget: tuple[str, ...], recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    run = tmp_path / "x"
    recur.ok(*finetuning(tiny_tnews, run, "--budget", "20s"))
    whole, preset = fingerprint(run), (run / "preset.yaml").read_bytes()
    interrupt(run)
    _, err = recur.ok(*finetuning(tiny_tnews, run, "--resume", *budget))
    assert "resumed at step" in err
    assert "repeats the run" not in err
    (damaged,) = (run / "checkpoints").glob("*.damaged")
    damaged.rename(tmp_path / "damaged")
    assert fingerprint(run) == whole
    assert (run / "preset.yaml").read_bytes() == preset
    assert "is already finished" in recur.ok(*finetuning(tiny_tnews, run, "--resume", *budget))[1]


def test_a_resume_plans_nothing_anew(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    plain, run = tmp_path / "plain", tmp_path / "run"
    recur.ok(*finetuning(tiny_tnews, plain))
    interrupt(plain)
    reason = "--budget: .*plain was begun without one, and a resume plans no steps"
    assert re.search(reason, recur.refused(2, "", *finetuning(tiny_tnews, plain, "--resume", "--budget", "20s")))
    recur.ok(*finetuning(tiny_tnews, run, "--budget", "1h"))
    fewer = finetuning(tiny_tnews, run, "--resume", "--set", "finetuning.max_steps=2")
    recur.refused(2, "cannot be resumed: finetuning.max_steps was", *fewer)


def test_a_budget_in_which_no_step_fits_is_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    reason = "--budget 6s: no step fits; "
    recur.refused(2, reason, *finetuning(tiny_tnews, tmp_path / "x", "--budget", "6s"))
    assert not (tmp_path / "x").exists()


def test_what_takes_no_budget_is_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    source = finetuning(tiny_tnews, tmp_path / "x")[3:7]
    linear = ("finetune", "--preset", "linear-tnews", *source, "--budget", "9s")
    recur.refused(
        2, "--budget: plans training steps, but the linear model of preset linear-tnews takes no steps", *linear
    )
    dry_run = finetuning(tiny_tnews, tmp_path / "x", "--budget", "9s", "--dry-run")
    recur.refused(2, "--budget: plans training steps, but a dry run measures none; leave it out", *dry_run)
    for wrong in ("0s", "-1", "5d", "1e3", ""):
        reason = f"--budget {wrong}: is no time above 0, such as 60s, 5m or 1h"
        recur.refused(2, reason, *finetuning(tiny_tnews, tmp_path / "x", f"--budget={wrong}"))


def test_two_processes_follow_one_plan(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    two_epochs = ("--set", "finetuning.epochs=2", "--budget", "1h")
    ends = run_ranks(forks, *finetuning(tiny_tnews, tmp_path / "x", *two_epochs), ranks=2)
    assert [end.code for end in ends] == [0, 0], ends[0].err
    assert planned(ends[0].err, "3600s", steps=16) == 16
