"""A training run on the disk: checkpoints, a resume from the newest one that verifies, and a stop by a signal."""

import contextlib
import dataclasses
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from recurcli.config import FORMAT_VERSION, check_format
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import Interrupted, ModelError, NumericError, UsageError, escaped
from recurcli.files import CommittedFolder, commit_directory, remove, storage_errors, to_json
from recurcli.log import Log, Progress
from recurcli.network import Backbone
from recurcli.process import signal_handlers
from recurcli.runs.network_files import load_tensors, load_weights, save_tensors
from recurcli.runs.run_directory import RunDirectory, check_same, checkpoint_folders, first_difference
from recurcli.training.fit import TrainingLoop, TrainingState, fit
from recurcli.validation import parse_config

_REQUIRED = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training run after one optimiser step."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    best: Mapping[str, Tensor] | None
    """The weights with the best dev metric. None before the first evaluation, or if they equal `model`."""
    state: TrainingState
    resume_key: Mapping[str, Any]
    """Facts that a resume must match. A different value raises UsageError."""
    environment: Mapping[str, Any]
    """Facts that a resume should match. A different value gives a warning, and the result is not bit-identical."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """What the objective carries from batch to batch (`Carry.state`)."""

    @property
    def name(self) -> str:
        """The name of its folder. Names sort by step up to 99,999,999 steps."""
        return f"step-{self.state.step:08d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write `folder/step-NNNNNNNN`, then delete all but the newest `keep` checkpoints.

    An existing checkpoint of the same step is not replaced. Raises NumericError before writing if a weight is not finite.
    """
    _check_no_link(folder)
    for name, tensor in checkpoint.model.items():
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():  # makes no tensor of bools
            raise NumericError(
                f"step {checkpoint.state.step}: {name} is not finite, so no checkpoint is written; "
                "try a smaller learning rate"
            )
    with storage_errors(folder):
        folder.mkdir(exist_ok=True)
    target = folder / checkpoint.name
    if target.is_dir():
        return
    state = {
        "format_version": FORMAT_VERSION,
        "state": dataclasses.asdict(checkpoint.state),
        "resume_key": checkpoint.resume_key,
        "environment": checkpoint.environment,
    }
    writers: dict[str, Callable[[Path], object]] = {
        "model.safetensors": partial(save_tensors, checkpoint.model),
        "optimizer.safetensors": partial(save_tensors, checkpoint.optimizer),
        "state.json": lambda path: path.write_text(to_json(state), encoding="utf-8"),
    }
    if checkpoint.carried:
        writers["carried.safetensors"] = partial(save_tensors, checkpoint.carried)
    if checkpoint.best is not None:
        writers["best.safetensors"] = partial(save_tensors, checkpoint.best)
    commit_directory(target, writers)
    for old in checkpoint_folders(folder)[keep:]:
        remove(old)


def newest_checkpoint(
    folder: Path, check: Callable[[Checkpoint], None] = lambda _: None
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint whose manifest verifies, and one warning for each newer checkpoint that is damaged.

    `check` raises an error if the run cannot continue from it; nothing is changed then. Damaged checkpoints are renamed to
    `*.damaged`. The checkpoint is None if the folder has none. Raises ModelError if all checkpoints are damaged.
    """
    _check_no_link(folder)
    for leftover in folder.glob(".step-*.tmp"):
        remove(leftover)
    damaged: list[tuple[Path, str]] = []
    for path in checkpoint_folders(folder):
        try:
            found = _load(path)
        except ModelError as error:
            damaged.append((path, str(error)))
            continue
        check(found)
        for bad, _ in damaged:
            aside = bad.with_name(bad.name + ".damaged")
            remove(aside)
            with storage_errors(aside):
                bad.rename(aside)
        return found, [f"{reason}; resuming from {path.name}" for _, reason in damaged]
    if damaged:
        raise ModelError(f"{damaged[0][1]}; no checkpoint is left to resume from; start again with --overwrite")
    return None, []


def _check_no_link(folder: Path) -> None:
    """Raise ModelError if `folder` is a symbolic link or a file. Through a link, files elsewhere would be overwritten."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ModelError(
            f"{folder}: is a file or a symbolic link, not a folder; links are not followed; put a folder there"
        )


def _load(path: Path) -> Checkpoint:
    _check_no_link(path)
    folder = CommittedFolder(path).verify(_REQUIRED)
    model, optimizer, best, carried = (
        load_tensors(folder[f"{name}.safetensors"]) if f"{name}.safetensors" in folder else None
        for name in ("model", "optimizer", "best", "carried")
    )
    file = folder["state.json"]
    try:
        stored = json.loads(file.read(limit=1 << 22))
        check_format(stored["format_version"], path)
        state = parse_config(TrainingState, stored["state"])
        facts = dict(stored["resume_key"]), dict(stored["environment"])
        return Checkpoint(model or {}, optimizer or {}, best, state, *facts, carried or {})
    except (ValueError, KeyError, TypeError, RecursionError, UsageError) as error:
        raise ModelError(f"{file.path}: is damaged: {escaped(error)}") from None


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state, with names such as `exp_avg/encoder.layers.0.…`.

    A parameter that never had a gradient has no state.
    """
    states = {name: optimizer.state.get(parameter, {}) for name, parameter in model.named_parameters()}
    return {f"{key}/{name}": value for name, state in states.items() for key, value in state.items()}


def load_optimizer_tensors(
    model: Backbone, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], source: Path
) -> None:
    """Load the tensors of `optimizer_tensors`, from the file `source`, into `optimizer`.

    Raises ModelError if they do not fit the model.
    """
    left = dict(tensors)
    for name, parameter in model.named_parameters():
        state = {key: left.pop(f"{key}/{name}", None) for key in ("step", "exp_avg", "exp_avg_sq")}
        if all(value is None for value in state.values()):
            continue
        for key, value in state.items():
            shape = () if key == "step" else parameter.shape
            if value is None or value.shape != shape or not value.is_floating_point() or not parameter.requires_grad:
                raise ModelError(f"{source}: the optimizer state does not fit the model: {key}/{name}")
        # A fused AdamW keeps its step count beside the parameter.
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in state.items() if value is not None
        }
    if left:
        raise ModelError(f"{source}: the optimizer state does not fit the model: {min(left)}")


def _checked_state(carried: Mapping[str, Tensor], loop: TrainingLoop, source: Path) -> dict[str, Tensor]:
    """Return the `carried` tensors on the device of `loop`. Raises ModelError if they are not those of its streams.

    In fp32 they get the type of the weights: the run may have been in bf16 before.
    """
    carry = loop.objective.carry
    assert carry is not None
    for name, part in carried.items():
        if not part.is_floating_point() or part.ndim < 2 or len(part) != carry.streams or not part.isfinite().all():
            raise ModelError(
                f"{source / 'carried.safetensors'}: {escaped(name)} is not the state of {carry.streams} streams"
            )
    dtype = next(loop.model.parameters()).dtype if loop.precision == "fp32" else None
    return {name: part.to(loop.device, dtype) for name, part in carried.items()}


def checkpoint_bytes(loop: TrainingLoop) -> int:
    """Return the approximate size of a checkpoint in bytes.

    A checkpoint has the weights, the optimizer's state and, if the model is selected, the best weights. The optimizer stores
    two numbers for a weight.
    """
    weights = sum(tensor.nbytes for tensor in loop.model.state_dict().values())
    numbers = sum(2 * p.numel() for p in loop.model.parameters() if p.requires_grad)
    return weights + 4 * numbers + (0 if loop.evaluate is None else weights)


_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopTraining(Exception):
    """Raised during an evaluation when a rank has received a signal to stop."""


class StopRequest:
    """The signal to stop that any rank has received."""

    def __init__(self, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.ranks = ranks
        self.signal: int | None = None
        """Number of the stop signal. None if none was received."""
        self.place = ""
        """Where the training is, for a message."""

    def agreed(self) -> bool:
        """Return whether any rank has received a signal to stop. A collective call: every rank must make it."""
        with self.ranks.time_limit():
            agreed = max(int(number) for number in self.ranks.all_gather_(torch.tensor(self.signal or 0)))
        if agreed:  # a signal that arrives after all_gather is handled by the next call
            self.signal = agreed
        return bool(agreed)

    def raise_if_agreed(self) -> None:
        """Raise StopTraining if any rank has received a signal to stop. A collective call."""
        if self.agreed():
            raise StopTraining

    def leave(self, way_on: str) -> NoReturn:
        """Wait until rank 0 has written what it has to, then raise Interrupted with the signal, and with the `way_on`."""
        assert self.signal is not None
        self.ranks.barrier()  # no rank exits before the files are written
        stop = Interrupted(self.signal, f"stopped by {signal.Signals(self.signal).name}{self.place}")
        stop.add_note(way_on)
        raise stop

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGTERM, SIGINT and SIGHUP within the block, and restore the previous handlers after it.

        A second SIGINT raises KeyboardInterrupt. Outside the main thread no handler is installed, because Python forbids it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = (number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN)  # it is under nohup
        with signal_handlers(dict.fromkeys(heard, self._handle)):
            yield

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


@dataclass(kw_only=True)
class Session:
    """A training run: the loop, its state and its run directory. Its checkpoints have its `resume_key` and `environment`."""

    run: RunDirectory
    loop: TrainingLoop
    stop: StopRequest
    publish: Callable[[Mapping[str, Tensor]], None]
    """Writes these weights as those of the model of the run."""
    linear_dev_metric: float | None = None
    """The dev metric of the linear model, which the progress shows. None if there is no linear model."""
    resume_key: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    best: dict[str, Tensor] | None = None
    """Weights with the best dev metric. None before the first evaluation, and on ranks other than 0."""
    track: Callable[[Mapping[str, Any], int], object] = lambda line, step: None
    """Receives each line of metrics.jsonl with its step."""

    def __post_init__(self) -> None:
        self.ranks = self.loop.ranks

    def restore(self, log: Log) -> None:
        """Load the newest checkpoint, if there is one. Warns if the disk has no room for the checkpoints.

        Rank 0 reads the checkpoint and broadcasts it, because other machines may not share its disk.
        """
        if self.ranks.is_main:
            self._warn_of_disk_space(log)
            self._read_checkpoint(log)
        if self.ranks.world_size > 1:
            self._broadcast()

    def _warn_of_disk_space(self, log: Log) -> None:
        """Warn if the checkpoints need more than the free disk space.

        They need space for one more than `keep_checkpoints`, because the newest is written before the oldest is deleted.
        """
        run, count = self.run, self.loop.config.keep_checkpoints + 1
        needed = count * checkpoint_bytes(self.loop)
        held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
        free = shutil.disk_usage(run.path).free
        if free + held < needed:
            log.warn(
                f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, but {count} checkpoints need "
                f"{needed / 1e6:,.1f} MB; free some space, or training will stop when the disk is full",
            )

    def _read_checkpoint(self, log: Log) -> None:
        checkpoint, warnings = newest_checkpoint(
            self.run.checkpoints,
            lambda found: check_same(found.resume_key, self.resume_key, self.run.replaces or self.run.path),
        )
        for warning in warnings:
            log.warn(warning)
        if checkpoint is None:
            self.run.cut_metrics(0)
            return
        for path in checkpoint_folders(self.run.checkpoints):
            if path.name > checkpoint.name:
                remove(path)
        if difference := first_difference(checkpoint.environment, self.environment):
            log.warn(f"{difference}: the run continues, but its result is not bit-identical")
        source = self.run.checkpoints / checkpoint.name
        load_weights(self.loop.model, checkpoint.model, source)
        load_optimizer_tensors(
            self.loop.model, self.loop.optimizer, checkpoint.optimizer, source / "optimizer.safetensors"
        )
        if self.loop.objective.carry is not None:
            self.loop.objective.carry.state = _checked_state(checkpoint.carried, self.loop, source)
        self.loop.state = checkpoint.state
        if checkpoint.state.best_step is not None:
            self.best = dict(checkpoint.best or checkpoint.model)
            self.publish(self.best)
        self.run.cut_metrics(checkpoint.state.logged_step)
        log.note(f"resumed at step {checkpoint.state.step:,} of {self.loop.total_steps:,}")

    def _broadcast(self) -> None:
        """Broadcast rank 0's weights, optimizer state and training state."""
        model, optimizer = self.loop.model, self.loop.optimizer
        self.loop.state = TrainingState(**self.ranks.broadcast(dataclasses.asdict(self.loop.state)))
        self.ranks.broadcast_(list(model.state_dict().values()))
        if self.loop.state.step:
            tensors = optimizer_tensors(model, optimizer)
            shapes = self.ranks.broadcast([(name, tuple(tensor.shape)) for name, tensor in tensors.items()])
            if not self.ranks.is_main:
                tensors = {name: torch.zeros(tuple(shape), device=self.loop.device) for name, shape in shapes}
            self.ranks.broadcast_(list(tensors.values()))
            load_optimizer_tensors(model, optimizer, tensors, self.run.checkpoints)
        if (carry := self.loop.objective.carry) is not None:
            carry.share(self.ranks, self.loop.device)
            self.ranks.broadcast_(list(carry.state.values()))

    def train(self, log: Log) -> None:
        """Train to the end. On a signal, writes a checkpoint and raises Interrupted."""
        self._since = self.loop.state.tokens, time.perf_counter()
        self.ranks.barrier()
        with contextlib.suppress(StopTraining):
            fit(self.loop, partial(self._after_step, log))
        self.stop.place = f" at step {self.loop.state.step:,}"
        if self.stop.agreed():
            self.save()
            self.stop.leave(self.run.way_on)

    def _after_step(self, log: Log, progress: Progress) -> bool:
        """Publish the best model, write metrics and checkpoints that are due. Returns whether a signal asks to stop."""
        config, at_end = self.loop.config, self.loop.finished
        if progress.improved:
            if self.ranks.is_main:
                tensors = self.loop.model.state_dict().items()
                self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors}
                self.publish(self.best)
            self.ranks.barrier()
        if progress.dev_metric is not None or progress.step % config.log_every == 0 or at_end:
            self._write_metrics(progress)
        if self.stop.agreed():
            return True
        every = config.checkpoint_every or self.loop.steps_per_epoch
        if progress.step % every == 0 or progress.improved or at_end:
            self.save()
        log.progress(dataclasses.replace(progress, linear_dev_metric=self.linear_dev_metric))
        return False

    def save(self) -> None:
        """Write a checkpoint of the current step on rank 0, for which the other ranks wait.

        Raises NumericError if the loss of a step was not finite.
        """
        self.loop.read_losses()
        if self.ranks.is_main:
            self._write_checkpoint()
        self.ranks.barrier()

    def _write_checkpoint(self) -> None:
        has_other_best = self.best is not None and self.loop.state.best_step != self.loop.state.step
        save_checkpoint(
            self.run.checkpoints,
            Checkpoint(
                model=self.loop.model.state_dict(),
                optimizer=optimizer_tensors(self.loop.model, self.loop.optimizer),
                best=self.best if has_other_best else None,
                state=self.loop.state,
                resume_key=self.resume_key,
                environment=self.environment,
                carried={} if self.loop.objective.carry is None else self.loop.objective.carry.state,
            ),
            keep=self.loop.config.keep_checkpoints,
        )

    def _write_metrics(self, progress: Progress) -> None:
        (tokens, started), now = self._since, time.perf_counter()
        self._since = progress.tokens, now
        line: dict[str, Any] = {
            "step": progress.step,
            "epoch": round(progress.epoch, 4),
            "loss": progress.loss,
            **progress.measures,
            **{f"encoder.{name}": value for name, value in self.loop.model.encoder.scalars().items()},
            "tokens_per_second": round((progress.tokens - tokens) / max(now - started, 1e-9)),
            "seconds": round(progress.seconds, 3),
        }
        if progress.dev_metric is not None:
            line |= {"dev_metric": progress.dev_metric, "best_dev_metric": progress.best_dev_metric}
        if self.ranks.is_main:
            self.run.append_metrics(line)
            self.track(line, progress.step)
        state = self.loop.state
        state.loss_sum, state.loss_steps, state.logged_step = 0.0, 0, progress.step
