"""The trainer of `recur pretrain` and `recur finetune`: enter the run directory, resolve each `auto`, build the model and its
loop, train, finish.

The two commands read their data and objectives between `enter_run` and `Training.execute`.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from recurcli.commands.training.report import (
    machine_facts,
    model_card,
    notes_on_disk_space,
    notes_on_model,
    notes_on_result,
    plan_of,
    result_of,
)
from recurcli.commands.training.resume import check_inputs, facts_before_and_now, preset_facts
from recurcli.data.known import KnownRows
from recurcli.device import choose_device, cuda_settings
from recurcli.distributed.group import current
from recurcli.encoders import PRETRAINED, encoder_class
from recurcli.encoders.folder import folder_of, weight_files
from recurcli.errors import Interrupted, NumericError, StorageError, UsageError
from recurcli.evaluation.report import DevPerplexity
from recurcli.files import MANIFEST, sha256_of, to_json
from recurcli.log import Log
from recurcli.metrics import format_score, words_of
from recurcli.models.choice import Choice
from recurcli.models.linear import Linear
from recurcli.preset import Preset, ResolvedPreset
from recurcli.requests.training import TrainingRequest
from recurcli.runs.model_files import known_to_bytes, write_model
from recurcli.runs.run_directory import (
    KEPT,
    KNOWN_ROWS,
    LINEAR_MODEL,
    VECTORS,
    RunDirectory,
    RunStatus,
    check_same,
    checkpoint_folders,
    finish_change,
    first_difference,
)
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.fit import TrainingLoop
from recurcli.training.session import Session, StopRequest, StopTraining
from recurcli.training.trackers import tracking
from recurcli.validation import InvalidConfig, parse_config


@contextlib.contextmanager
def enter_run(
    request: TrainingRequest, resolved: ResolvedPreset
) -> Iterator[tuple[RunDirectory, RunStatus, torch.device]]:
    """Lock the run directory within the block (on rank 0); yields the run to write, its status and the device.

    A dry run has the status "new" and writes no file. Raises UsageError if the encoder rejects its keys, if the training
    would replace what it reads, or if the run cannot be resumed with this preset.
    """
    preset, ranks, run = resolved.preset, current(), RunDirectory(request.folder)
    check_encoder(resolved)
    if not request.resume and ranks.is_main:
        check_inputs(run.path, preset, request.init)
    device = choose_device(preset.runtime.device, ranks)
    if preset.runtime.threads is not None:
        torch.set_num_threads(preset.runtime.threads)
    own = preset.runtime
    with cuda_settings(device, preset.encoder["name"], deterministic=own.deterministic, tf32=own.tf32):
        if request.dry_run:
            yield run, "new", device
            return
        ranks.connect(device)
        if not ranks.is_main:
            yield run, ranks.broadcast(None), device
            return
        check = partial(run.check_output, request.command, resume=request.resume, overwrite=request.overwrite)
        check()  # before a lock file is made; and again under the lock
        with run.lock():
            written, status = check()
            if request.resume and status == "unfinished" and not checkpoint_folders(written.checkpoints):
                check_inputs(run.path, preset, request.init)  # a checkpoint compares what the training reads
            if status != "new":
                check_same(*facts_before_and_now(written, preset.to_dict(), request.section), run.path)
            try:
                yield written, ranks.broadcast(status), device
            except Interrupted as stop:
                if not hasattr(stop, "__notes__"):  # a stop in training says itself how to continue
                    stop.add_note("run the same command again")
                raise


def check_encoder(resolved: ResolvedPreset) -> None:
    """Raise UsageError if the encoder's Config rejects a value. This runs before any data are read."""
    values = {**resolved.preset.encoder}
    try:
        parse_config(encoder_class(values.pop("name")).Config, values)
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None


@dataclass(kw_only=True)
class Training:
    """A training run that is ready to start: all data are read and the model is built."""

    run: RunDirectory
    loop: TrainingLoop
    stop: StopRequest
    request: TrainingRequest
    resolved: ResolvedPreset
    """The preset as it was given, which preset.yaml holds."""
    preset: Preset
    """The preset with a value for each `auto` that the rows decide."""
    status: RunStatus
    tokenizer: Tokenizer
    data: dict[str, dict[str, Any]]
    """By split: path, sha256, and the numbers of rows, dropped rows, bad rows and truncated rows."""
    dev: Choice | DevPerplexity | None = None
    """What chooses the model by dev data, and scores it. None in masked pre-training, which keeps the last model."""
    known: KnownRows | None = None
    """The rows that the training reads and those that select its model. None in masked pre-training, which reads dev and test
    texts too, and in a dry run."""
    teacher: Mapping[str, Any] | None = None
    init_sha256: str | None = None
    has_published: bool = False

    @property
    def linear(self) -> Linear | None:
        """The linear model beside the encoder. It is the whole model until the encoder is trained, if it can be kept."""
        return None if self.dev is None else self.dev.linear

    def execute(self, log: Log) -> dict[str, Any]:
        """Train to the end, from the newest checkpoint if there is one, and return the result. A dry run returns its plan."""
        notes_on_model(self, log)
        if self.request.dry_run:
            return plan_of(self)
        ranks, values, command = self.loop.ranks, self.resolved.preset.to_dict(), self.request.command
        try:
            with self.stop.listening():
                session = self.session()
                session.resume_key, session.environment = self._resume_facts()
                if ranks.is_main:
                    if self.status == "new":
                        self.run.start()
                        self.run.write_preset(values, command)
                    notes_on_disk_space(self, log)
                session.restore(log)
                if ranks.is_main and self.status != "new":
                    self.run.write_preset(values, command)
                if self.linear is not None and self.dev is not None:  # on rank 0 alone
                    if self.linear.may_be_kept and not self.run.has(MANIFEST):
                        self.publish(self.loop.model.state_dict())
                    metric = self.dev.metric_name
                    score = format_score(metric, self.linear.scores[metric])
                    log.note(f"dev {words_of(metric)} of the linear model: {score}")
                trackers = self.request.track if ranks.is_main else None
                title, settled = self.request.folder.name, self.preset.to_dict()
                with tracking(trackers or (), self.run, title, settled, log) as session.track:
                    session.train(log)
                    log.stage("scoring and writing the model")
                    self._finish(session)
                result = self._take_place()
                notes_on_result(self, result, log)
                return result
        except (Interrupted, NumericError) as stop:
            if self.run.replaces is not None:
                old, new = self.run.replaces, self.run.path
                stop.add_note(f"{old} is still the run before; delete {new} to give the new one up")
            elif isinstance(stop, Interrupted) and self.linear and self.linear.may_be_kept and self.run.has(MANIFEST):
                stop.add_note(
                    f"until then `recur predict {quote(str(self.request.folder))}` labels by the linear model"
                )
            raise
        except StorageError as error:
            error.add_note(f"then {self.run.way_on}")
            raise

    def session(self) -> Session:
        """Return the session that trains `loop` and stores its state in `run`."""
        linear = None if self.dev is None or self.linear is None else self.linear.scores[self.dev.metric_name]
        return Session(run=self.run, loop=self.loop, stop=self.stop, publish=self.publish, linear_dev_metric=linear)

    def _resume_facts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the facts that a resume must match, and those that it should match.

        Raises UsageError if a rank differs from rank 0 in its data, preset or machine facts.
        """
        preset, config = self.resolved.preset, self.loop.model.config
        data = {
            f"{split} {key}": facts[key] for split, facts in self.data.items() for key in ("sha256", "rows", "dropped")
        }
        origin = {
            "labels": config.labels,
            "--init sha256": self.init_sha256,
            **({} if self.teacher is None else {"teacher sha256": self.teacher["sha256"]}),
            "vocabulary sha256": sha256(self.tokenizer.to_json().encode()).hexdigest(),
            "max_length": config.max_length,  # these four are what `auto` and null came to
            "steps": self.loop.total_steps,
            "learning_rate": self.loop.config.learning_rate,
            "word_dropout": self.preset.finetuning.word_dropout if self.request.section == "finetuning" else None,
        }
        if preset.encoder["name"] == PRETRAINED:
            files = weight_files(folder_of(preset.encoder["path"]))
            origin["encoder.path sha256"] = [sha256_of(file) for file in files]
        machine = machine_facts(self.loop, preset)
        if self.loop.objective.carry is not None:
            origin["world size"] = machine.pop("world size")
        resume_key = {**preset_facts(preset.to_dict(), self.request.section), **data, **origin}
        facts = {**resume_key, **machine}
        del facts["threads"]  # may differ between machines
        first, *others = self.loop.ranks.all_gather(facts)
        for rank, other in enumerate(others, 1):
            if difference := first_difference(first, other):
                way_out = "give all ranks the same data and options"
                raise UsageError(f"rank {rank} differs from rank 0: {difference}; {way_out}")
        return resume_key, machine

    def publish(self, tensors: Mapping[str, Tensor]) -> None:
        """Write `tensors` as the weights of the model of the run. The first model brings the files that never change."""
        more: dict[str, bytes] = {}
        if not self.has_published:
            more[KNOWN_ROWS] = known_to_bytes(self.known)
            if self.linear is not None:
                linear = self.linear.model
                more[LINEAR_MODEL] = linear.to_bytes()
                more |= {} if linear.vectors is None else {VECTORS: linear.vectors.content}
        if self.dev is not None and self.dev.first_kept is not None:
            more[KEPT] = to_json(self.dev.first_kept.to_json()).encode()
        write_model(self.run.path, self.loop.model.config, self.tokenizer, tensors, more)
        self.has_published = True

    def _finish(self, session: Session) -> None:
        """Write the model (the best weights, or the last ones where nothing is evaluated), its predictions and result.json."""
        model, ranks = self.loop.model, self.loop.ranks
        if session.best is not None:
            model.load_state_dict(session.best)
        session.best = None
        self.loop.optimizer.state.clear()  # the linear model that is fitted again needs the memory
        if ranks.is_main:
            self.publish(model.state_dict())
        ranks.broadcast_(list(model.state_dict().values()))
        try:
            report = {} if self.dev is None else self.dev.write_report(self.run.path)
        except StopTraining:
            session.leave()
        if ranks.is_main:
            result = result_of(self, report)
            self.run.write_result(result, model_card(result))
            session.track({"result": result}, self.loop.state.step + 1)

    def _take_place(self) -> dict[str, Any]:
        """Put the finished run in the place of the one before, and return its result.

        The checkpoints are removed, unless they are to be kept.
        """
        ranks, run = self.loop.ranks, RunDirectory(self.request.folder)
        if ranks.is_main:
            finish_change(run.path)
            if not self.request.keep_checkpoints:
                run.remove_checkpoints()
        return ranks.broadcast(run.read_result() if ranks.is_main else None)
