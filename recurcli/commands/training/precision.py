"""Decides `runtime.precision: auto` by a few timed steps, on a CPU that multiplies bf16 in hardware.

A training keeps its first precision. A resume reads it from the newest checkpoint and times nothing.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

import numpy as np
import torch

from recurcli.commands.training.setup import TrainingSetup
from recurcli.distributed.group import SINGLE_PROCESS
from recurcli.events import Note
from recurcli.model.device import SettledPrecision
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.checkpoint import stored_facts
from recurcli.training.fit import TrainingLoop, compute_gradients, seed_step

FEWEST_STEPS = 50
"""The number of steps of a training below which nothing is timed."""
SECONDS, SHARE = 0.5, 0.02
"""The CPU seconds of a thread, and the share of the training's time, that the timing may take. The larger of the two counts."""
ROUNDS, OBVIOUS = 5, 1.2
"""The timing ends after SECONDS if each precision has taken ROUNDS steps, or if one is OBVIOUS times as fast as the other."""
CLEARLY = 1.03
"""The ratio of the speeds of bf16 and fp32 above which bf16 is chosen, because fp32 is exact. The value is ours."""
BATCHES = 50
"""The number of batches at the start of the training from which a typical one is timed."""

Timed = Callable[[TrainingLoop, np.ndarray], float]


@dataclass(frozen=True)
class Timing:
    """Median seconds of a step in each precision."""

    fp32: float
    bf16: float

    @property
    def faster(self) -> SettledPrecision:
        """The faster precision. It is fp32 unless bf16 is CLEARLY times as fast."""
        return "bf16" if self.fp32 > CLEARLY * self.bf16 else "fp32"

    @property
    def ratio(self) -> float:
        """The speed of the faster precision over that of the other one, at least 1."""
        return max(self.fp32 / self.bf16, self.bf16 / self.fp32)

    def in_words(self) -> str:
        """Return text with the faster precision and the ratio."""
        other = "fp32" if self.faster == "bf16" else "bf16"
        speed = f"{self.ratio:.2f} times" if self.ratio > CLEARLY else "about"
        return f"{self.faster}, {speed} as fast as {other} here"


def resolve_precision(setup: TrainingSetup) -> Generator[Note, None, TrainingSetup]:
    """Return `setup` with the precision of its training; yields a note on the timing.

    All ranks must call it. Rank 0 decides for all ranks that have `auto`.
    """
    request, loop, runtime = setup.request, setup.loop, setup.request.resolved.preset.runtime
    if request.dry_run and loop.ranks.world_size > 1:  # which are not connected
        return setup
    found, auto = loop.precision, runtime.precision == "auto"
    if auto and loop.ranks.is_main and loop.device.type == "cpu" and found == "bf16":
        if setup.status != "new" and (facts := stored_facts(RunDirectory(request.output).checkpoints)):
            found = "fp32" if facts.get("precision") == "fp32" else "bf16"
        elif request.time_precision and not runtime.compile:  # compiling for both takes longer than a timing may
            started = time.perf_counter()
            if timing := time_precisions(loop):
                found = timing.faster
                seconds = time.perf_counter() - started
                yield Note(f"runtime.precision auto: {timing.in_words()} ({seconds:.1f} s of timing)")
    found = loop.ranks.broadcast(found)
    return replace(setup, loop=replace(loop, precision=found)) if auto else setup


def time_precisions(loop: TrainingLoop, timed: Timed | None = None) -> Timing | None:
    """Return the median seconds of a step of `loop` in each precision; None if the training is too short to time any.

    The steps take one typical batch, in both precisions by turns. `timed` returns the seconds of a step; None means
    `step_seconds`. Afterwards the model has no gradients, and torch's generator on the CPU has its earlier state.
    """
    timed = timed or step_seconds
    if loop.total_steps < FEWEST_STEPS:
        return None
    rows = _typical_batch(loop)[:: loop.ranks.world_size]
    fp32, bf16 = (replace(loop, ranks=SINGLE_PROCESS, precision=name) for name in ("fp32", "bf16"))
    with torch.random.fork_rng(devices=[]):
        spent = timed(bf16, rows)
        enough = SECONDS * torch.get_num_threads()
        limit = max(enough, SHARE * loop.total_steps * spent)
        if 4 * spent > limit:
            return None
        spent += timed(fp32, rows)  # the first steps are slower than all others
        turns: list[tuple[float, float]] = []
        while True:
            turns.append((timed(fp32, rows), timed(bf16, rows)))
            spent += sum(turns[-1])
            timing = Timing(*(median(seconds) for seconds in zip(*turns, strict=True)))
            settled = spent >= enough and (timing.ratio > OBVIOUS or len(turns) >= ROUNDS)
            if settled or spent + timing.fp32 + timing.bf16 > limit:
                return timing


def step_seconds(loop: TrainingLoop, rows: np.ndarray) -> float:
    """Return the CPU seconds of a forward and a backward pass on one batch. `rows` are the indices of its training rows."""
    started = time.process_time()
    loop.model.train()
    compute_gradients(loop, rows, seed_step(loop.seed, 0))
    seconds = time.process_time() - started
    loop.model.zero_grad()
    return seconds


def _typical_batch(loop: TrainingLoop) -> np.ndarray:
    """Return the row indices of the full batch whose longest row is nearest to the mean of the longest rows."""
    batches = list(islice(loop.batches(0), min(BATCHES, loop.steps_per_epoch)))
    full = [rows for rows in batches if len(rows) == max(map(len, batches))]
    longest = np.array([loop.objective.lengths[rows].max() for rows in full])
    return full[int(np.abs(longest - longest.mean()).argmin())]
