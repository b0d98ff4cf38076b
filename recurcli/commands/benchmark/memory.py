"""Peak memory of a candidate, and whether a setting fits in the machine before it is tried.

On a GPU the peak is that of torch's allocator. The CPU has the same figure here: torch's profiler reports each tensor memory
that is allocated and freed, and the largest sum of those is the peak. It is exact and repeats, and leaves out what is not
torch's: the interpreter, and the buffers of oneDNN and BLAS. The resident size of the process would hold both, and whatever
the candidates before have left in malloc's free lists.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from recurcli.commands.benchmark.request import Setting
from recurcli.commands.benchmark.workload import Workload

FIRST_LENGTH = 64
"""Tokens of the one row that is tried first; its memory is small whatever the encoder is."""
SHARE = 0.8
"""Share of the available memory that a candidate may take; the rest is for what an estimate falls short, a tenth or so."""
MEMINFO = Path("/proc/meminfo")


class MemoryMeter:
    """Counts the bytes of the tensors that are made in `peak`, from the construction of the meter on."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.live = 0
        """Bytes of the tensors that live now."""
        self._before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def peak(self, run: Callable[[], object]) -> int:
        """Call `run`, and return the largest number of bytes that lived at one time."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            run()
            torch.cuda.synchronize(self.device)
            self.live = torch.cuda.memory_allocated(self.device) - self._before
            return torch.cuda.max_memory_allocated(self.device) - self._before
        with profile(profile_memory=True) as trace:
            run()
        assert trace.kineto_results is not None
        changes = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
        most = self.live
        for change in sorted(changes, key=lambda event: event.start_ns()):
            self.live += change.nbytes()
            most = max(most, self.live)
        return most


def available_memory(device: torch.device) -> int:
    """Return the bytes that a process can still take: of the GPU, or of the machine."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return torch.cuda.mem_get_info(device)[0] + kept
    if MEMINFO.is_file():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def estimated_peak(work: Workload, meter: MemoryMeter, setting: Setting, limit: int) -> int:
    """Return about the peak memory in bytes of a step of the setting, from steps of one and two rows.

    Memory grows linearly with the rows, and at most with the square of the length, which is doubled step by step. Returns as
    soon as an estimate is above `limit`.
    """

    def peak_of(rows: int, length: int) -> int:
        return meter.peak(lambda: work.step_at(rows, length))

    length = min(FIRST_LENGTH, setting.length)
    least = peak_of(1, 1)
    one = peak_of(1, length)
    while length < setting.length:
        longer = min(2 * length, setting.length)
        needed = one + round((one - least) * ((longer / length) ** 2 - 1))
        if needed > limit:
            return needed
        length, one = longer, peak_of(1, longer)
    if setting.batch_size == 1:
        return one
    needed = 2 * one - least
    return needed if needed > limit else one + (peak_of(2, length) - one) * (setting.batch_size - 1)
