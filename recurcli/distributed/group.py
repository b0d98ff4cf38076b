"""The ranks of one run, as torchrun starts them: collectives, and an exit that all ranks share.

Commands call `current()`. Without torchrun it returns SINGLE_PROCESS, whose collectives return their argument and import
nothing. Collectives send numbers and JSON, never a pickle.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.distributed.heartbeat import START, Heartbeat, named
from recurcli.errors import Interrupted, RankError, UsageError, escaped

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

PATIENCE = timedelta(days=30)
"""The timeout of collectives: a rank waits as long as the others live, which `heartbeat` checks."""


class Ranks:
    """This process as rank `rank` of `world_size`, and as `local_rank` of `local_world_size` on its machine.

    `broadcast` and `all_gather` take JSON values and return the result; `broadcast_` and `all_reduce_` take tensors and
    change them in place. Every rank must call the same collectives in the same order. They raise RankError if the connection
    to another rank breaks.
    """

    heartbeat: Heartbeat | None = None
    """The heartbeat of this rank. None for a process that torchrun did not start."""

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
        assert self.heartbeat is not None
        backend = "gloo"
        if device.type == "cuda":
            with self.heartbeat.slow_start():
                torch.cuda.set_device(device)
                torch.zeros(1, device=device)  # CUDA starts here, and may hold the interpreter
            backend = "cpu:gloo,cuda:nccl"
        group = {"store": self.heartbeat.store, "rank": self.rank, "world_size": self.world_size}
        with _torch_distributed() as distributed, _stdout_to_stderr():
            distributed.init_process_group(backend, timeout=PATIENCE, **group)

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

    def all_reduce_(self, tensors: Sequence["Tensor"]) -> None:
        """Sum `tensors` over all ranks, in place, in one message.

        Gradients are summed after the backward pass, not in buckets during it as DistributedDataParallel does: a rank without
        rows takes part in the same way, and no two GPUs were at hand to measure what an overlap would save.
        """
        if self.world_size == 1 or not tensors:
            return
        import torch

        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _torch_distributed() as distributed:
            distributed.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def all_gather_(self, tensor: "Tensor") -> list["Tensor"]:
        """Return the `tensor` of every rank, of one shape and dtype, in the order of ranks."""
        if self.world_size == 1:
            return [tensor]
        import torch

        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        with _torch_distributed() as distributed:
            distributed.all_gather(parts, tensor)
        return parts

    def broadcast_(self, tensors: Sequence["Tensor"]) -> None:
        """Broadcast rank 0's values into `tensors`, in place."""
        for tensor in tensors if self.world_size > 1 else ():
            with _torch_distributed() as distributed:
                distributed.broadcast(tensor, 0)

    def sum_disjoint(self, values: "np.ndarray") -> "np.ndarray":
        """Sum the float64 arrays of all ranks, in place and exactly. At each index only one rank may have a value but 0."""
        if self.world_size > 1:
            import torch

            # Bits are summed, as sums of floats would lose the sign of a zero. They share their memory with `values`.
            self.all_reduce_([torch.from_numpy(values).view(torch.int64)])
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
    """Connect to torchrun's key-value store and start the heartbeat; do nothing if torchrun's variables are not set.

    Raises UsageError for a variable that is no number, RankError if rank 0 does not start.
    """
    global _current
    for name in ("RANK", "WORLD_SIZE"):
        if not (value := os.environ.get(name, "1")).isdecimal():
            raise UsageError(
                f"{name} is '{escaped(value)}', not a number; torchrun sets it: unset it for a single process"
            )
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    alone = world_size == 1 and "TORCHELASTIC_RUN_ID" not in os.environ
    if alone or "MASTER_ADDR" not in os.environ or "RANK" not in os.environ or _current.heartbeat is not None:
        return
    rank = int(os.environ["RANK"])
    if rank > 0:  # rank 0 prints for all
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        sys.stderr = sys.stdout
    with _torch_distributed() as distributed:
        store, _, _ = next(distributed.rendezvous("env://", timeout=timedelta(seconds=START)))
        store.set_timeout(PATIENCE)
        heartbeat = Heartbeat(store, rank, world_size)
    local_rank, local_world_size = os.environ.get("LOCAL_RANK", "0"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    _current = Ranks(rank, world_size, int(local_rank), int(local_world_size))
    _current.heartbeat = heartbeat


def finish() -> None:
    """Wait until all ranks have finished. Raises RankError if one of them failed instead."""
    if _current.heartbeat is None:
        return
    _current.heartbeat.finish()
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def report_failure(error: BaseException, code: int, message: str) -> tuple[int, str | None]:
    """Report a failure to all ranks. Returns the run's exit code, and the message, which is None if another rank prints it."""
    if (heartbeat := _current.heartbeat) is None:
        return code, message
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # this process exits anyway
    # After a kill the other ranks see a broken connection, or SIGTERM from torchrun: name the killed rank instead.
    if isinstance(error, RankError | Interrupted) and (lost := heartbeat.missing()):
        code, message = RankError.exit_code, f"{named(lost)} died without a message: killed, or its machine is lost"
    failure, must_print = heartbeat.report_failure(code, message)
    if must_print:
        sys.stderr = sys.__stderr__
    return failure.code, failure.message if must_print else None


def exit_group(code: int) -> None:
    """Exit after a failure, once the other ranks had a moment to exit; return at once in a single process."""
    if _current.heartbeat is None:
        return
    from torch import distributed

    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()  # ranks that wait for this one get an error
    _current.heartbeat.leave()
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
        raise RankError(f"another rank of this run cannot be reached: {reason}") from None
