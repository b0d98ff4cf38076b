"""A training that is killed with SIGKILL, anywhere and any number of times, ends with the bytes of one that was not."""

import itertools
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from cases import slow_but
from forked import Child, ForkServer
from running import Recur
from small_runs import COMMANDS, Prints, fingerprint, options

from recurcli.files import sha256_of
from recurcli.runs.run_directory import OLD, beside

ENCODERS = ("starsaber", "truncated-rnn", "transject")
MOMENTS = (
    "a step",
    "a micro-batch",
    "an evaluation",
    "a checkpoint",
    "a rotation of checkpoints",
    "an epoch's end",
    "a line of metrics",
    "the publishing of a model",
    "the end",
    "the last file",
)
LONGER = ("finetuning.epochs=4", "pretraining.epochs=3", "finetuning.patience=null")


def moments_of(command: str) -> list[str]:
    """The moments that a command has: a pretraining evaluates nothing."""
    return [moment for moment in MOMENTS if command != "pretrain" or moment != "an evaluation"]


def aimed(forks: ForkServer, moment: str, call: int, delay: float, command: str, arguments: list[str]) -> Child:
    """A training that dies `delay` seconds after the `call`-th time of a moment."""
    shim = ("die_at", {"moment": moment, "call": call, "delay": delay})
    return forks.start(command, *arguments, "--resume", shims=(shim,))


@pytest.mark.parametrize(
    ("command", "moments"),
    [
        ("finetune", ["a micro-batch", "a rotation of checkpoints", "the publishing of a model"]),
        *(pytest.param(command, moments_of(command), marks=pytest.mark.slow) for command in COMMANDS),
    ],
)
def test_one_kill_at_every_kind_of_moment_changes_no_bit(
    command: str, moments: list[str], forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    killed = options(tiny_tnews, tmp_path / "killed")
    for moment in moments:
        assert aimed(forks, moment, 1, 0.0, command, killed).end().code == -signal.SIGKILL, moment
    ended = forks.run(command, *killed, "--resume")
    assert ended.code == 0, ended.err
    assert fingerprint(tmp_path / "killed") == untouched[command]


def test_a_run_predicts_by_its_linear_model_while_the_encoder_trains_and_after_a_kill(
    recur: Recur, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    run, new = tmp_path / "run", tmp_path / "new.txt"
    arguments = [option for option in options(tiny_tnews, run) if option != "--quiet"]
    new.write_text("鼠牛虎兔\n龙蛇马羊\n", encoding="utf-8")
    child = forks.start("finetune", *arguments)
    child.said(f"it can be used while the encoder trains: recur predict {run} NEW.txt")
    child.send(signal.SIGSTOP)
    during, err = recur.ok("predict", run, new)
    assert "its training is under way" in err
    child.send(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    after, err = recur.ok("predict", run, new)
    assert "its training is not finished" in err
    assert during == after and during.count("\n") == 2
    recur.ok("finetune", *arguments, "--resume")
    assert fingerprint(run) == untouched["finetune"]


@pytest.mark.parametrize("to", slow_but(["/killed"], [".killed.old", "/killed"]))
def test_a_kill_at_either_rename_of_an_overwrite_changes_no_bit(
    to: str, forks: ForkServer, trained: Path, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    run = shutil.copytree(trained, tmp_path / "killed")
    arguments = options(tiny_tnews, run)
    ended = forks.run("finetune", *arguments, "--overwrite", shims=(("die_at_rename", {"to": to}),))
    assert ended.code == -signal.SIGKILL, ended.err
    before = run if to == ".killed.old" else beside(run, OLD)
    assert sha256_of(before / "model.safetensors") == sha256_of(trained / "model.safetensors")
    ended = forks.run("finetune", *arguments, "--resume")
    assert ended.code == 0, ended.err
    assert fingerprint(run) == untouched["finetune"]
    assert [path.name for path in tmp_path.iterdir()] == ["killed"]


def kill_until_done(forks: ForkServer, command: str, arguments: list[str], draw: random.Random, seconds: float) -> int:
    """Start `command`, kill it at a random moment, resume, and so on until it ends. Returns the number of kills."""
    kills = 0
    while True:
        child = forks.start(command, *arguments, "--resume")
        if ended := child.wait(draw.uniform(0.03, 0.8) * seconds):
            assert ended.code == 0, ended.err
            return kills
        child.send(signal.SIGKILL)
        kills += child.end().code == -signal.SIGKILL


@pytest.mark.slow
def test_two_hundred_random_kills_change_no_bit(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    draw, kills = random.Random(7), 0
    for number, (encoder, command) in enumerate(itertools.product(ENCODERS, COMMANDS)):
        whole = tmp_path / f"{encoder}-{command}"
        started = time.monotonic()
        assert forks.run(command, *options(tiny_tnews, whole, *LONGER, encoder=encoder)).code == 0
        seconds, wanted = time.monotonic() - started, fingerprint(whole)
        while kills < 200 * (number + 1) / (len(ENCODERS) * len(COMMANDS)):
            output = tmp_path / f"killed-{number}-{kills}"
            arguments = options(tiny_tnews, output, *LONGER, encoder=encoder)
            kills += kill_until_done(forks, command, arguments, draw, seconds)
            assert fingerprint(output) == wanted, f"{encoder} {command} after {kills} kills"
            shutil.rmtree(output)


@pytest.mark.slow
def test_kills_aimed_at_the_awkward_moments_change_no_bit(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    draw = random.Random(8)
    for command in COMMANDS:
        for moment, call in itertools.product(moments_of(command), (1, 2, 4)):
            output = tmp_path / f"{command} {moment} {call}"
            arguments = options(tiny_tnews, output)
            hits = 0
            for _ in range(3):  # the resume is killed at the same moment again, a little later
                child = aimed(forks, moment, call, draw.uniform(0, 0.004) if hits else 0.0, command, arguments)
                if child.end().code != -signal.SIGKILL:
                    break
                hits += 1
            assert hits or call > 1, f"{command}: {moment}"
            ended = forks.run(command, *arguments, "--resume")
            assert ended.code == 0, ended.err
            assert fingerprint(output) == untouched[command], f"{command}: killed at {moment}, call {call}"
