"""How long a training will take, estimated by a dry run from a few timed steps; they write no file."""

import time
from typing import Any

import numpy as np
import torch

from recurcli.commands.training.dev_evaluation import DevEvaluation
from recurcli.commands.training.setup import TrainingSetup
from recurcli.errors import NumericError
from recurcli.evaluation.inference import predict_logits, report_of
from recurcli.tokens.tokenizer import Tokens
from recurcli.training.fit import TrainingLoop, TrainingState, take_step

UNTIMED_STEPS, TIMED_STEPS, LONGEST = 2, 20, 5.0
"""The first steps are slower than all others; the timed ones end after LONGEST seconds, or sooner."""
TIMED_BATCHES = 8
"""Batches of dev rows that are timed."""


def estimate(setup: TrainingSetup) -> dict[str, Any] | None:
    """Return the seconds of all steps and evaluations of the training, and of one of each.

    Trains the model of `setup` for some steps, which is then of no other use; torch's generator on the CPU is left as it
    was. None for several processes, whose steps must be taken together, and for a loss that is not finite.
    """
    loop, dev = setup.loop, setup.dev
    if loop.ranks.world_size > 1:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            step = _seconds_per_step(loop)
            row, report = (0.0, 0.0) if dev is None else _seconds_per_row(dev)
    except NumericError:
        return None
    found: dict[str, Any] = {"steps": loop.total_steps, "seconds_per_step": step}
    seconds = step * loop.total_steps
    if dev is not None:
        evaluation = row * len(dev.dev.tokens) + report
        evaluations = -(-loop.total_steps // (loop.evaluate_every or loop.steps_per_epoch))
        found |= {"evaluations": evaluations, "seconds_per_evaluation": evaluation, "patience": loop.patience}
        last = evaluation if dev.test is None else evaluation + row * len(dev.test.tokens) + report
        seconds += evaluation * evaluations + last  # the chosen model is evaluated once more
    return {"seconds": seconds, **found}


def _seconds_per_step(loop: TrainingLoop) -> float:
    """Return the mean time of the first steps of the training, whose batches are in a random order."""
    state, batches, seconds = TrainingState(), loop.batches(0), 0.0
    for _ in range(min(UNTIMED_STEPS, loop.total_steps - 1)):
        take_step(loop, state, next(batches))
    first = state.step
    while state.step < min(first + TIMED_STEPS, loop.total_steps) and seconds < LONGEST:
        started = time.perf_counter()
        take_step(loop, state, next(batches))
        seconds += time.perf_counter() - started
    return seconds / (state.step - first)


def _seconds_per_row(dev: DevEvaluation) -> tuple[float, float]:
    """Return the time in which the encoder labels a dev row, and the time of the metrics."""
    tokens, size = dev.dev.tokens, dev.inference.batch_size
    rows = np.unique(np.linspace(0, len(tokens) - 1, TIMED_BATCHES * size).astype(np.int64))
    _logits(dev, tokens.take(rows[:size]))
    started = time.perf_counter()
    logits = _logits(dev, tokens.take(rows))
    ended = time.perf_counter()
    report_of(logits, [dev.dev.labels[row] for row in rows], dev.task)
    return (ended - started) / len(rows), time.perf_counter() - ended


def _logits(dev: DevEvaluation, tokens: Tokens) -> np.ndarray:
    return predict_logits(dev.model, tokens, dev.inference)
