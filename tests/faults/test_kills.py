"""A training that is killed with SIGKILL, anywhere and any number of times, ends with the bytes of one that was not."""

import itertools
import random
import signal
import time
from pathlib import Path

import pytest
from forked import Child, ForkServer
from small_runs import COMMANDS, Prints, fingerprint, options

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


class RowCounter:
    """Kills and finished runs, for the report at the end."""

    def __init__(self) -> None:
        self.kills = self.early = self.runs = 0
        self.started = time.monotonic()

    def __str__(self) -> str:
        seconds = time.monotonic() - self.started
        return (
            f"{self.kills} kills ({self.early} before the first checkpoint) over {self.runs} runs in {seconds:.0f} s: "
            "every run bit-identical to one that was left alone"
        )

    def count(self, output: Path) -> None:
        """One more kill of the training in `output`."""
        self.kills += 1
        self.early += not list(output.glob("checkpoints/step-????????"))


def kill_until_done(
    forks: ForkServer,
    command: str,
    arguments: list[str],
    output: Path,
    draw: random.Random,
    seconds: float,
    tally: RowCounter,
) -> None:
    """Start `command`, kill it at a random moment, resume, and so on until it ends."""
    while True:
        child = forks.start(command, *arguments, "--resume")
        if ended := child.wait(draw.uniform(0.03, 0.8) * seconds):
            assert ended.code == 0, ended.err
            return
        child.send(signal.SIGKILL)
        if child.end().code == -signal.SIGKILL:
            tally.count(output)


@pytest.mark.slow
def test_two_hundred_random_kills_change_no_bit(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    draw, tally = random.Random(7), RowCounter()
    for number, (encoder, command) in enumerate(itertools.product(ENCODERS, COMMANDS)):
        whole = tmp_path / f"{encoder}-{command}"
        started = time.monotonic()
        assert forks.run(command, *options(tiny_tnews, whole, *LONGER, encoder=encoder)).code == 0
        seconds, wanted = time.monotonic() - started, fingerprint(whole)
        while tally.kills < 200 * (number + 1) / (len(ENCODERS) * len(COMMANDS)):
            output = tmp_path / f"killed-{tally.runs}"
            arguments = options(tiny_tnews, output, *LONGER, encoder=encoder)
            kill_until_done(forks, command, arguments, output, draw, seconds, tally)
            tally.runs += 1
            assert fingerprint(output) == wanted, f"{encoder} {command} after {tally.kills} kills"
    print(f"\nrandom moments: {tally}")


@pytest.mark.slow
def test_kills_aimed_at_the_awkward_moments_change_no_bit(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    draw, tally = random.Random(8), RowCounter()
    for command in COMMANDS:
        for moment, call in itertools.product(moments_of(command), (1, 2, 4)):
            output = tmp_path / f"killed-{tally.runs}"
            arguments = options(tiny_tnews, output)
            hits = 0
            for _ in range(3):  # the resume is killed at the same moment again, a little later
                child = aimed(forks, moment, call, draw.uniform(0, 0.004) if hits else 0.0, command, arguments)
                if child.end().code != -signal.SIGKILL:
                    break
                hits += 1
                tally.count(output)
            assert hits or call > 1, f"{command}: {moment}"
            ended = forks.run(command, *arguments, "--resume")
            assert ended.code == 0, ended.err
            tally.runs += 1
            assert fingerprint(output) == untouched[command], f"{command}: killed at {moment}, call {call}"
    print(f"\naimed: {tally}")
