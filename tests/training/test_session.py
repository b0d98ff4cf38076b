"""`Session`: what a training leaves on the disk, and what it resumes from."""

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from logs import Kept
from loops import STREAMS, training_loop, weights
from running import lines_of
from test_fit import Threads
from torch import Tensor

from recurcli.errors import Interrupted, ModelError, UsageError
from recurcli.evaluation.report import DevScore
from recurcli.log import Log
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.session import Session, StopRequest

CARRYING = {"name": "truncated-rnn", "window": None, "bidirectional": False}


def session(folder: Path, published: list[Any] | None = None, **more: Any) -> Session:
    """Eight steps with an evaluation after every second, the second one the best."""
    folder.mkdir(exist_ok=True)
    metrics = iter([0.2, 0.8, 0.5, 0.6])
    loop = training_loop(
        optimizer=torch.optim.AdamW,
        batch_size=4,
        max_steps=8,
        checkpoint_every=3,
        log_every=4,
        evaluate=lambda: DevScore(next(metrics), 1.0),
        evaluate_every=2,
    )
    facts: dict[str, Any] = {"loop": loop, "resume_key": {"seed": 3}, "environment": {"threads": 1}} | more

    def publish(tensors: Mapping[str, Tensor]) -> None:
        if published is not None:
            published.append(dict(tensors))

    return Session(run=RunDirectory(folder), stop=StopRequest(), publish=publish, **facts)


def restored(training: Session) -> list[str]:
    log = Kept()
    training.restore(log)
    return log.notes


def run(training: Session, log: Log | None = None) -> Session:
    training.restore(log or Log())
    training.train(log or Log())
    return training


def carrying(folder: Path, steps: int, **more: Any) -> Session:
    """A session whose encoder carries a state; it keeps a checkpoint of each step."""
    return session(folder, loop=training_loop("streams", CARRYING, max_steps=steps, checkpoint_every=1, **more))


def state_of(training: Session) -> dict[str, Tensor]:
    """The state that a training carries."""
    carry = training.loop.objective.carry
    assert carry is not None
    return carry.state


def test_a_training_logs_saves_and_publishes_the_best_weights(tmp_path: Path) -> None:
    published: list[dict[str, Tensor]] = []
    training = session(tmp_path / "run", published)
    run(training)
    lines = lines_of(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert [line["dev_metric"] for line in lines] == [0.2, 0.8, 0.5, 0.6]
    assert [line["best_dev_metric"] for line in lines] == [0.2, 0.8, 0.8, 0.8]
    assert sorted(path.name for path in training.run.checkpoints.iterdir()) == ["step-00000006", "step-00000008"]
    assert len(published) == 2
    assert training.best is not None
    torch.testing.assert_close(published[-1], training.best, atol=0, rtol=0)


def test_a_stop_saves_a_checkpoint_from_which_the_weights_and_the_best_ones_come_back(tmp_path: Path) -> None:
    whole = session(tmp_path / "whole")
    run(whole)
    first = session(tmp_path / "run")
    with pytest.raises(Interrupted):
        run(first, Kept(lambda state: first.stop._handle(signal.SIGTERM, None) if state.step == 4 else None))
    assert (first.loop.state.step, (tmp_path / "run" / "checkpoints" / "step-00000005").is_dir()) == (5, True)
    published: list[dict[str, Tensor]] = []
    second = session(tmp_path / "run", published)
    second.loop = training_loop(
        optimizer=torch.optim.AdamW,
        batch_size=4,
        max_steps=8,
        evaluate=iter([DevScore(0.5, 1.0), DevScore(0.6, 1.0)]).__next__,
        evaluate_every=2,
    )
    log = Kept()
    run(second, log)
    assert log.notes == ["resumed at step 5 of 8"]
    torch.testing.assert_close(weights(second.loop), weights(whole.loop), atol=0, rtol=0)
    torch.testing.assert_close(published[0], whole.best, atol=0, rtol=0)


@pytest.mark.parametrize("fault", ["streams", "number", "integers", "vector"])
def test_a_carried_state_that_is_none_of_the_streams_is_refused(fault: str, tmp_path: Path) -> None:
    """The checkpoint has the bytes that its manifest names, as one that other code wrote may have."""
    training = run(carrying(tmp_path / "run", 3))
    state = state_of(training)
    again = carrying(tmp_path / "run", 3)
    assert restored(again)
    torch.testing.assert_close(state_of(again), state, atol=0, rtol=0)
    name, part = next(iter(state.items()))
    wrong = {"streams": part[:2], "number": part / 0, "integers": part.long(), "vector": part.flatten()[:STREAMS]}
    state[name] = wrong[fault]
    training.loop.state.step += 1
    training.save()
    with pytest.raises(ModelError, match=f"carried.safetensors: {name} is not the state of 3 streams"):
        restored(carrying(tmp_path / "run", 4))


def test_a_state_that_was_carried_in_bf16_goes_on_in_fp32(tmp_path: Path) -> None:
    training = run(carrying(tmp_path / "run", 3))
    state = state_of(training)
    state |= {name: part.bfloat16() for name, part in state.items()}
    training.loop.state.step += 1
    training.save()
    assert run(carrying(tmp_path / "run", 6)).loop.state.step == 6


def test_every_rank_resumes_with_the_state_that_rank_0_reads(tmp_path: Path) -> None:
    state = state_of(run(carrying(tmp_path / "run", 3)))
    values, barrier = [None] * 2, threading.Barrier(2, timeout=60)
    sessions = [
        carrying(tmp_path / folder, 3, ranks=Threads(rank, values, barrier))
        for rank, folder in enumerate(("run", "none"))
    ]
    threads = [threading.Thread(target=training.restore, args=(Log(),)) for training in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state
    for training in sessions:
        torch.testing.assert_close(state_of(training), state, atol=0, rtol=0)


def test_a_resume_compares_its_key_and_its_environment(tmp_path: Path) -> None:
    run(session(tmp_path / "run"))
    with pytest.raises(UsageError, match="seed was 3 and is now 4"):
        restored(session(tmp_path / "run", resume_key={"seed": 4}))
    log = Kept()
    session(tmp_path / "run", environment={"threads": 2}).restore(log)
    assert log.warnings[0].startswith("threads was 1 and is now 2")
    assert restored(session(tmp_path / "run", resume_key={"seed": 3}))
