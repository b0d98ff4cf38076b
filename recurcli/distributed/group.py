"""The ranks of one run, as torchrun starts them: collectives, and an exit that all ranks share.

Commands call `current()`. Without torchrun it returns SINGLE_PROCESS, whose collectives return their argument and import
nothing. Collectives send numbers and JSON, never a pickle.

A rank that is killed breaks the connections on which the others wait, and torchrun ends them. One that is suspended is found
by the time limit of `time_limit`. The first failure in torchrun's key-value store is that of the run: its rank prints it, and
all ranks exit with its code.
"""

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.errors import RankError, UsageError, escaped
from recurcli.process import end_with_parent

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor
    from torch.distributed import ProcessGroup, Store  # type: ignore[attr-defined]

START = timedelta(minutes=2)
"""How long all ranks may take to start and to connect."""
LONGEST_WAIT = timedelta(days=1)
"""How long a rank waits for others in a collective, while rank 0 reads, fits the linear model or writes."""
LIMIT = timedelta(minutes=5)
"""How long a rank waits in a collective within `time_limit`."""
PARTING = 2.0
"""Seconds that a failed rank waits for the others: when it exits, torchrun sends them SIGTERM."""


class Ranks:
    """This process as rank `rank` of `world_size`, and as `local_rank` of `local_world_size` on its machine.

    `broadcast` and `all_gather` take JSON values and return the result; `broadcast_` and `all_reduce_` take tensors and
    change them in place. Every rank must call the same collectives in the same order. They raise RankError if the connection
    to another rank breaks.
    """

    store: "Store | None" = None
    """torchrun's key-value store, with the keys of this start. None for a single process."""
    _group: "ProcessGroup | None" = None
    _limited: "ProcessGroup | None" = None

    def __init__(self, rank: int = 0, world_size: int = 1, local_rank: int = 0, local_world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self.is_main = rank == 0
        """Whether this is rank 0, which writes the files and prints."""

    def connect(self, device: "torch.device") -> None:
        """Initialise the process group: gloo for tensors on the CPU, nccl for those on CUDA."""
        import torch

        if self.world_size == 1 or torch.distributed.is_initialized():
            return
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            os.environ.setdefault(
                "TORCH_NCCL_BLOCKING_WAIT", "1"
            )  # a timeout raises an error; else it aborts the process
            backend = "cpu:gloo,cuda:nccl"
        group = {"store": self.store, "rank": self.rank, "world_size": self.world_size}
        with _torch_distributed() as distributed, _stdout_to_stderr():
            distributed.init_process_group(backend, timeout=START, **group)
            self._group = distributed.new_group(timeout=LONGEST_WAIT)
            self._limited = distributed.new_group(timeout=LIMIT)

    @contextlib.contextmanager
    def time_limit(self) -> Iterator[None]:
        """Within the block collectives raise RankError if another rank does not answer within LIMIT.

        It is for training steps and evaluations, in which all ranks do the same. All of them must enter it.
        """
        before, self._group = self._group, self._limited
        try:
            yield
        finally:
            self._group = before

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.broadcast(None)

    def all_gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every rank, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        own = json.dumps(value).encode()
        lengths = self._gathered(len(own).to_bytes(8, "little"))
        longest = max(int.from_bytes(length, "little") for length in lengths)
        return [json.loads(value) for value in self._gathered(own.ljust(longest))]

    def broadcast(self, value: Any) -> Any:
        """Send the `value` of rank 0, as JSON, to all ranks, and return it on each of them."""
        return self.all_gather(value if self.is_main else None)[0]

    def all_reduce_(self, tensor: "Tensor") -> None:
        """Sum a contiguous `tensor` over all ranks, in place.

        Gradients are summed after the backward pass, not in buckets during it as DistributedDataParallel does: a rank without
        rows takes part in the same way, and no two GPUs were at hand to measure what an overlap would save.
        """
        if self.world_size > 1:
            with _torch_distributed() as distributed:
                distributed.all_reduce(tensor, group=self._group)

    def all_gather_(self, tensor: "Tensor") -> list["Tensor"]:
        """Return the `tensor` of every rank, of one shape and dtype, in the order of ranks."""
        if self.world_size == 1:
            return [tensor]
        import torch

        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        with _torch_distributed() as distributed:
            distributed.all_gather(parts, tensor, group=self._group)
        return parts

    def broadcast_(self, tensors: Sequence["Tensor"]) -> None:
        """Broadcast rank 0's values into `tensors`, in place."""
        for tensor in tensors if self.world_size > 1 else ():
            with _torch_distributed() as distributed:
                distributed.broadcast(tensor, 0, group=self._group)

    def sum_disjoint(self, values: "np.ndarray") -> "np.ndarray":
        """Sum the float64 arrays of all ranks, in place and exactly. At each index only one rank may have a value but 0."""
        if self.world_size > 1:
            import torch

            # Bits are summed, as sums of floats would lose the sign of a zero. They share their memory with `values`.
            self.all_reduce_(torch.from_numpy(values).view(torch.int64))
        return values

    def _gathered(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, which must have one length."""
        import torch

        parts = self.all_gather_(torch.frombuffer(bytearray(message), dtype=torch.uint8))
        return [part.numpy().tobytes() for part in parts]


SINGLE_PROCESS = Ranks()
_current = SINGLE_PROCESS


def current() -> Ranks:
    """The ranks of this run; SINGLE_PROCESS unless `join` was called under torchrun."""
    return _current


def join() -> None:
    """Connect to torchrun's key-value store; do nothing if torchrun's variables are not set.

    Raises UsageError for a variable that is not a number, RankError if a rank does not start.
    """
    global _current
    for name in ("RANK", "WORLD_SIZE"):
        if not (value := os.environ.get(name, "1")).isdecimal():
            raise UsageError(
                f"{name} is '{escaped(value)}', not a number; torchrun sets it: unset it for a single process"
            )
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1 or "MASTER_ADDR" not in os.environ or "RANK" not in os.environ or _current.world_size > 1:
        return
    rank = int(os.environ["RANK"])
    if rank > 0:  # rank 0 prints for all
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        sys.stderr = sys.stdout
    with _torch_distributed() as distributed:
        store, _, _ = next(distributed.rendezvous("env://", timeout=START))
        store = distributed.PrefixStore(_agreed_prefix(store, rank, world_size), store)
    local_rank, local_world_size = os.environ.get("LOCAL_RANK", "0"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    _current = Ranks(rank, world_size, int(local_rank), int(local_world_size))
    _current.store = store


def _agreed_prefix(store: "Store", rank: int, world_size: int) -> str:
    """Return the prefix of this start's keys, which rank 0 chooses. torchrun's store is one over all restarts.

    Each rank asks with a new id, which no earlier start can have answered. Raises RankError if a rank does not start.
    """
    name = uuid.uuid4().hex
    if rank > 0:
        store.set(f"recur/request/{rank}", name)
        prefix = store.get(f"recur/prefix/{name}").decode()
        store.set(f"{prefix}/{rank}", "here")
        return prefix
    deadline, absent = time.monotonic() + START.total_seconds(), [*range(1, world_size)]
    while absent:
        for other in absent:
            if store.check([f"recur/request/{other}"]):
                store.set(f"recur/prefix/{store.get(f'recur/request/{other}').decode()}", name)
        time.sleep(0.02)
        absent = [other for other in absent if not store.check([f"{name}/{other}"])]
        if absent and time.monotonic() > deadline:
            raise RankError(f"rank {absent[0]} has not started within {START.total_seconds():.0f} s")
    return name


def finish() -> None:
    """Wait until all ranks have finished. Raises RankError if one of them failed instead."""
    if _current.world_size == 1:
        return
    from torch import distributed

    if distributed.is_initialized():
        _current.barrier()
        distributed.destroy_process_group()


def report_failure(code: int, message: str) -> tuple[int, str | None]:
    """Report a failure to all ranks. Returns the run's exit code, and the message, which is None if another rank prints it."""
    if (store := _current.store) is None:
        return code, message
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # this process exits anyway
    try:
        code, message, rank = json.loads(store.compare_set("failure", "", json.dumps([code, message, _current.rank])))
        must_print = rank == _current.rank
    except RuntimeError:  # torchrun is gone: each rank has its own failure
        must_print = _current.is_main
    if not must_print:
        return code, None
    sys.stderr = sys.__stderr__
    return code, message


def exit_group(code: int) -> None:
    """Exit after a failure, once the other ranks had a moment to exit; return at once in a single process."""
    if (store := _current.store) is None:
        return
    from torch import distributed

    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()  # ranks that wait for this one get an error
    deadline = time.monotonic() + PARTING
    with contextlib.suppress(RuntimeError):
        store.add("exiting", 1)
        while store.add("exiting", 0) < _current.world_size and time.monotonic() < deadline:
            time.sleep(0.02)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # a normal exit would wait for collectives with a lost rank


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect to stderr what gloo prints to stdout when it connects (until torch 2.12)."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _torch_distributed() -> Iterator[Any]:
    """Yield torch.distributed, whose RuntimeError for a broken connection becomes a RankError."""
    from torch import distributed

    try:
        yield distributed
    except RuntimeError as error:
        reason = escaped(str(error).partition(". This is typically")[0], limit=300)
        raise RankError(
            f"another rank of this run cannot be reached: killed, suspended, or its machine is lost: {reason}"
        ) from None
