"""Estimates the duration of a training from a few timed steps for a dry run. No file is written."""

import time
from typing import Any

import torch

from recurcli.errors import NumericError
from recurcli.evaluation.report import Evaluation
from recurcli.training.fit import TrainingLoop, take_step

UNTIMED_STEPS, TIMED_STEPS, LONGEST = 2, 20, 5.0
"""The first steps are slower and not timed. The timing ends after TIMED_STEPS steps, or after LONGEST seconds."""
TIMED_BATCHES = 8
"""The number of timed batches of dev rows. A single batch is timed if they would take longer than LONGEST seconds."""


def estimate(loop: TrainingLoop, dev: Evaluation | None) -> dict[str, Any] | None:
    """Return the estimated seconds of the training, with those of a step and of an evaluation and the numbers of both.

    `warm_up_seconds` is the time that the first steps and the first evaluation take in addition. The model of `loop` is
    trained for some steps and is then of no other use. torch's generator on the CPU keeps its state. Returns None for a loss
    that is not finite, and for several processes, whose steps must be taken together.
    """
    if loop.ranks.world_size > 1:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            step, warm_up = _seconds_per_step(loop)
            token, more = (0.0, 0.0) if dev is None else _seconds_per_token(dev)
    except NumericError:
        return None
    found: dict[str, Any] = {"steps": loop.total_steps, "seconds_per_step": step, "warm_up_seconds": warm_up + more}
    seconds = step * loop.total_steps + warm_up + more
    if dev is not None:
        evaluation = token * dev.tokens
        evaluations = -(-loop.total_steps // (loop.evaluate_every or loop.steps_per_epoch))
        found |= {"evaluations": evaluations, "seconds_per_evaluation": evaluation, "patience": loop.patience}
        seconds += evaluation * evaluations + token * dev.last_tokens  # the chosen model is evaluated once more
    return {"seconds": seconds, **found}


def _seconds_per_step(loop: TrainingLoop) -> tuple[float, float]:
    """Return the mean seconds of a step, and the seconds that the untimed steps took in addition.

    The steps take the first batches of the training, whose rows are in random order.
    """
    state, batches, seconds = loop.state, loop.batches(0), 0.0
    started = time.perf_counter()
    for _ in range(min(UNTIMED_STEPS, loop.total_steps - 1)):
        take_step(loop, next(batches))
    first, untimed = state.step, time.perf_counter() - started
    while state.step < min(first + TIMED_STEPS, loop.total_steps) and seconds < LONGEST:
        started = time.perf_counter()
        take_step(loop, next(batches))
        seconds += time.perf_counter() - started
    step = seconds / (state.step - first)
    return step, max(0.0, untimed - first * step)


def _seconds_per_token(dev: Evaluation) -> tuple[float, float]:
    """Return the seconds of an evaluation for each token, and the seconds that the first one takes in addition.

    The rows are evaluated twice, and the second time counts. The first evaluation takes longer, because torch prepares for
    each length of a batch.
    """
    first, second, tokens = _evaluation_times(dev, 1)
    more = max(0.0, first - second)
    if 2 * TIMED_BATCHES * second < LONGEST:
        _, second, tokens = _evaluation_times(dev, TIMED_BATCHES)
    return second / tokens, more


def _evaluation_times(dev: Evaluation, batches: int) -> tuple[float, float, int]:
    """Return the seconds of two evaluations of the same evenly spaced dev rows, and the number of tokens of these rows."""
    ended, tokens = [time.perf_counter()], 0
    for _ in range(2):
        tokens = dev.evaluate_partly(batches)
        ended.append(time.perf_counter())
    return ended[1] - ended[0], ended[2] - ended[1], tokens
