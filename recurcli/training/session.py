"""Fit, and keep its promises on disk: metrics, checkpoints, the best model so far, and a clean stop on a signal."""

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from recurcli.errors import Interrupted
from recurcli.events import Note, Progress
from recurcli.facts import first_difference, require_same
from recurcli.model.saved import cpu_state, load_weights
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from recurcli.training.fit import TrainingLoop, TrainingState, fit
from recurcli.training.optimizer import empty_optimizer_tensors, load_optimizer_tensors, optimizer_tensors
from recurcli.training.signals import StopRequest


class StopTraining(Exception):
    """Raised between two batches of an evaluation when a signal asked for a stop."""


@dataclass
class Session:
    """A training in its run directory."""

    run: RunDirectory
    fitting: TrainingLoop
    must_match: Mapping[str, Any]
    """What a resume must match."""
    should_match: Mapping[str, Any]
    """What a resume should match."""
    publish: Callable[[Mapping[str, Tensor]], None]
    """Makes the run's model these weights."""
    stop: StopRequest
    state: TrainingState
    best: dict[str, Tensor] | None = None
    """Weights of the best dev score, once there is one; of several processes the first has them."""

    def __post_init__(self) -> None:
        self.ranks = self.fitting.ranks

    def restore(self) -> Iterator[Note]:
        """Go back to where the newest checkpoint stands, or to the start if there is none; says what is notable.

        Of several processes the first one reads it, and the others get what it has: they may have other disks.
        """
        if self.ranks.is_main:
            yield from self._read_checkpoint()
        if self.ranks.world_size > 1:
            self._take_over()

    def _read_checkpoint(self) -> Iterator[Note]:
        checkpoint, warnings = newest_checkpoint(self.run.checkpoints)
        for warning in warnings:
            yield Note(warning, "warning")
        if checkpoint is None:
            self.run.cut_metrics(0)
            return
        require_same(checkpoint.must_match, self.must_match, self.run.path)
        if difference := first_difference(checkpoint.should_match, self.should_match):
            yield Note(f"{difference}: the run goes on, but not bit for bit as it would have", "warning")
        source = self.run.checkpoints / f"step-{checkpoint.state.step:08d}"
        load_weights(self.fitting.model, checkpoint.model, source)
        load_optimizer_tensors(self.fitting.model, self.fitting.optimizer, checkpoint.optimizer)
        self.state = checkpoint.state
        if checkpoint.state.best_step is not None:
            self.best = dict(checkpoint.best or checkpoint.model)
            self.publish(self.best)
        self.run.cut_metrics(checkpoint.state.logged_step)
        yield Note(f"resumed at step {checkpoint.state.step:,} of {self.fitting.plan.total_steps:,}")

    def _take_over(self) -> None:
        """Give the first process's weights, optimizer state and place to all."""
        model, optimizer = self.fitting.model, self.fitting.optimizer
        self.state = TrainingState(**self.ranks.broadcast(dataclasses.asdict(self.state)))
        self.ranks.broadcast_(list(model.state_dict().values()))
        if self.state.step:
            tensors = optimizer_tensors(model, optimizer)
            names = self.ranks.broadcast(list(tensors))
            if not self.ranks.is_main:
                tensors = empty_optimizer_tensors(model, names)
            self.ranks.broadcast_(list(tensors.values()))
            load_optimizer_tensors(model, optimizer, tensors)

    def train(self) -> Iterator[Progress | Note]:
        """Fit to the end. Raises Interrupted, after a checkpoint, when a signal asks for a stop."""
        config, since = self.fitting.plan.config, (self.state.tokens, time.perf_counter())
        every = config.checkpoint_every or self.fitting.plan.steps_per_epoch
        try:
            for progress in fit(self.fitting, self.state):
                if progress.improved and self.ranks.is_main:
                    self.best = cpu_state(self.fitting.model)
                    self.publish(self.best)
                if progress.dev_metric is not None or progress.step % config.log_every == 0 or self._at_end():
                    now = time.perf_counter()
                    self._log(progress, (progress.tokens - since[0]) / max(now - since[1], 1e-9))
                    since = (progress.tokens, now)
                if self.stop.agreed():
                    break
                asked, self.stop.saving = self.stop.saving, False
                if progress.step % every == 0 or progress.improved or self._at_end() or asked:
                    self.save()
                yield progress
                if asked:
                    yield Note(f"checkpoint at step {progress.step:,}, as SIGUSR1 asked")
        except StopTraining:
            pass
        if self.stop.agreed():
            self.save()
            self.leave()

    def save(self) -> None:
        """Write a checkpoint of this moment; the other processes wait for the first in the next step."""
        if not self.ranks.is_main:
            return
        own_best = self.best is not None and self.state.best_step != self.state.step
        save_checkpoint(
            self.run.checkpoints,
            Checkpoint(
                model=self.fitting.model.state_dict(),
                optimizer=optimizer_tensors(self.fitting.model, self.fitting.optimizer),
                best=self.best if own_best else None,
                state=self.state,
                must_match=self.must_match,
                should_match=self.should_match,
            ),
            keep=self.fitting.plan.config.keep_checkpoints,
        )

    def _at_end(self) -> bool:
        return self.fitting.finished(self.state)

    def _log(self, progress: Progress, tokens_per_second: float) -> None:
        line: dict[str, Any] = {
            "step": progress.step,
            "epoch": round(progress.epoch, 4),
            "loss": progress.loss,
            **progress.measures,
            "tokens_per_second": round(tokens_per_second),
            "seconds": round(progress.seconds, 3),
        }
        if progress.dev_metric is not None:
            line |= {"dev_metric": progress.dev_metric, "best_dev_metric": progress.best_dev_metric}
        if self.ranks.is_main:
            self.run.append_metrics(line)
        self.state.loss_sum, self.state.loss_steps, self.state.logged_step = 0.0, 0, progress.step

    def leave(self) -> NoReturn:
        """Raise Interrupted for the signal that asked for a stop, once rank 0 has written its checkpoint."""
        assert self.stop.signal is not None
        self.ranks.broadcast(None)  # none ends before the checkpoint is there
        name = signal.Signals(self.stop.signal).name
        way_out = "go on with the same command and --resume"
        raise Interrupted(self.stop.signal, f"stopped by {name} at step {self.state.step:,}; {way_out}")
