"""Two trainings that want one directory: one has it, the other leaves at once and damages nothing."""

import json
import signal
import time
from pathlib import Path

import pytest
from forked import Child, Ended, ForkServer
from small_runs import COMMANDS, Prints, fingerprint, options

from recurcli.runs.network_files import read_model


def race(forks: ForkServer, arguments: list[str], delay: float) -> list[Ended]:
    """How two processes with the same command line ended, the second started `delay` seconds after the first."""
    children: list[Child] = []
    for _ in range(2):
        children.append(forks.start(*arguments))
        time.sleep(delay)
    return [child.end() for child in children]


def at_work(output: Path) -> str:
    """The error of a training that meets another one in the folder."""
    lock = output.with_name(f".{output.name}.lock")
    return f"recur: error: {output}: another recur is at work here (it holds {lock})\n"


def races(forks: ForkServer, command: str, data: Path, folder: Path, count: int, wanted: dict[str, object]) -> int:
    """Race so many times, each in a new directory and a little further apart; returns how often the lock was met."""
    met = 0
    for number in range(count):
        output = folder / str(number)
        more = ["--resume"] if number % 2 else []
        ended = race(forks, [command, *options(data, output), *more, "--json"], delay=0.25 * number / count)
        winners = [one for one in ended if one.code == 0]
        losers = [one for one in ended if one.code != 0]
        assert winners, [one.err for one in ended]
        for loser in losers:
            if loser.code == 2:  # it came when the other had begun or was done, and was not told to go on
                assert not more
                assert "already has a run" in loser.err
                continue
            assert (loser.code, loser.out) == (5, "")
            assert loser.err == at_work(output)
            met += 1
        if not losers:
            assert more, "only a resume may come second and be content"
            assert len({json.dumps(json.loads(one.out)["seconds"]) for one in winners}) == 1, "one trained, one looked"
        assert fingerprint(output) == wanted
    return met


@pytest.mark.parametrize("command", ["finetune", pytest.param("pretrain", marks=pytest.mark.slow)])
def test_one_of_two_trainings_in_one_directory_wins(
    command: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    assert races(forks, command, tiny_tnews, tmp_path, 2, untouched[command]) >= 1


@pytest.mark.slow
def test_fifty_races_have_one_winner_each_and_damage_nothing(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    met = 0
    for command in COMMANDS:
        (tmp_path / command).mkdir()
        met += races(forks, command, tiny_tnews, tmp_path / command, 25, untouched[command])
    assert met >= 20


def test_a_holder_that_is_killed_or_stopped_keeps_nobody_out(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.epochs=2000", "finetuning.patience=null")]
    holder = forks.start(*arguments)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("x/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    holder.send(signal.SIGSTOP)
    refused = forks.run(*arguments, "--resume")
    assert (refused.code, refused.err) == (5, at_work(tmp_path / "x"))
    assert forks.run(*arguments, "--overwrite").code == 5, "nothing is taken from one that only sleeps"
    holder.send(signal.SIGKILL)
    assert holder.end().code == -signal.SIGKILL
    following = forks.start(*arguments, "--resume")
    assert following.wait(0.5) is None, "it trains"
    following.send(signal.SIGTERM)
    assert following.end().code == 143


@pytest.mark.slow
def test_one_that_fails_leaves_no_folder_and_takes_none_from_another(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train.json", "dev.json"):
        (tmp_path / "data" / name).write_text('{"sentence": "a", "label": "117"}\n')
    for number in range(3):
        output = tmp_path / str(number)
        good = ["finetune", *options(tiny_tnews, output), "--resume"]
        failing = forks.start("finetune", *options(tmp_path / "data", output))
        ended = forks.run(*good)
        assert failing.end().code in (2, 3, 5)
        if ended.code == 5:
            assert ended.err == at_work(output)
            assert not output.exists()
            ended = forks.run(*good)
        assert ended.code == 0, ended.err
        read_model(output)
