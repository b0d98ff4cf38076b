"""The trainer of `recur pretrain` and `recur finetune`: enter the run directory, train the candidates, finish.

The two commands read their data and objectives between `enter_run` and `Training.execute`.
"""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any

import safetensors
import tokenizers
import torch

from recurcli.commands.training.report import model_card, notes_on_result
from recurcli.commands.training.resume import check_inputs, facts_before_and_now, preset_facts
from recurcli.config import RunConfig
from recurcli.data.known import KnownRows
from recurcli.device import choose_device, choose_precision, cuda_settings
from recurcli.distributed.group import current
from recurcli.encoders.registry import encoder_config
from recurcli.errors import Interrupted, NumericError, StorageError, UsageError
from recurcli.evaluation.inference import DevPerplexity
from recurcli.files import MANIFEST, to_json
from recurcli.log import Log
from recurcli.models.candidate import Candidate
from recurcli.models.choice import Choice
from recurcli.models.linear import Linear
from recurcli.preset import Preset, ResolvedPreset
from recurcli.requests.training import TrainingRequest
from recurcli.runs.model_files import Files, known_to_bytes, write_model
from recurcli.runs.run_directory import (
    KEPT,
    KNOWN_ROWS,
    PREDICTIONS,
    RunDirectory,
    RunStatus,
    check_same,
    checkpoint_folders,
    finish_change,
    first_difference,
)
from recurcli.training.session import Session, StopRequest, StopTraining
from recurcli.training.trackers import Add, tracking
from recurcli.validation import InvalidConfig, flatten, parse_config
from recurcli.version import __version__


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
        parse_config(encoder_config(values.pop("name")), values)
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None


NO_STEPS: Mapping[str, Any] = {
    **dict.fromkeys(("best_step", "tokens", "tokens_per_second"), 0),
    **dict.fromkeys(("epochs", "seconds", "cpu_seconds"), 0.0),
}
"""What result.json has of a training that takes no steps."""


@dataclass(kw_only=True)
class Training:
    """A training run that is ready to start: all data are read and the candidates are built."""

    run: RunDirectory
    stop: StopRequest
    request: TrainingRequest
    resolved: ResolvedPreset
    """The preset that preset.yaml holds: as it was given, with the static vectors that were found."""
    preset: Preset
    """The preset with a value for each `auto` that the rows decide."""
    status: RunStatus
    device: torch.device
    config: RunConfig
    """The content of config.json."""
    candidates: Sequence[Candidate]
    """The models that are trained. The run keeps one of them, or an ensemble. Only rank 0 has the linear model."""
    data: Mapping[str, Mapping[str, Any]]
    """By split: path, sha256, and the numbers of rows, dropped rows, bad rows and truncated rows."""
    dev: Choice | DevPerplexity | None = None
    """What chooses the model by dev data, and scores it. None in masked pre-training, which keeps the last model."""
    known: KnownRows | None = None
    """The rows that the training reads and those that select its model. None in masked pre-training, which reads dev and test
    texts too, with `keep_texts: false`, and where the rows of the run of --init are not known."""
    teacher: Mapping[str, Any] | None = None
    init_sha256: str | None = None
    is_of_user: bool = True
    """Whether the user knows the run directory. False: it is that of an estimator or of a trial."""
    has_published: bool = False

    @property
    def linear(self) -> Linear | None:
        """The linear model beside the encoder. It is the whole model until the encoder is trained, if it can be kept."""
        return None if self.dev is None else self.dev.linear

    def execute(self, log: Log) -> dict[str, Any]:
        """Train to the end, from the newest checkpoint if there is one, and return the result. A dry run returns its plan."""
        self._note_on_size(log)
        if self.request.dry_run:
            return self._plan()
        ranks, values, command = current(), self.resolved.preset.to_dict(), self.request.command
        try:
            with self.stop.listening():
                begin = self._session()
                if ranks.is_main and self.status == "new":
                    self.run.start()
                    self.run.write_preset(values, command)
                for candidate in self.candidates:
                    candidate.restore(begin, self.publish, log)
                if ranks.is_main and self.status != "new":
                    self.run.write_preset(values, command)
                if isinstance(self.dev, Choice) and self.dev.linear is not None:  # on rank 0 alone
                    if self.dev.linear.may_be_kept and not self.run.has(MANIFEST):
                        self.publish({})
                    if self.dev.encoder is not None:  # else the result comes at once
                        log.note(self.dev.linear_in_words(self.dev.linear))
                        if self.dev.linear.may_be_kept and self.is_of_user and self.run.replaces is None:
                            folder = quote(str(self.request.folder))
                            log.note(f"it can be used while the encoder trains: recur predict {folder} NEW.txt")
                trackers = self.request.track if ranks.is_main else None
                title, settled = self.request.folder.name, self.preset.to_dict()
                with tracking(trackers or (), self.run, title, settled, log) as track:
                    for candidate in self.candidates:
                        candidate.train(track, log)
                    log.stage("scoring and writing the model")
                    self._finish(track)
                result = self._take_place()
                for candidate in self.candidates:
                    candidate.notes(result, log)
                notes_on_result(result, log)
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

    def _note_on_size(self, log: Log) -> None:
        """Log a note on the size that `--match-parameters` has found."""
        if self.request.matching is not None:
            matched = self.request.matching[1]
            keys = ", ".join(f"encoder.{key} {value:,}" for key, value in matched["keys"].items())
            count, target = matched["parameters"], matched["target"]
            log.note(
                f"--match-parameters: {keys}, with {count:,} encoder parameters, {count / target - 1:+.1%} of {target:,}"
            )

    def _facts(self) -> dict[str, Any]:
        """Return what a plan and a result have in common."""
        return {
            "command": self.request.command,
            "preset": self.resolved.name,
            "data": self.data,
            "parameters": {"embedding": 0, "total": 0},
            "forward_flops_per_token": None,
            "steps": 0,
            "match_parameters": self.request.matching and self.request.matching[1],
            "machine": machine_facts(self.device, self.preset),
        }

    def _plan(self) -> dict[str, Any]:
        """Return the plan that a dry run prints: data, model size, steps and machine."""
        plan = {
            **self._facts(),
            "output": str(self.request.folder),
            "values": self.resolved.preset.to_dict(),
        }
        for candidate in self.candidates:
            plan |= candidate.plan()
        return plan

    def _result(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of result.json: settings, data, speed, and the dev metrics in `report`."""
        request, preset, given = self.request, self.preset, dict(flatten(self.resolved.preset.to_dict()))
        holds = [name for candidate in self.candidates for name in candidate.holds]
        holds += [KNOWN_ROWS] if self.known is not None else []
        holds += [PREDICTIONS] if request.section == "finetuning" and preset.finetuning.keep_texts else []
        result = {
            **self._facts(),
            **NO_STEPS,
            "task": preset.task,
            "pairs": bool(self.config.source.get("columns", {}).get("pair")),
            "encoder": preset.encoder["name"],
            "seed": preset.runtime.seed,
            **report,
            "settled": {".".join(key): value for key, value in flatten(preset.to_dict()) if value != given.get(key)},
            "holds": holds,
            "checkpoints_kept": request.keep_checkpoints,
            "init": None if request.init is None else str(request.init.absolute()),
            "teacher": self.teacher,
            "versions": {
                "recurcli": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "tokenizers": tokenizers.__version__,
                "safetensors": safetensors.__version__,
            },
            "command_line": sys.argv,
        }
        for candidate in self.candidates:
            result |= candidate.result()
        return result

    def _session(self) -> Callable[..., Session]:
        """Return a function that makes the session of a candidate's loop.

        Raises UsageError if a rank differs from rank 0 in its data, preset or machine facts.
        """
        preset = self.resolved.preset
        facts = {
            f"{split} {key}": facts[key] for split, facts in self.data.items() for key in ("sha256", "rows", "dropped")
        }
        facts |= {"labels": self.config.labels, "--init sha256": self.init_sha256}
        if self.teacher is not None:
            facts["teacher sha256"] = self.teacher["sha256"]
        for candidate in self.candidates:
            facts |= candidate.facts()
        environment = {name: value for name, value in machine_facts(self.device, preset).items() if name not in facts}
        resume_key = {**preset_facts(preset.to_dict(), self.request.section), **facts}
        of_rank = {**resume_key, **environment}
        del of_rank["threads"]  # may differ between machines
        first, *others = current().all_gather(of_rank)
        for rank, other in enumerate(others, 1):
            if difference := first_difference(first, other):
                way_out = "give all ranks the same data and options"
                raise UsageError(f"rank {rank} differs from rank 0: {difference}; {way_out}")
        linear = None if self.dev is None or self.linear is None else self.linear.scores[self.dev.metric_name]
        return partial(
            Session,
            run=self.run,
            stop=self.stop,
            linear_dev_metric=linear,
            resume_key=resume_key,
            environment=environment,
        )

    def publish(self, changed: Files) -> None:
        """Write the model of the run with the `changed` files. The first one brings all files of the candidates."""
        files: dict[str, Any] = {}
        if not self.has_published:
            files[KNOWN_ROWS] = known_to_bytes(self.known)
            for candidate in self.candidates:
                files |= candidate.files()
            if isinstance(self.dev, Choice):
                files[KEPT] = to_json(self.dev.first_kept.to_json())
        write_model(self.run.path, self.config, {**files, **changed}, first=not self.has_published)
        self.has_published = True

    def _finish(self, track: Add) -> None:
        """Write the model, its predictions and result.json."""
        ranks, changed = current(), dict[str, Any]()
        for candidate in self.candidates:
            changed |= candidate.finish()
        try:
            self.stop.raise_if_agreed()
            if ranks.is_main and (changed or not self.has_published):
                self.publish(changed)
            report = {} if self.dev is None else self.dev.decide_and_score(self.run.path)
        except StopTraining:
            self.stop.leave(self.run.way_on)
        if ranks.is_main:
            result = self._result(report)
            self.run.write_result(result, model_card(result))
            track({"result": result}, result["steps"] + 1)

    def _take_place(self) -> dict[str, Any]:
        """Put the finished run in the place of the one before, and return its result.

        The checkpoints are removed, unless they are to be kept.
        """
        ranks, run = current(), RunDirectory(self.request.folder)
        if ranks.is_main:
            finish_change(run.path)
            if not self.request.keep_checkpoints:
                run.remove_checkpoints()
        return ranks.broadcast(run.read_result() if ranks.is_main else None)


def machine_facts(device: torch.device, preset: Preset) -> dict[str, Any]:
    """Return the facts about the machine that a bit-identical result depends on."""
    return {
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "device": device.type,
        "precision": choose_precision(preset.runtime.precision, device),
        "threads": torch.get_num_threads(),
        "compile": preset.runtime.compile,
        "world size": current().world_size,
    }
