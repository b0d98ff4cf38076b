"""The training loop: a generator of progress that neither prints nor saves.

Everything random in step n comes from seeds made of (seed, n), everything else from the weights, the optimizer and
`TrainingState`; so a run that is rebuilt from those three goes on bit for bit.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import NumericError
from recurcli.events import Progress
from recurcli.tokens.batching import epoch_batches
from recurcli.training.config import OptimizationConfig
from recurcli.training.objectives import Objective
from recurcli.training.schedule import learning_rate
from recurcli.training.seeding import seed_step


@dataclass
class TrainingState:
    """All of a training's memory besides weights and optimizer state."""

    step: int = 0
    """Optimiser steps taken."""
    evaluated_step: int = 0
    """The step of the last evaluation."""
    best_dev_metric: float | None = None
    best_step: int | None = None
    stale_evaluations: int = 0
    """Evaluations since the best one."""
    loss_sum: float = 0.0
    """Sum of the losses of the steps since the last line of the metrics file,"""
    loss_steps: int = 0
    """and their number."""
    logged_step: int = 0
    """The step of the last line of the metrics file."""
    measures: dict[str, float] = field(default_factory=dict)
    """Learning rate, gradient norm and auxiliary losses of the last step."""
    tokens: int = 0
    """Real tokens trained on, over the whole run."""
    seconds: float = 0.0
    """Time spent in training steps, over the whole run and its resumes."""


@dataclass(frozen=True)
class Plan:
    """Which rows make which step, known for the whole run before it starts."""

    lengths: np.ndarray
    """Tokens of each training row."""
    config: OptimizationConfig
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.config.batch_size)

    @property
    def total_steps(self) -> int:
        return self.config.max_steps or self.config.epochs * self.steps_per_epoch

    def batches(self, first_step: int) -> Iterator[np.ndarray]:
        """The row numbers of the batches from `first_step` on, without end."""
        epoch, place = divmod(first_step, self.steps_per_epoch)
        while True:
            yield from epoch_batches(self.lengths, self.config.batch_size, seed=self.seed, epoch=epoch, first=place)
            epoch, place = epoch + 1, 0


@dataclass(frozen=True)
class TrainingLoop:
    """The parts that `fit` works on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    objective: Objective
    plan: Plan
    device: torch.device
    autocast: Callable[[], AbstractContextManager[object]]
    evaluate: Callable[[], float] | None = None
    """The dev score of the model as it is; None where there is nothing to score."""
    evaluate_every: int | None = None
    """Steps between evaluations; None = an epoch's."""
    patience: int | None = None
    ranks: Ranks = SINGLE_PROCESS
    """The processes that share each batch."""

    def pending_evaluation(self, state: TrainingState) -> bool:
        """Whether the model as it is wants a score that it does not have."""
        every = self.evaluate_every or self.plan.steps_per_epoch
        due = state.step % every == 0 or state.step >= self.plan.total_steps
        return self.evaluate is not None and due and state.evaluated_step != state.step

    def finished(self, state: TrainingState) -> bool:
        """Whether all steps are taken, or patience is at its end."""
        impatient = self.patience is not None and state.stale_evaluations >= self.patience
        return not self.pending_evaluation(state) and (impatient or state.step >= self.plan.total_steps)


def fit(parts: TrainingLoop, state: TrainingState) -> Iterator[Progress]:
    """Train from `state` on, changing it in place; yields after every step, its evaluation included.

    Raises NumericError, with nothing changed by that step, when the loss or the gradient is not finite.
    """
    batches = parts.plan.batches(state.step)
    while not parts.finished(state):
        if not parts.pending_evaluation(state):
            started = time.perf_counter()
            _take_step(parts, state, next(batches))
            state.seconds += time.perf_counter() - started
        dev_metric, improved = None, False
        if parts.pending_evaluation(state):
            dev_metric, improved = _evaluate(parts, state)
        yield Progress(
            step=state.step,
            total_steps=parts.plan.total_steps,
            epoch=state.step / parts.plan.steps_per_epoch,
            loss=state.loss_sum / max(1, state.loss_steps),
            measures=dict(state.measures),
            tokens=state.tokens,
            seconds=state.seconds,
            dev_metric=dev_metric,
            best_dev_metric=state.best_dev_metric,
            improved=improved,
        )


def _take_step(parts: TrainingLoop, state: TrainingState, rows: np.ndarray) -> None:
    """One optimiser step on the batch of `rows`."""
    config, model = parts.plan.config, parts.model
    generator = seed_step(parts.plan.seed, state.step, parts.ranks.rank)
    rate = learning_rate(state.step, parts.plan.total_steps, config)
    for group in parts.optimizer.param_groups:
        group["lr"] = rate
    model.train()
    losses = _gradient(parts, rows, generator)
    loss = losses.pop("loss")
    norm = _clip(model, config.max_grad_norm)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        parts.optimizer.zero_grad()
        raise NumericError(
            f"step {state.step + 1}: loss {loss}, gradient norm {norm}: the step is not taken; "
            "try a smaller learning rate, or --precision fp32"
        )
    parts.optimizer.step()
    parts.optimizer.zero_grad()
    with torch.no_grad():
        model.encoder.project_()  # type: ignore[operator, union-attr]
    state.step += 1
    state.loss_sum += loss
    state.loss_steps += 1
    state.measures = {"learning_rate": rate, "gradient_norm": norm, **losses}
    state.tokens += int(parts.plan.lengths[rows].sum())


def _gradient(parts: TrainingLoop, rows: np.ndarray, generator: torch.Generator) -> dict[str, float]:
    """Leave the gradient of the batch of `rows` in the model; returns its `loss` and the auxiliary losses in it.

    Every process draws the whole batch and computes its share of it. The divisor is the whole batch's, so that sums
    over the processes are what one of them alone would have got.
    """
    model, ranks = parts.model, parts.ranks
    pieces = parts.objective.parts(rows, parts.plan.config.gradient_accumulation_steps, generator)
    weight = max(sum(piece.weight for piece in pieces), 1e-12)
    losses = {"loss": 0.0}
    for piece in (whole.share(ranks.rank, ranks.world_size) for whole in pieces):
        if not len(piece.ids):  # fewer rows than processes
            continue
        with parts.autocast():
            total, extra = parts.objective.loss(model, piece, parts.device)
            share = len(piece.ids) / len(rows)
            objective = total / weight + share * sum(extra.values(), torch.zeros((), device=parts.device))
        objective.backward()  # type: ignore[no-untyped-call]
        losses["loss"] += objective.item()
        for name, value in extra.items():
            losses[name] = losses.get(name, 0.0) + share * value.item()
    if ranks.world_size > 1:
        _sum_gradients(model, ranks)
    return ranks.all_reduce(losses)


def _sum_gradients(model: nn.Module, ranks: Ranks) -> None:
    """Sum each parameter's gradient over the processes; one that no process has a gradient for keeps None."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    present = torch.tensor([float(p.grad is not None) for p in learning], device=learning[0].device)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learning]
    ranks.all_reduce_([*gradients, present])
    for parameter, gradient, count in zip(learning, gradients, present.tolist(), strict=True):
        parameter.grad = gradient if count else None


def _clip(model: nn.Module, largest: float | None) -> float:
    """Scale the gradient down to the norm `largest`; returns the norm it had."""
    limit = float("inf") if largest is None else largest
    return nn.utils.clip_grad_norm_(model.parameters(), limit).item()


def _evaluate(parts: TrainingLoop, state: TrainingState) -> tuple[float, bool]:
    assert parts.evaluate is not None
    try:
        dev_metric = parts.evaluate()
    except NumericError as error:
        raise NumericError(f"step {state.step}: evaluation: {error}; try a smaller learning rate") from None
    state.evaluated_step = state.step
    improved = state.best_dev_metric is None or dev_metric > state.best_dev_metric
    if improved:
        state.best_dev_metric, state.best_step, state.stale_evaluations = dev_metric, state.step, 0
    else:
        state.stale_evaluations += 1
    return dev_metric, improved
