"""`recur finetune --budget`: the number of steps with which the whole command takes a given time."""

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from recurcli.commands.training.trainer import Training
from recurcli.config import Preset
from recurcli.errors import UsageError, pluralize
from recurcli.evaluation.inference import compute_logits
from recurcli.evaluation.report import DevEvaluation
from recurcli.log import Log
from recurcli.process import STARTED
from recurcli.runs.run_directory import RunDirectory
from recurcli.tokens.batching import Rows, sorted_batches
from recurcli.training.fit import TrainingState, take_step

SHARE, STEPS, BATCHES = 0.1, 24, 4
"""The plan measures training steps for about SHARE of the budget, at most STEPS of them, and BATCHES of dev rows. Ours."""


def with_planned_steps(training: Training, dev: DevEvaluation, budget: float | None, log: Log) -> Training:
    """Return the training with the `finetuning.max_steps` that fit into `budget` seconds, or that its run has planned before.

    Without a budget, and for a run that was begun without one, the training stays as it is. All ranks must call it. Raises
    UsageError if no step fits, and for a budget where the run that is resumed was begun without one.
    """
    run, ranks, steps = training.run, training.loop.ranks, 0
    if training.status != "new":
        found = (run.read_budget(), run.read_preset()["finetuning"]["max_steps"]) if ranks.is_main else None
        given, (budget, steps) = budget, ranks.broadcast(found)
        if given and not budget:
            raise UsageError(f"--budget: {run.name} was begun without one, and a resume plans no steps; leave it out")
    elif budget:
        steps = _plan(training, dev, budget, log)
    if not budget:
        return training

    resolved = replace(training.resolved, preset=_with_steps(training.resolved.preset, steps))
    preset = _with_steps(training.preset, steps)
    loop = replace(training.loop, config=preset.finetuning)
    return replace(training, budget=budget, resolved=resolved, preset=preset, loop=loop)


def _with_steps(preset: Preset, steps: int) -> Preset:
    return replace(preset, finetuning=replace(preset.finetuning, max_steps=steps))


def _plan(training: Training, dev: DevEvaluation, budget: float, log: Log) -> int:
    """Return the largest number of steps with which the command takes `budget` seconds at most, and log it.

    Steps, evaluations and writes are measured on real batches. Then the weights and the optimizer are those of before, and each
    step seeds its random numbers, so the training is to the bit that of the same `finetuning.max_steps`. The linear model is
    fitted again now, so that the end takes it from the cache.
    """
    loop, ranks = training.loop, training.loop.ranks

    def now() -> float:
        """Return the seconds since the command began."""
        if loop.device.type == "cuda":
            torch.cuda.synchronize(loop.device)
            return ranks.broadcast(time.monotonic() - STARTED)
        return ranks.all_reduce({"seconds": time.process_time()})["seconds"]

    def per_token(work: Callable[[Rows], object], batches: list[Rows], lengths: Rows, count: int) -> float:
        """Return the seconds that `work` takes for a token, by `count` of the batches of rows with these `lengths` (N,)."""
        stride, started = -(-len(batches) // count), now()
        measured = batches[stride // 2 :: stride]
        for rows in measured:
            work(rows)
        return (now() - started) / max(1, sum(int(lengths[rows].sum()) for rows in measured))

    if dev.refit is not None:
        dev.refit()
    weights = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    trial, lengths, per_epoch = replace(loop, state=TrainingState()), loop.objective.lengths, loop.steps_per_epoch
    batches = sorted(islice(loop.batches(0), per_epoch), key=lambda rows: int(lengths[rows].sum()))
    began = now()
    take_step(trial, batches[-1])  # the memory that the largest batch takes is kept for the others
    measured = min(STEPS, max(3, int(SHARE * budget / max(now() - began, 1e-3))))
    step = per_token(partial(take_step, trial), batches, lengths, measured) * lengths.sum() / per_epoch
    lengths, texts = dev.dev.tokens.lengths, dev.dev.split.texts
    batches = sorted_batches(lengths, dev.inference.batch_size)
    model = None if dev.linear is None else dev.linear.model

    def label_by_encoder(rows: Rows) -> None:
        compute_logits(dev.model, dev.dev.tokens.take(rows), dev.inference)

    def label_by_linear_model(rows: Rows) -> None:
        if model is not None:
            model.logits([texts[row] for row in rows])

    by_encoder = per_token(label_by_encoder, batches, lengths, BATCHES)
    by_linear = per_token(label_by_linear_model, batches, lengths, BATCHES)
    began = now()
    if ranks.is_main:
        with TemporaryDirectory(prefix="recur-") as folder:
            rehearsal = replace(training, loop=trial, run=RunDirectory(Path(folder)))
            rehearsal.publish(weights)
            rehearsal.session().save()
    loop.model.load_state_dict(weights)
    loop.optimizer.state.clear()
    used, evaluation = now(), by_encoder * lengths.sum()
    tested = sum(rows.tokens.lengths.sum() for rows in dev.tests.values())
    write, evaluate_every = used - began, loop.config.evaluate_every or per_epoch
    write_every = min(evaluate_every, loop.config.checkpoint_every or per_epoch)
    end = evaluation + write + tested * (by_encoder + 2 * by_linear)

    def needed(steps: int) -> float:
        """Return the estimated seconds of the whole command with `steps` training steps."""
        return used + steps * step + ceil(steps / evaluate_every) * evaluation + ceil(steps / write_every) * write + end

    steps: int = ranks.broadcast(bisect_right(range(1, loop.total_steps + 1), budget, key=needed))
    if not steps:
        reason = f"{used:.1f} s are used before it, and it takes {needed(1) - used:.1f} s with the evaluations"
        raise UsageError(f"--budget {budget:g}s: no step fits; {reason}; give at least {ceil(1.1 * needed(1))}s")
    plan = f"{pluralize(steps, 'step', of=loop.total_steps)}, after {used:.1f} s"
    log.note(f"--budget {budget:g}s: {plan}; --set finetuning.max_steps={steps} repeats the run")
    return steps
