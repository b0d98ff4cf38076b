"""Times the candidates of one setting in interleaved rounds, and compares them with the peers."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from recurcli.commands.benchmark.candidates import Candidate
from recurcli.commands.benchmark.memory import SHARE, MemoryMeter, available_memory, estimated_peak
from recurcli.commands.benchmark.request import Setting
from recurcli.commands.benchmark.workload import Workload
from recurcli.errors import is_lack_of_memory

MIN_SECONDS, MAX_STEPS = 0.1, 50
"""The least time of a candidate's turn, and the largest number of steps in it. A single short step would be lost in the
noise of the clock."""


def measure(setting: Setting, candidates: Sequence[Candidate], rounds: int, device: torch.device) -> dict[str, Any]:
    """Return the setting with the results of its candidates, as `recur bench --json` prints it.

    Times are in seconds per step, memory in bytes. `rounds` is the number of turns of each candidate. `left_out` lists the
    name and the reason of each candidate that does not fit in memory.
    """
    works: dict[str, Workload] = {}
    peaks: dict[str, int] = {}
    left_out = []
    for candidate in candidates:
        work, peak, reason = _prepare(candidate, setting, device)
        if work is None:
            left_out.append({"name": candidate.name, "reason": reason})
        else:
            works[candidate.name], peaks[candidate.name] = work, peak
    steps = {name: _steps_a_turn(seconds_of(work.step, 1, device)) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name in order(list(works), number):
            seconds[name].append(seconds_of(works[name].step, steps[name], device) / steps[name])
    works.clear()
    release(device)
    results: list[dict[str, Any]] = []
    for candidate in candidates:
        if candidate.name in seconds:
            results.append(_result(candidate, setting, seconds[candidate.name]))
            results[-1] |= {"steps_per_round": steps[candidate.name], "peak_memory_bytes": peaks[candidate.name]}
    return {**setting.to_json(), **compare(results), "left_out": left_out}


def order(names: Sequence[str], number: int) -> list[str]:
    """Return the order of the names in round `number`. Each round starts with the next name, so none is always first."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def seconds_of(step: Callable[[], None], count: int, device: torch.device) -> float:
    """Return the time of `count` steps in seconds: CPU time of the process or, on a GPU, the time between two CUDA events."""
    if device.type == "cuda":
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        started.record(torch.cuda.current_stream(device))
        for _ in range(count):
            step()
        ended.record(torch.cuda.current_stream(device))
        torch.cuda.synchronize(device)
        return started.elapsed_time(ended) / 1000
    begun = time.process_time()
    for _ in range(count):
        step()
    return time.process_time() - begun


def compare(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the results with their ratios of tokens/s to the best peer, and to the fastest form of each family.

    Without peers, `best_peer` and each `ratio` are None, and `ratios` is empty.
    """
    best: dict[str, dict[str, Any]] = {}
    for result in results:
        family = result["family"]
        if (
            family is not None
            and result["tokens_per_second"] > best.get(family, {"tokens_per_second": 0.0})["tokens_per_second"]
        ):
            best[family] = result
    peer = max(best.values(), key=lambda result: result["tokens_per_second"], default=None)

    def ratio(result: dict[str, Any], other: dict[str, Any]) -> float:
        return result["tokens_per_second"] / other["tokens_per_second"]

    compared = [
        {
            **result,
            "ratio": None if peer is None else ratio(result, peer),
            "ratios": {family: ratio(result, other) for family, other in best.items()},
        }
        for result in results
    ]
    return {"best_peer": None if peer is None else peer["name"], "candidates": compared}


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread inside the block. CPU time would also count the waiting of other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def release(device: torch.device) -> None:
    """Free the memory that earlier candidates have left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _prepare(candidate: Candidate, setting: Setting, device: torch.device) -> tuple[Workload | None, int, str]:
    """Return the candidate after one step of the setting, its peak memory in bytes, and the reason why it is left out.

    If it is left out, the first is None and the second 0; else the reason is empty.
    """
    limit = round(SHARE * available_memory(device))
    meter = MemoryMeter(device)
    made: list[Workload] = []
    try:
        meter.peak(lambda: made.append(Workload(candidate, setting, device)))
        (work,) = made
        needed = estimated_peak(work, meter, setting, limit)
        if needed > limit:
            return None, 0, f"it needs about {needed / 1e9:,.1f} GB, and {limit / 1e9:,.1f} GB may be taken"
        peak = meter.peak(lambda: work.step_at(setting.batch_size, setting.length))
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        return None, 0, "the memory is full"
    return work, peak, ""


def _steps_a_turn(seconds: float) -> int:
    return min(MAX_STEPS, max(1, math.ceil(MIN_SECONDS / max(seconds, 1e-9))))


def _result(candidate: Candidate, setting: Setting, seconds: Sequence[float]) -> dict[str, Any]:
    low, middle, high = (float(value) for value in np.quantile(seconds, (0.25, 0.5, 0.75)))
    return {
        "name": candidate.name,
        "family": candidate.family,
        "hidden_size": candidate.hidden_size,
        "num_layers": candidate.num_layers,
        "parameters": candidate.parameters,
        "tokens_per_second": setting.batch_size * setting.length / middle,
        "seconds_per_step": middle,
        "interquartile_range": high - low,
        "rounds": list(seconds),
    }
