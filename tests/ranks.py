"""Several ranks without torchrun: forked processes with the variables that torchrun would set."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import torch
from forked import Ended, ForkServer

from recurcli.distributed import group, heartbeat
from recurcli.distributed.group import Ranks


def run_ranks(
    forks: ForkServer,
    *arguments: object,
    ranks: int = 2,
    call: str = "recurcli.cli:run",
    stdin: Path | None = None,
    linger: float = 10,
) -> list[Ended]:
    """How each rank ended that called `module:function` with the arguments; one that lingers after rank 0 is killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(ranks):
        shims = [("become_rank", {"rank": rank, "world_size": ranks, "port": port})]
        shims += [("read_from", {"path": str(stdin)})] if stdin else []
        children.append(forks.start(*arguments, call=call, shims=tuple(shims)))
    ended: list[Ended] = []
    for child in children:
        if not (end := child.wait(120 if not ended else linger)):
            child.send(signal.SIGKILL)
            end = child.end()
        ended.append(end)
    return ended


def _joined() -> Ranks:
    """The ranks of this process, with a heartbeat that gives up after 2 seconds."""
    heartbeat.BEAT, heartbeat.SILENCE = 0.1, 2.0
    group.join()
    ranks = group.current()
    ranks.connect(torch.device("cpu"))
    return ranks


def broadcast_late(arguments: list[str]) -> int:
    """Rank 0 computes for twice as long as the heartbeat's patience while the other ranks wait for its value."""
    ranks = _joined()
    end = time.monotonic() + 2 * heartbeat.SILENCE
    while ranks.is_main and time.monotonic() < end:
        sum(range(1000))
    value = ranks.broadcast("done" if ranks.is_main else None)
    group.finish()
    return 0 if value == "done" else 1


def stop_rank_1_at_once(arguments: list[str]) -> int:
    """Rank 1 is stopped as soon as it has joined, before its thread beats."""
    heartbeat.BEAT, heartbeat.SILENCE, heartbeat.START = 0.5, 2.0, 10.0
    group.join()
    if group.current().rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(20)
    return 0


class LateHeartbeat(heartbeat.Heartbeat):
    """A heartbeat that starts 6 seconds after the rank has connected."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        time.sleep(6)
        super().__init__(*arguments, **options)


def start_rank_2_late(arguments: list[str]) -> int:
    """Rank 1 holds the interpreter for a part of the heartbeat's patience while rank 2 has not started yet."""
    heartbeat.BEAT, heartbeat.SILENCE = 0.1, 8.0
    if os.environ["RANK"] == "2":
        group.Heartbeat = LateHeartbeat  # type: ignore[attr-defined]
    group.join()
    if group.current().rank == 1:
        time.sleep(5 * heartbeat.BEAT)
        sum(range(60_000_000))  # one call of C: the thread cannot beat meanwhile
    group.finish()
    return 0


def hold_rank_1_at_its_start(arguments: list[str]) -> int:
    """Rank 1 holds the interpreter for longer than SILENCE, as the start of CUDA may."""
    ranks = _joined()
    assert ranks.heartbeat is not None
    if ranks.rank == 1:
        with ranks.heartbeat.slow_start():
            sum(range(300_000_000))  # one call of C: the thread cannot beat meanwhile
    ranks.all_gather(None)
    group.finish()
    return 0


def stop_rank_1(arguments: list[str]) -> int:
    """Rank 1 is stopped while the other ranks wait for it."""
    ranks = _joined()
    if ranks.rank == 1:
        time.sleep(5 * heartbeat.BEAT)
        os.kill(os.getpid(), signal.SIGSTOP)
    ranks.all_gather(None)
    return 0
