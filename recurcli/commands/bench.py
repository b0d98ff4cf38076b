"""`recur bench`: speed and peak memory of encoders beside torch's TransformerEncoder and Hugging Face's BERT.

The candidates of a setting are timed in interleaved rounds. What is timed is a training step, or a forward pass, on random
embeddings. Every row has T tokens, so there is no padding. Shapes: B rows, T positions, D hidden size.

On a GPU the peak is that of torch's allocator. On a CPU, torch's profiler reports each allocation and release of a tensor,
and the peak is the largest sum of them. This peak repeats exactly. It leaves out the interpreter and the buffers of oneDNN
and BLAS. The resident size of the process would include them, and what earlier candidates have left in malloc's free lists.
"""

import gc
import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.profiler import profile

from recurcli.commands.bench_candidates import Candidate, encoder_candidates, peer_candidates, shapes
from recurcli.config import FinetuningConfig
from recurcli.device import Precision, autocast, choose_device, choose_precision
from recurcli.errors import is_lack_of_memory, pluralize
from recurcli.layers import computed_once
from recurcli.log import Log, Measured
from recurcli.requests.bench import BenchRequest
from recurcli.requirements import unmet
from recurcli.training.fit import AdamWWithSparseRows

LEARNING_RATE, WEIGHT_DECAY = 1e-4, 0.01
MIN_SECONDS, MAX_STEPS = 0.1, 50
"""The least time of a candidate's turn, and the largest number of steps in it. A single short step would be lost in the
noise of the clock."""


@dataclass(frozen=True)
class Setting:
    """The mode, the precision and the sizes that all candidates of one comparison share."""

    mode: str
    """training or inference."""
    precision: Literal["fp32", "bf16"]
    hidden_size: int | None
    """The width of all candidates. None if each one has its own (`--match-parameters`)."""
    num_layers: int
    batch_size: int
    length: int

    def to_json(self) -> dict[str, Any]:
        """Return the setting for `--json`, with the number of tokens of a step."""
        return {**vars(self), "tokens": self.batch_size * self.length}


def bench(request: BenchRequest, log: Log) -> dict[str, Any]:
    """Measure each setting of the request.

    Raises UsageError before the first measurement if an encoder, a preset or the device is unknown, or if an encoder cannot
    have a width, a depth or a dropout.
    """
    device = choose_device(request.device)
    peers = peer_candidates if request.peers else lambda request, shape: ()
    found = {shape: [*encoder_candidates(request, shape), *peers(request, shape)] for shape in shapes(request)}
    if request.peers and (lacking := unmet("hf")):
        log.note(f"Hugging Face's BERT is no peer: it needs {lacking['transformers']}: pip install 'recurcli[hf]'")
    precisions = dict.fromkeys(choose_precision(cast(Precision, name), device) for name in request.words("precision"))
    numbers = (request.numbers("batch_size"), request.numbers("length"))
    settings = [
        (shape, Setting(mode, precision, shape.hidden_size, shape.num_layers, rows, length))
        for mode, precision, shape, rows, length in itertools.product(
            request.words("mode"), precisions, found, *numbers
        )
    ]
    results, threads, gpu = [], torch.get_num_threads(), device.type == "cuda"
    torch.set_num_threads(1)  # CPU time would also count the waiting of other threads
    try:
        for number, (shape, setting) in enumerate(settings, 1):
            log.note(f"{number} of {len(settings)}: {in_words(setting.to_json())}")
            results.append(measure(setting, found[shape], request.rounds, device))
            for out in results[-1]["left_out"]:
                log.warn(f"{out['name']}, {in_words(setting.to_json())}: left out: {out['reason']}")
            log.progress(Measured(results[-1]))
    finally:
        torch.set_num_threads(threads)
    return {
        "machine": {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(device) if gpu else f"cpu ({torch.backends.cpu.get_cpu_capability()})",
            "cores": os.cpu_count(),
            "threads": 1,
            "load_average": round(os.getloadavg()[0], 2),
        },
        "clock": "CUDA events" if gpu else "CPU time",
        "rounds": request.rounds,
        "dropout": next(iter(found)).dropout,
        "attention_dropout": request.attention_dropout,
        "match_parameters": request.match_parameters,
        "settings": results,
    }


def in_words(setting: Mapping[str, Any]) -> str:
    """Return the mode, precision, sizes and length of a setting as text."""
    width = "" if setting["hidden_size"] is None else f" of {setting['hidden_size']}"
    layers = pluralize(setting["num_layers"], "layer") + width
    return f"{setting['mode']}, {setting['precision']}, {layers}, B {setting['batch_size']}, T {setting['length']}"


class Workload:
    """A candidate with its optimizer and its input. `recur bench` times its `step`.

    Under bf16 the encoders have fp32 weights and use autocast, as in `recur`. In inference the peers have bf16 weights
    instead, because that is faster for them.
    """

    def __init__(self, candidate: Candidate, setting: Setting, device: torch.device) -> None:
        torch.manual_seed(0)
        self.candidate = candidate
        self.peak_memory = 0
        """The peak of a step in bytes."""
        self.steps_per_round = 1
        self.rounds: list[float] = []
        """The seconds of a step in each round."""
        self.training = setting.mode == "training"
        self.device = device
        self.model = candidate.build(setting.length).to(device).train(self.training)
        half = setting.precision == "bf16" and not self.training and candidate.is_peer
        self.dtype = torch.bfloat16 if half else torch.float32
        self.precision = "fp32" if half else setting.precision
        self.model = self.model.to(self.dtype)
        if self.training:
            self.optimizer = AdamWWithSparseRows(
                self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
            )
        shape = (setting.batch_size, setting.length, candidate.hidden_size)
        self.x = torch.randn(shape, device=device, dtype=self.dtype).requires_grad_(self.training)
        self.wanted = torch.randn(shape, device=device) if self.training else None

    def step(self) -> None:
        """Take one training step, or one forward pass."""
        if self.wanted is None:
            with torch.inference_mode(), autocast(self.device, self.precision):
                self.model(self.x)
            return
        with autocast(self.device, self.precision), computed_once():
            states: Tensor = self.model(self.x)
            auxiliary = self.model.auxiliary_losses(self.x)
            loss = sum(auxiliary.values(), F.mse_loss(states.float(), self.wanted))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), FinetuningConfig().max_grad_norm or 1.0).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.x.grad = None
        with torch.no_grad():
            self.model.project_()


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
        # Private to torch, whose public events have the sum of an operator alone: a rename breaks these lines.
        assert trace.kineto_results is not None
        changes = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
        most = self.live
        for change in sorted(changes, key=lambda event: event.start_ns()):
            self.live += change.nbytes()
            most = max(most, self.live)
        return most


def measure(setting: Setting, candidates: Sequence[Candidate], rounds: int, device: torch.device) -> dict[str, Any]:
    """Return the setting with the results of its candidates, as `recur bench --json` prints it.

    Times are in seconds per step, memory in bytes. `rounds` is the number of turns of each candidate. `left_out` lists the
    name and the reason of each candidate that does not fit in memory. `ratio` is that of the tokens/s to those of the best
    peer; without peers it is None.
    """
    works: list[Workload] = []
    left_out = []
    for candidate in candidates:
        try:
            works.append(_prepare(candidate, setting, device))
        except (MemoryError, RuntimeError) as error:
            if not is_lack_of_memory(error):
                raise
            left_out.append({"name": candidate.name, "reason": "the memory is full"})
    for work in works:
        seconds = max(seconds_of(work.step, 1, device), 1e-9)
        work.steps_per_round = min(MAX_STEPS, max(1, math.ceil(MIN_SECONDS / seconds)))
    for number in range(rounds):
        first = number % max(1, len(works))  # each round starts with the next one, so none is always first
        for work in works[first:] + works[:first]:
            work.rounds.append(seconds_of(work.step, work.steps_per_round, device) / work.steps_per_round)
    results = [_result(work, setting) for work in works]
    works.clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    peers = [result for result in results if result["is_peer"]]
    best = max(peers, key=lambda peer: peer["tokens_per_second"], default=None)
    for result in results:
        result["ratio"] = result["tokens_per_second"] / best["tokens_per_second"] if best else None
    return {**setting.to_json(), "best_peer": best and best["name"], "candidates": results, "left_out": left_out}


def _result(work: Workload, setting: Setting) -> dict[str, Any]:
    low, middle, high = (float(value) for value in np.quantile(work.rounds, (0.25, 0.5, 0.75)))
    return {
        "name": work.candidate.name,
        "is_peer": work.candidate.is_peer,
        "hidden_size": work.candidate.hidden_size,
        "num_layers": work.candidate.num_layers,
        "parameters": work.candidate.parameters,
        "tokens_per_second": setting.batch_size * setting.length / middle,
        "seconds_per_step": middle,
        "interquartile_range": high - low,
        "rounds": work.rounds,
        "steps_per_round": work.steps_per_round,
        "peak_memory_bytes": work.peak_memory,
    }


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


def _prepare(candidate: Candidate, setting: Setting, device: torch.device) -> Workload:
    """Build the workload and run two of its steps, of which the second has the peak memory of all later ones."""
    meter = MemoryMeter(device)
    made: list[Workload] = []
    meter.peak(lambda: made.append(Workload(candidate, setting, device)))
    meter.peak(made[0].step)  # makes the moments of the optimizer
    made[0].peak_memory = meter.peak(made[0].step)
    return made[0]
