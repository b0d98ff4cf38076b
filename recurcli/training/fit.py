"""The training loop with its optimizer and schedule. It prints nothing and writes no file.

Step n seeds its random numbers with (seed, n). All other state is in the weights, the optimizer, `TrainingState` and what the
objective carries from batch to batch, so a run that restores those four is bit-identical to an uninterrupted run.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import unwrap
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recurcli.config import OptimizationConfig
from recurcli.device import SettledPrecision, autocast
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import NumericError
from recurcli.evaluation.report import DevScore
from recurcli.log import Progress
from recurcli.network import Backbone
from recurcli.tokens.batching import epoch_batches
from recurcli.training.objectives import Objective


class AdamW(torch.optim.AdamW):
    """torch's AdamW without the wrappers for graphs that hold an optimizer: they import torch._dynamo, over a second.

    A wrapper of torch without functools.wraps would stay on: training would be right, and start late.
    """

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


def build_optimizer(model: Backbone, config: OptimizationConfig) -> AdamW:
    """Return the optimizer of the parameters that require gradients. Weight decay applies to matrices, but not to
    an embedding with frozen rows and to the encoder's `undecayed_names`.

    The `lr_factor` of a parameter group multiplies the learning rate. It is `config.scalar_lr_factor` for scalars, because
    Adam changes a parameter by about one learning rate per step.
    """
    assert config.learning_rate is not None
    frozen = model.embedding.weight if model.embedding.frozen else None
    settings = {
        "matrices": (config.weight_decay, 1.0),
        "vectors": (0.0, 1.0),  # and what else has no weight decay
        "scalars": (0.0, config.scalar_lr_factor),
    }
    groups: dict[str, dict[str, Any]] = {
        kind: {"params": [], "weight_decay": own_decay, "lr_factor": factor}
        for kind, (own_decay, factor) in settings.items()
    }
    for name, parameter in model.named_parameters():
        kind, own_name = "matrices", name.rpartition(".")[2]
        if parameter.ndim == 0 or own_name in model.encoder.scalar_names:
            kind = "scalars"
        elif parameter.ndim == 1 or parameter is frozen or own_name in model.encoder.undecayed_names:
            kind = "vectors"
        if parameter.requires_grad:
            groups[kind]["params"].append(parameter)
    return AdamW(
        [group for group in groups.values() if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def learning_rate(step: int, total_steps: int, config: OptimizationConfig, steps_per_epoch: int) -> float:
    """Return the learning rate of optimiser step `step` (from 0): linear warm-up, then decay by `lr_scheduler`.

    `config.learning_rate` must be a number: `settle` replaces null.
    """
    assert config.learning_rate is not None
    warmup = round(config.warmup_ratio * total_steps) if config.warmup_steps is None else config.warmup_steps
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total_steps - warmup)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_scheduler == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    if config.lr_scheduler == "inverse":
        return config.learning_rate / (1 + step // steps_per_epoch)
    return config.learning_rate


def derived_seed(*parts: int) -> int:
    """Hash several integers to one 63-bit seed. Different integers give statistically independent seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_step(seed: int, step: int, rank: int = 0) -> torch.Generator:
    """Seed torch's global generators (for dropout) for step `step`, and return a generator for masking.

    Dropout differs between ranks. Masking does not depend on `rank`, so it is the same for any number of processes.
    """
    torch.manual_seed(derived_seed(seed, 1, step, rank))
    return torch.Generator().manual_seed(derived_seed(seed, 2, step, 0))


def seed_weights(seed: int) -> None:
    """Seed torch's global generators for the initial weights."""
    torch.manual_seed(derived_seed(seed, 0))


@dataclass
class TrainingState:
    """Everything that a resume needs besides the weights and the optimizer state."""

    step: int = 0
    evaluated_step: int = 0
    best_dev_metric: float | None = None
    """The best dev metric so far. None before the first evaluation."""
    second_dev_metric: float | None = None
    """The best dev metric before the step of the best one. None if the first evaluation was the best."""
    best_dev_loss: float | None = None
    """The smallest dev loss of a model with that metric."""
    best_step: int | None = None
    stale_evaluations: int = 0
    """Evaluations since the last improvement: a better dev metric, or an equal one with a smaller dev loss."""
    loss_sum: float = 0.0
    """Sum of the losses of the steps since the last line of metrics.jsonl."""
    loss_steps: int = 0
    """Number of steps in `loss_sum`."""
    logged_step: int = 0
    """The step of the last line of metrics.jsonl."""
    measures: dict[str, float] = field(default_factory=dict)
    """Learning rate, gradient norm and auxiliary losses of the last step."""
    tokens: int = 0
    """Number of tokens of the training rows so far, without padding and before word dropout."""
    seconds: float = 0.0
    """Time spent in training steps, summed over the run and its resumes."""
    cpu_seconds: float = 0.0
    """CPU time of all threads of this process in training steps."""


@dataclass(kw_only=True)
class TrainingLoop:
    """The model, optimizer, objective, schedule, evaluation and state of a training run."""

    model: Backbone
    optimizer: torch.optim.Optimizer
    objective: Objective
    config: OptimizationConfig
    seed: int
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - immutable
    precision: SettledPrecision = "fp32"
    evaluate: Callable[[], DevScore] | None = None
    """Evaluates the model on the dev rows. None where nothing is evaluated."""
    minimize: bool = False
    """Whether a smaller dev metric is better."""
    ranks: Ranks = SINGLE_PROCESS
    state: TrainingState = field(default_factory=TrainingState)
    unread: list[tuple[int, float, dict[str, Tensor]]] = field(init=False, default_factory=list)
    """Number, learning rate and losses of the steps that `read_losses` has not read yet."""
    loss_names: list[str] = field(init=False, default_factory=list)
    """The names of the losses of a step, on which the processes agree at their first one."""

    def read_losses(self) -> None:
        """Take the losses and the gradient norm of the last steps into the state: one synchronization on CUDA.

        Raises NumericError with the first step whose loss or norm is not finite.
        """
        steps, self.unread = self.unread, []
        if not steps:
            return
        values = iter(torch.stack([value for _, _, losses in steps for value in losses.values()]).tolist())
        for step, rate, losses in steps:
            numbers = {name: next(values) for name in losses}
            loss, norm = numbers.pop("loss"), numbers["gradient_norm"]
            if not (math.isfinite(loss) and math.isfinite(norm)):
                self.optimizer.zero_grad()
                raise NumericError(
                    f"step {step}: loss {loss}, gradient norm {norm}: not finite, so training stops; "
                    "try a smaller learning rate, or --precision fp32"
                )
            self.state.loss_sum += loss
            self.state.loss_steps += 1
            self.state.measures = {"learning_rate": rate, **numbers}

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch."""
        return math.ceil(len(self.objective.lengths) / self.config.batch_size)

    @property
    def total_steps(self) -> int:
        """Number of optimiser steps of the whole run."""
        assert self.config.epochs != "auto", "settle replaces auto"
        return self.config.max_steps or self.config.epochs * self.steps_per_epoch

    def batches(self, first_step: int) -> Iterator[np.ndarray]:
        """Yield the row numbers of each batch, starting with `first_step`; a function of lengths, config and seed alone."""
        epoch, place = divmod(first_step, self.steps_per_epoch)
        while self.objective.carry is not None:
            streams = self.objective.carry.streams
            yield from (step * streams + np.arange(streams) for step in range(place, self.steps_per_epoch))
            place = 0
        while True:
            yield from epoch_batches(
                self.objective.lengths, self.config.batch_size, seed=self.seed, epoch=epoch, first=place
            )
            epoch, place = epoch + 1, 0

    @property
    def evaluation_due(self) -> bool:
        """Whether the current step needs an evaluation that has not run yet."""
        state, every = self.state, self.config.evaluate_every or self.steps_per_epoch
        due = state.step % every == 0 or state.step >= self.total_steps
        return self.evaluate is not None and due and state.evaluated_step != state.step

    @property
    def finished(self) -> bool:
        """Whether training has ended. It has if no evaluation is due, and the last step is done or the patience is used up."""
        patience = self.config.patience
        impatient = patience is not None and self.state.stale_evaluations >= patience
        return not self.evaluation_due and (impatient or self.state.step >= self.total_steps)


def fit(loop: TrainingLoop, after_step: Callable[[Progress], bool]) -> None:
    """Train from `loop.state` to the last step. Call `after_step` after each step, and end early if it returns True.

    Raises NumericError if the loss or the gradient of a step is not finite. On a CPU the weights, the optimizer and the state
    then remain those of the step before. On CUDA the losses are read every `log_every` steps and before each evaluation and
    checkpoint, so the CPU need not wait for each step, and no weights after a bad step are kept.
    """
    state, batches = loop.state, loop.batches(loop.state.step)
    while not loop.finished:
        with loop.ranks.time_limit():
            if not loop.evaluation_due:
                started, cpu_started = time.perf_counter(), time.process_time()
                take_step(loop, next(batches))
                if loop.evaluation_due or loop.finished or state.step % loop.config.log_every == 0:
                    loop.read_losses()
                state.seconds += time.perf_counter() - started
                state.cpu_seconds += time.process_time() - cpu_started
            dev_metric, improved = _evaluate(loop) if loop.evaluation_due else (None, False)
        progress = Progress(
            step=state.step,
            total_steps=loop.total_steps,
            epoch=state.step / loop.steps_per_epoch,
            loss=state.loss_sum / max(1, state.loss_steps),
            measures=dict(state.measures),
            tokens=state.tokens,
            seconds=state.seconds,
            dev_metric=dev_metric,
            best_dev_metric=state.best_dev_metric,
            improved=improved,
        )
        if after_step(progress):
            return


def take_step(loop: TrainingLoop, rows: np.ndarray) -> None:
    """Do one optimiser step on the batch of the row numbers `rows`."""
    model, optimizer, state = loop.model, loop.optimizer, loop.state
    generator = seed_step(loop.seed, state.step, loop.ranks.rank)
    rate = learning_rate(state.step, loop.total_steps, loop.config, loop.steps_per_epoch)
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_factor", 1.0)
    model.train()
    carry = loop.objective.carry
    if carry is not None:
        carry.begin()
    losses = compute_gradients(loop, rows, generator)
    norm = nn.utils.clip_grad_norm_(model.parameters(), loop.config.max_grad_norm or math.inf)
    loop.unread.append((state.step + 1, rate, {"gradient_norm": norm.double(), **losses}))
    if loop.device.type == "cpu":
        loop.read_losses()
    if loop.config.max_grad_value is not None:
        nn.utils.clip_grad_value_(model.parameters(), loop.config.max_grad_value)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        model.encoder.project_()
    state.step += 1
    if carry is not None:
        carry.advance(loop.ranks, loop.device, at_end=state.step % loop.steps_per_epoch == 0)
    state.tokens += int(loop.objective.lengths[rows].sum())


def compute_gradients(loop: TrainingLoop, rows: np.ndarray, generator: torch.Generator) -> dict[str, Tensor]:
    """Compute the gradient of the batch of `rows`. Returns the total `loss` and each auxiliary loss, in float64.

    Each process builds the whole batch and computes its share of the rows. All divide by the weight of the whole batch, so
    the sum over the processes equals the gradient of a single process.
    """
    model, ranks = loop.model, loop.ranks
    parts = np.array_split(rows, min(loop.config.gradient_accumulation_steps, len(rows)))
    micro_batches = [loop.objective.micro_batch(part, generator) for part in parts]
    weight = max(sum(batch.weight for batch in micro_batches), 1e-12)
    losses = {"loss": torch.zeros((), dtype=torch.float64, device=loop.device)}
    for batch in (whole.share(ranks.rank, ranks.world_size) for whole in micro_batches):
        if not len(batch.ids):  # fewer rows than processes
            continue
        with autocast(loop.device, loop.precision):
            total, auxiliary = loop.objective.loss(model, batch.to(loop.device))
            share = len(batch.ids) / len(rows)
            loss = total / weight + share * sum(auxiliary.values(), torch.zeros((), device=loop.device))
        loss.backward()  # type: ignore[no-untyped-call]
        losses["loss"] += loss.detach()
        for name, value in auxiliary.items():
            losses[name] = losses.get(name, 0.0) + share * value.detach().double()
    if ranks.world_size > 1:
        _sum_gradients(model, ranks)
        if not loop.loss_names:  # a rank without rows has no auxiliary losses
            loop.loss_names = sorted({name for names in ranks.all_gather([*losses]) for name in names})
        values = torch.stack([losses.get(name, torch.zeros_like(losses["loss"])) for name in loop.loss_names])
        ranks.all_reduce_(values)
        losses = dict(zip(loop.loss_names, values, strict=True))
    return losses


def _sum_gradients(model: Backbone, ranks: Ranks) -> None:
    """Sum each gradient over the processes. A gradient that is None in every process stays None. All are of one type."""
    learning = [p for p in model.parameters() if p.requires_grad]
    gradients = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in learning]
    present = torch.tensor([float(p.grad is not None) for p in learning], device=learning[0].device)
    flat = torch.cat([*gradients, present])
    ranks.all_reduce_(flat)
    *parts, present = torch.split(flat, [len(part) for part in (*gradients, present)])
    for parameter, part, count in zip(learning, parts, present.tolist(), strict=True):
        parameter.grad = part.view_as(parameter) if count else None  # no copy of it


def _evaluate(loop: TrainingLoop) -> tuple[float, bool]:
    """Evaluate the model and update the state. Returns the dev metric, and whether it is the best so far."""
    assert loop.evaluate is not None
    state = loop.state
    try:
        score = loop.evaluate()
    except NumericError as error:
        raise NumericError(f"step {state.step}: evaluation: {error}; try a smaller learning rate") from None
    state.evaluated_step = state.step
    sign = -1 if loop.minimize else 1
    improved = (
        state.best_dev_metric is None
        or state.best_dev_loss is None
        or (sign * score.metric, -score.loss) > (sign * state.best_dev_metric, -state.best_dev_loss)
    )
    if improved:
        state.second_dev_metric = state.best_dev_metric
        state.best_dev_metric, state.best_dev_loss = score
        state.best_step, state.stale_evaluations = state.step, 0
    else:
        state.stale_evaluations += 1
    return score.metric, improved
