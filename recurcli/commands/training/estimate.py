"""Estimates the duration of a training from a few timed steps for a dry run. No file is written."""

import time
from typing import Any

import torch

from recurcli.errors import NumericError
from recurcli.evaluation.report import Evaluation
from recurcli.training.fit import TrainingLoop, take_step

UNTIMED_STEPS, TIMED_STEPS, LONGEST = 2, 20, 5.0
"""The first steps are slower and not timed. The timing ends after TIMED_STEPS steps, or after LONGEST seconds."""
TIMED_BATCHES = 4
"""The number of timed batches of dev rows."""


def estimate(loop: TrainingLoop, dev: Evaluation | None) -> dict[str, Any] | None:
    """Return the estimated seconds of the training, with those of a step and of an evaluation and the numbers of both.

    The model of `loop` is trained for some steps and is then of no other use. torch's generator on the CPU keeps its state.
    Returns None for a loss that is not finite, and for several processes, whose steps must be taken together.
    """
    if loop.ranks.world_size > 1:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            step = _seconds_per_step(loop)
            token = 0.0 if dev is None else _seconds_per_token(dev)
    except NumericError:
        return None
    found: dict[str, Any] = {"seconds": step * loop.total_steps, "steps": loop.total_steps, "seconds_per_step": step}
    if dev is not None:
        evaluations = -(-loop.total_steps // (loop.evaluate_every or loop.steps_per_epoch))
        found |= {"evaluations": evaluations, "seconds_per_evaluation": token * dev.tokens, "patience": loop.patience}
        found["seconds"] += token * (
            dev.tokens * evaluations + dev.last_tokens
        )  # the chosen model is evaluated once more
    return found


def _seconds_per_step(loop: TrainingLoop) -> float:
    """Return the mean seconds of a step. The steps take the first batches of the training, whose rows are in random order."""
    state, batches, seconds = loop.state, loop.batches(0), 0.0
    for _ in range(min(UNTIMED_STEPS, loop.total_steps - 1)):
        take_step(loop, next(batches))
    first = state.step
    while state.step < min(first + TIMED_STEPS, loop.total_steps) and seconds < LONGEST:
        started = time.perf_counter()
        take_step(loop, next(batches))
        seconds += time.perf_counter() - started
    return seconds / (state.step - first)


def _seconds_per_token(dev: Evaluation) -> float:
    """Return the seconds of an evaluation for each token. It is timed the second time: first torch prepares for the lengths."""
    dev.evaluate_partly(TIMED_BATCHES)
    started = time.perf_counter()
    tokens = dev.evaluate_partly(TIMED_BATCHES)
    return (time.perf_counter() - started) / tokens
