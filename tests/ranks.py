"""Several ranks without torchrun: forked processes with the variables that torchrun would set."""

import itertools
import os
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from forked import Ended, ForkServer

from recurcli.cli import run
from recurcli.distributed import group
from recurcli.training.objectives import ClassificationObjective


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


def broadcast_late(arguments: list[str]) -> int:
    """Rank 0 works for longer than the limit of a training step while rank 1 waits for its value."""
    group.LIMIT = timedelta(seconds=1)
    group.join()
    ranks = group.current()
    ranks.connect(torch.device("cpu"))
    time.sleep(2 * ranks.is_main)
    value = ranks.broadcast("done" if ranks.is_main else None)
    group.finish()
    return 0 if value == "done" else 1


def train_until_rank_1_is_suspended(arguments: list[str]) -> int:
    """Train with a limit of 2 seconds. Rank 1 is suspended in its fifth step."""
    group.LIMIT = timedelta(seconds=2)
    loss, steps = ClassificationObjective.loss, itertools.count(1)

    def suspended(self: Any, model: Any, batch: Any) -> Any:
        if next(steps) == 5 and not group.current().is_main:
            os.kill(os.getpid(), signal.SIGSTOP)
        return loss(self, model, batch)

    ClassificationObjective.loss = suspended  # type: ignore[method-assign]
    return run(arguments)


def start_without_rank_1(arguments: list[str]) -> int:
    """Rank 1 is suspended before it has joined the others."""
    group.START = timedelta(seconds=2)
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    return run(arguments)
