"""Commands under torchrun: started, watched and ended as a user's are."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tiny_task import tiny


def command(*arguments: object, ranks: int = 2, launcher: tuple[str, ...] = ("--standalone",)) -> list[str]:
    """The command line that runs `recur` with `arguments` in several processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", *launcher, "--nproc-per-node", str(ranks)]
    return [*torchrun, "-m", "recurcli", *map(str, arguments)]


def finetuning(data: Path, output: Path, *more: str, name: str = "finetune") -> list[object]:
    """A training of a few seconds, without dropout: its sums do not depend on the number of processes."""
    settings = tiny("encoder.dropout=0", "embedding.dropout=0", *more)
    return [name, "--preset", "starsaber-tnews", "--data", data, "--output", output, "--keep-checkpoints", *settings]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def completed(line: list[str], **more: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(line, capture_output=True, check=False, timeout=120, env=environment(), **more)  # type: ignore[call-overload]


@contextlib.contextmanager
def started(line: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """The running command; what is left of it at the end of the block is killed, its workers too."""
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            for pid in [*workers(process).values(), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def workers(process: "subprocess.Popen[bytes]") -> dict[int, int]:
    """Rank to process id of what torchrun has started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process.pid:
                pairs = (entry.partition("=") for entry in (folder / "environ").read_text().split("\0"))
                found[int({name: value for name, _, value in pairs}.get("RANK", "x"))] = int(folder.name)
    return found


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def has_checkpoint(run: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the run has written its first checkpoint and a few steps more."""
    wait_until(lambda: list(run.glob("checkpoints/step-*")) or process.poll() is not None)
    time.sleep(0.2)


def told(err: bytes) -> list[str]:
    """The last lines of recur among all that torchrun says."""
    found = re.findall(
        "recur: (?:error: |stopped by ).*", err.decode()
    )  # another process may not have ended its own line
    assert found, err.decode()
    return found
