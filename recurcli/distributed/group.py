"""The processes of one run, as torchrun starts them: what they tell each other, and how they end together.

`current()` is what a command asks for. In one process it is SINGLE_PROCESS, whose methods give back what they got: nothing is
imported, nothing is sent. Only numbers and JSON travel, never a pickle.
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
"""How long one process waits for another: as long as that lives, which `liveness` sees to."""
SHORT = 504
"""Bytes of a message that needs one exchange only."""


class Ranks:
    """This process, number `rank` of `size`, and number `local_rank` of `local_size` on its machine."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, local_size: int = 1) -> None:
        self.rank, self.world_size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.is_main = rank == 0
        """Whether this is the process that writes files and prints."""

    def connect(self, device: "torch.device") -> None:
        """Make the other processes reachable for what lies on `device`: gloo, and nccl for CUDA."""
        import torch
        from torch import distributed

        if self.world_size == 1 or distributed.is_initialized():
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        assert _heartbeat is not None
        with _talking(), _stdout_aside():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=_heartbeat.store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=PATIENCE,
            )

    def all_gather(self, value: Any) -> list[Any]:
        """The `value` (JSON) of every process, in the order of their ranks."""
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
        """The `value` (JSON) of the first process; the others wait for it."""
        return self.all_gather(value if self.is_main else None)[0]

    def all_reduce(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sum of each value over the processes that have it."""
        total: dict[str, float] = {}
        for some in self.all_gather(dict(values)):
            for name, value in some.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def all_reduce_(self, tensors: Sequence["Tensor"]) -> None:
        """Make each tensor the sum of all processes' ones: in one message, as each has its price."""
        if self.world_size == 1 or not tensors:
            return
        import torch
        from torch import distributed

        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _talking():
            distributed.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def broadcast_(self, tensors: Sequence["Tensor"]) -> None:
        """Make each tensor what the first process has."""
        if self.world_size == 1:
            return
        from torch import distributed

        for tensor in tensors:
            with _talking():
                distributed.broadcast(tensor, 0)

    def combine(self, scores: "np.ndarray") -> "np.ndarray":
        """One array of what the processes have filled in: each place by one of them, zero elsewhere; bit for bit."""
        if self.world_size == 1:
            return scores
        import torch
        from torch import distributed

        bits = torch.from_numpy(scores).view(torch.int64)  # sums of floats would lose the sign of a zero
        with _talking():
            distributed.all_reduce(bits)
        return bits.view(torch.float64).numpy()

    def mark_started(self) -> None:
        """Remember for restarts by torchrun that this run is on the disk: they go on with it."""
        if _heartbeat is not None:
            _heartbeat.mark_started()

    def was_started(self) -> bool:
        """Whether torchrun has restarted a run that had got as far as `begin`."""
        return _heartbeat is not None and _heartbeat.was_started()

    def _gathered(self, message: bytes) -> list[bytes]:
        """The messages of all processes, which have one length."""
        import torch
        from torch import distributed

        own = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        parts = [torch.empty_like(own) for _ in range(self.world_size)]
        with _talking():
            distributed.all_gather(parts, own)
        return [part.numpy().tobytes() for part in parts]


SINGLE_PROCESS = Ranks()
_current = SINGLE_PROCESS
_heartbeat: Heartbeat | None = None


def current() -> Ranks:
    """The processes that this one was started with."""
    return _current


def join() -> None:
    """Find the other processes, if torchrun (or what sets the same variables) has started any.

    Raises RankError if one of them does not come.
    """
    global _current, _heartbeat
    for name in ("RANK", "WORLD_SIZE"):
        if not (value := os.environ.get(name, "1")).isdecimal():
            raise UsageError(
                f"{name} is '{escaped(value)}', no number; torchrun sets it, and one process needs none: unset it"
            )
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if "MASTER_ADDR" not in os.environ or "RANK" not in os.environ:
        return
    if (size == 1 and "TORCHELASTIC_RUN_ID" not in os.environ) or _heartbeat is not None:
        return
    rank = int(os.environ["RANK"])
    if rank > 0:  # one of them speaks for all
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
        sys.stderr = sys.stdout
    from torch import distributed

    with _talking():
        store, _, _ = next(distributed.rendezvous("env://", timeout=timedelta(seconds=START)))  # type: ignore[attr-defined]
        store.set_timeout(PATIENCE)
        _heartbeat = Heartbeat(store, rank, size, node=os.environ.get("GROUP_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    _current = Ranks(rank, size, int(os.environ.get("LOCAL_RANK", "0")), local_size)


def finish() -> None:
    """Wait until the commands of all processes have done their work; RankError if one of them failed instead."""
    if _heartbeat is None:
        return
    if verdict := _heartbeat.finish():
        raise RankError(verdict.message)
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def report_failure(error: BaseException, code: int, message: str) -> tuple[int, str | None]:
    """Make the failure of this process that of all: the exit code and the message, None if another one tells it."""
    if _heartbeat is None:
        return code, message
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the end has begun
    # A process that was killed shows itself by a broken connection, or by torchrun's SIGTERM to the others.
    if isinstance(error, RankError | Interrupted) and (lost := _heartbeat.missing()):
        code, message = RankError.exit_code, f"{named(lost)} ended without a word: killed, or its machine is lost"
    verdict, tells = _heartbeat.report_failure(code, message)
    if tells:
        sys.stderr = sys.__stderr__
    return verdict.code, verdict.message if tells else None


def exit_group(code: int) -> None:
    """End this process, after a failure and after giving the others a moment; in one process, do nothing."""
    if _heartbeat is None:
        return
    from torch import distributed

    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()  # whoever waits for this process is told so
    _heartbeat.leave()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)  # the interpreter's own end would wait for what a lost process still owes


@contextlib.contextmanager
def _stdout_aside() -> Iterator[None]:
    """Send to stderr what gloo prints of its connections (until torch 2.12): stdout is for results."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _talking() -> Iterator[None]:
    """Turn what torch says of a broken connection into a RankError."""
    try:
        yield
    except RuntimeError as error:
        reason = escaped(str(error).partition(". This is typically")[0], limit=300)
        raise RankError(f"another process of this run cannot be reached: {reason}") from None
