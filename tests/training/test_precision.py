"""`runtime.precision: auto` in training: timed steps decide, and the run keeps what they decided."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import ForkServer
from loops import training_loop, weights
from ranks import run_ranks
from small_runs import fingerprint
from tiny_task import tiny

from recurcli.commands.finetune import finetune
from recurcli.commands.training.request import TrainingRequest
from recurcli.commands.training.resolve import FEWEST_STEPS, SECONDS, step_seconds, time_precisions
from recurcli.events import Finished, Note
from recurcli.model.device import choose_precision
from recurcli.preset import compose
from recurcli.training.fit import TrainingLoop

Recur = Callable[..., tuple[int, str, str]]
LONG = (
    "finetuning.epochs=7",
    "finetuning.evaluate_every=28",
    "encoder.dropout=0.2",
    "finetuning.linear_baseline=false",
    "ensemble=null",
)
"""56 steps."""
has_bf16 = pytest.mark.skipif(
    choose_precision("auto", torch.device("cpu")) != "bf16", reason="this CPU has no bf16, so auto times nothing"
)


def clock(fp32: float, bf16: float, taken: list[str]) -> Callable[[TrainingLoop, np.ndarray], float]:
    """A `step_seconds` that takes a known time, and writes down the precision of each step."""

    def timed(loop: TrainingLoop, rows: np.ndarray) -> float:
        taken.append(loop.precision)
        return fp32 if loop.precision == "fp32" else bf16

    return timed


def finetuning(data: Path, output: Path, precision: str, *settings: str) -> list[object]:
    line = ["finetune", "--preset", "starsaber-tnews", "--data", data, "--output", output, "--keep-checkpoints"]
    return [*line, *tiny(*LONG, f"runtime.precision={precision}", *settings)]


def precision_of(run: Path) -> str:
    return str(json.loads((run / "result.json").read_text())["machine"]["precision"])


@pytest.mark.parametrize(
    ("fp32", "bf16", "words"),
    [
        (0.014, 0.010, "bf16, 1.40 times as fast as fp32 here"),
        (0.0101, 0.010, "fp32, about as fast as bf16 here"),
        (0.0099, 0.010, "fp32, about as fast as bf16 here"),
        (0.010, 0.020, "fp32, 2.00 times as fast as bf16 here"),
    ],
)
def test_bf16_must_be_clearly_faster(fp32: float, bf16: float, words: str) -> None:
    timing = time_precisions(training_loop(max_steps=1000), clock(fp32, bf16, []))
    assert timing is not None
    assert timing.in_words() == words


def test_both_take_turns_within_the_time_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    taken: list[str] = []
    assert time_precisions(training_loop(max_steps=FEWEST_STEPS), clock(0.01, 0.01, taken)) is not None
    assert taken[:4] == ["bf16", "fp32", "fp32", "bf16"]
    assert taken.count("fp32") == taken.count("bf16")
    assert len(taken) * 0.01 == pytest.approx(SECONDS, abs=0.05)
    taken.clear()
    assert time_precisions(training_loop(max_steps=10_000), clock(2.0, 2.0, taken)) is not None
    assert len(taken) == 12, "a warm-up and five turns, far below 2 % of the training"
    taken.clear()
    assert time_precisions(training_loop(max_steps=10_000), clock(3.0, 2.0, taken)) is not None
    assert len(taken) == 4, "the first turn leaves no doubt"


def test_a_short_training_times_nothing_that_costs_more_than_it_brings() -> None:
    taken: list[str] = []
    assert time_precisions(training_loop(max_steps=FEWEST_STEPS - 1), clock(0.01, 0.01, taken)) is None
    assert taken == []
    assert time_precisions(training_loop(max_steps=FEWEST_STEPS), clock(9.0, 9.0, taken)) is None
    assert len(taken) == 1


@pytest.mark.parametrize("kind", ["classification", "masked"])
def test_the_timed_steps_leave_no_trace(kind: str) -> None:
    loop = training_loop(kind, max_steps=100, gradient_accumulation_steps=2)
    loop.model.float()
    before, state = weights(loop), torch.get_rng_state()
    time_precisions(loop)  # None where one step takes too long here
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in loop.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in loop.model.parameters())
    assert not loop.optimizer.state
    assert loop.precision == "fp32"
    assert step_seconds(replace(loop, precision="bf16"), np.arange(3)) > 0


@has_bf16
@pytest.mark.parametrize("stored", ["fp32", "bf16"])
def test_a_resume_keeps_the_precision_of_the_run(stored: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    constant = (
        "finetuning.evaluate_every=8",
        "finetuning.lr_scheduler=constant",
        "finetuning.warmup_ratio=0",
        "finetuning.warmup_steps=0",
    )
    short, long = (*constant, "finetuning.epochs=1"), (*constant, "finetuning.epochs=7")
    code, _, err = recur(*finetuning(tiny_tnews, tmp_path / "x", stored, *short))
    assert code == 0, err
    code, _, err = recur(*finetuning(tiny_tnews, tmp_path / "x", "auto", *long), "--resume")
    assert code == 0, err
    assert "resumed at step 8" in err
    assert "precision" not in err
    assert precision_of(tmp_path / "x") == stored
    assert "precision: auto" in (tmp_path / "x" / "preset.yaml").read_text()
    assert recur(*finetuning(tiny_tnews, tmp_path / "whole", stored, *long))[0] == 0
    assert fingerprint(tmp_path / "x") == fingerprint(tmp_path / "whole")


@has_bf16
def test_the_weights_are_those_of_the_precision_given_by_hand(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    code, _, err = recur(*finetuning(tiny_tnews, tmp_path / "x", "auto"))
    assert code == 0, err
    decided = precision_of(tmp_path / "x")
    assert f"runtime.precision auto: {decided}, " in err
    assert recur(*finetuning(tiny_tnews, tmp_path / "given", decided))[0] == 0
    assert fingerprint(tmp_path / "x") == fingerprint(tmp_path / "given")
    code, out, err = recur(*finetuning(tiny_tnews, tmp_path / "dry", "auto"), "--dry-run", "--json")
    assert code == 0, err
    assert f"runtime.precision auto: {json.loads(out)['machine']['precision']}, " in err


@has_bf16
def test_a_training_that_must_repeat_times_nothing(tiny_tnews: Path, tmp_path: Path) -> None:
    settings = [part for part in tiny(*LONG, "runtime.precision=auto") if part != "--set"]
    resolved = compose("starsaber-tnews", data=str(tiny_tnews), settings=settings)
    events = list(finetune(TrainingRequest(resolved, tmp_path / "x", dry_run=True, time_precision=False)))
    assert not any("precision" in event.text for event in events if isinstance(event, Note))
    (plan,) = (event.result for event in events if isinstance(event, Finished))
    assert plan["machine"]["precision"] == "bf16", "what the hardware has"


@has_bf16
def test_one_process_decides_for_all(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    first, second = run_ranks(forks, *finetuning(tiny_tnews, tmp_path / "x", "auto"))
    assert (first.code, second.code) == (0, 0), first.err
    decided = precision_of(tmp_path / "x")
    assert first.err.count(f"runtime.precision auto: {decided}, ") == 1
    checkpoint = max((tmp_path / "x" / "checkpoints").glob("step-*"))
    assert json.loads((checkpoint / "state.json").read_text())["should_match"]["precision"] == decided
