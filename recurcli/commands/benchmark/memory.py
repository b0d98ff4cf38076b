"""Measures the peak memory of a candidate, and estimates whether a setting fits in memory.

On a GPU the peak is that of torch's allocator. On a CPU, torch's profiler reports each allocation and release of a tensor,
and the peak is the largest sum of them. This peak repeats exactly. It leaves out the interpreter and the buffers of oneDNN
and BLAS. The resident size of the process would include them, and what earlier candidates have left in malloc's free lists.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from recurcli.commands.benchmark.request import Setting
from recurcli.commands.benchmark.workload import Workload

FIRST_LENGTH = 64
"""The number of tokens of the row with which an estimate starts. Such a row needs little memory in every encoder."""
SHARE = 0.8
"""The share of the available memory that a candidate may take. The rest covers an estimate that is about a tenth too low."""
MEMINFO = Path("/proc/meminfo")


class MemoryMeter:
    """Measures the memory of the tensors that calls of `peak` have made, in bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.live = 0
        """The number of bytes of these tensors that exist now."""
        self._before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def peak(self, run: Callable[[], object]) -> int:
        """Call `run` and return the largest number of bytes that existed at one time, with those of earlier calls."""
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
    """Return the number of bytes that this process can still allocate on the device.

    On a GPU, this includes the free memory that torch's allocator holds. On a CPU, it is MemAvailable of /proc/meminfo, or
    the whole memory of a machine without that file.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return torch.cuda.mem_get_info(device)[0] + kept
    if MEMINFO.is_file():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def estimated_peak(work: Workload, meter: MemoryMeter, setting: Setting, limit: int) -> int:
    """Return an estimate of the peak memory in bytes of a step of the setting, from steps of one and two rows.

    Memory is assumed to grow linearly with the number of rows, and at most quadratically with the length. The length is
    doubled in each measurement. An estimate above `limit` is returned at once.
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
