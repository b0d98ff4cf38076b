"""The ranks of one run, as torchrun starts them: collectives, and an exit that all ranks share.

Commands call `current()`. Without torchrun it returns SINGLE_PROCESS, whose collectives return their argument and import
nothing. Collectives send numbers and JSON, never a pickle.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
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
SHORT = 504
"""Bytes of JSON that `all_gather` sends in one exchange; longer values need a second one."""


class Ranks:
    """This process as rank `rank` of `world_size`, and as `local_rank` of `local_world_size` on its machine.

    `broadcast`, `all_gather` and `all_reduce` take JSON values and return the result; `broadcast_` and `all_reduce_` take
    tensors and change them in place. Every rank must call the same collectives in the same order. They raise RankError if
    the connection to another rank breaks.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, local_rank: int = 0, local_world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self.is_main = rank == 0
        """Whether this is rank 0, which writes the files and prints."""

    def connect(self, device: "torch.device") -> None:
        """Initialise the process group: gloo for tensors on the CPU, nccl for those on CUDA."""
        import torch
        from torch import distributed

        if self.world_size == 1 or distributed.is_initialized():
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        assert _heartbeat is not None
        with _connection_errors(), _stdout_to_stderr():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=_heartbeat.store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=PATIENCE,
            )

    def all_gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every rank, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        own = json.dumps(value).encode()
        heads = self._gathered(len(own).to_bytes(8, "little") + own[:SHORT].ljust(SHORT))
        lengths = [int.from_bytes(head[:8], "little") for head in heads]
        bodies = [head[8:] for head in heads]
        if (longest := max(lengths)) > SHORT:
            bodies = self._gathered(own.ljust(longest))
        return [json.loads(body[:length]) for body, length in zip(bodies, lengths, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Return the JSON `value` of rank 0 on every rank."""
        return self.all_gather(value if self.is_main else None)[0]

    def all_reduce(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sum of each named value over the ranks that have the name."""
        total: dict[str, float] = {}
        for some in self.all_gather(dict(values)):
            for name, value in some.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def all_reduce_(self, tensors: Sequence["Tensor"]) -> None:
        """Sum `tensors` over all ranks, in place, in one message."""
        if self.world_size == 1 or not tensors:
            return
        import torch
        from torch import distributed

        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _connection_errors():
            distributed.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def broadcast_(self, tensors: Sequence["Tensor"]) -> None:
        """Broadcast rank 0's values into `tensors`, in place."""
        if self.world_size == 1:
            return
        from torch import distributed

        for tensor in tensors:
            with _connection_errors():
                distributed.broadcast(tensor, 0)

    def combine(self, values: "np.ndarray") -> "np.ndarray":
        """Return the element-wise union of float64 arrays that are non-zero on one rank each; exact to the bit."""
        if self.world_size == 1:
            return values
        import torch
        from torch import distributed

        bits = torch.from_numpy(values).view(torch.int64)  # sums of floats would lose the sign of a zero
        with _connection_errors():
            distributed.all_reduce(bits)
        return bits.view(torch.float64).numpy()

    def mark_started(self) -> None:
        """Record for later restarts by torchrun that the run is on disk and must be resumed."""
        if _heartbeat is not None:
            _heartbeat.mark_started()

    def was_started(self) -> bool:
        """Whether torchrun restarted the run after `mark_started`."""
        return _heartbeat is not None and _heartbeat.was_started()

    def _gathered(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, which must have one length."""
        import torch
        from torch import distributed

        own = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        parts = [torch.empty_like(own) for _ in range(self.world_size)]
        with _connection_errors():
            distributed.all_gather(parts, own)
        return [part.numpy().tobytes() for part in parts]


SINGLE_PROCESS = Ranks()
_current = SINGLE_PROCESS
_heartbeat: Heartbeat | None = None


def current() -> Ranks:
    """The ranks of this run; SINGLE_PROCESS unless `join` was called under torchrun."""
    return _current


def join() -> None:
    """Connect to torchrun's key-value store and start the heartbeat; do nothing if torchrun's variables are not set.

    Raises UsageError for a variable that is no number, RankError if rank 0 does not start.
    """
    global _current, _heartbeat
    for name in ("RANK", "WORLD_SIZE"):
        if not (value := os.environ.get(name, "1")).isdecimal():
            raise UsageError(
                f"{name} is '{escaped(value)}', not a number; torchrun sets it: unset it for a single process"
            )
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if "MASTER_ADDR" not in os.environ or "RANK" not in os.environ:
        return
    if (world_size == 1 and "TORCHELASTIC_RUN_ID" not in os.environ) or _heartbeat is not None:
        return
    rank = int(os.environ["RANK"])
    if rank > 0:  # rank 0 prints for all
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        sys.stderr = sys.stdout
    from torch import distributed

    with _connection_errors():
        store, _, _ = next(distributed.rendezvous("env://", timeout=timedelta(seconds=START)))  # type: ignore[attr-defined]
        store.set_timeout(PATIENCE)
        _heartbeat = Heartbeat(store, rank, world_size, node=os.environ.get("GROUP_RANK", "0"))
    local_rank, local_world_size = os.environ.get("LOCAL_RANK", "0"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    _current = Ranks(rank, world_size, int(local_rank), int(local_world_size))


def finish() -> None:
    """Wait until all ranks have finished. Raises RankError if one of them failed instead."""
    if _heartbeat is None:
        return
    if failure := _heartbeat.finish():
        raise RankError(failure.message)
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def report_failure(error: BaseException, code: int, message: str) -> tuple[int, str | None]:
    """Report a failure to all ranks. Returns the run's exit code, and the message; None if another rank prints it."""
    if _heartbeat is None:
        return code, message
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # this process exits anyway
    # After a kill the other ranks see a broken connection, or SIGTERM from torchrun: name the killed rank instead.
    if isinstance(error, RankError | Interrupted) and (lost := _heartbeat.missing()):
        code, message = RankError.exit_code, f"{named(lost)} ended without a word: killed, or its machine is lost"
    failure, must_print = _heartbeat.report_failure(code, message)
    if must_print:
        sys.stderr = sys.__stderr__
    return failure.code, failure.message if must_print else None


def exit_group(code: int) -> None:
    """Exit after a failure, once the other ranks had a moment to exit; return at once in a single process."""
    if _heartbeat is None:
        return
    from torch import distributed

    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()  # ranks that wait for this one get an error
    _heartbeat.leave()
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
def _connection_errors() -> Iterator[None]:
    """Turn torch's RuntimeError for a broken connection into a RankError."""
    try:
        yield
    except RuntimeError as error:
        reason = escaped(str(error).partition(". This is typically")[0], limit=300)
        raise RankError(f"another rank of this run cannot be reached: {reason}") from None
