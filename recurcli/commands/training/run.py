"""What `recur pretrain` and `recur finetune` have in common: a prepared training in its run directory, start to end."""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import torch

from recurcli.commands.training.report import machine_facts, notes_on_room, plan_of, result_of
from recurcli.commands.training.setup import Prepare, Section, TrainingRequest, TrainingSetup, stored_preset
from recurcli.distributed.group import Ranks, current
from recurcli.encoders import encoder_class
from recurcli.errors import StorageError, UsageError
from recurcli.evaluation.metrics import METRICS
from recurcli.events import Finished, Note, Progress
from recurcli.facts import first_difference, require_same
from recurcli.files import write_atomically
from recurcli.model.device import autocast, choose_device
from recurcli.preset import Preset, ResolvedPreset
from recurcli.preset.strict_yaml import dump, flatten
from recurcli.runs.model_card import model_card
from recurcli.runs.model_files import write_model
from recurcli.runs.run_directory import RunDirectory, RunStatus
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import Plan, TrainingLoop, TrainingState
from recurcli.training.optimizer import build_optimizer
from recurcli.training.session import Session, StopTraining
from recurcli.training.signals import StopRequest, stop_requests
from recurcli.validation import InvalidConfig, parse_config

Event = Note | Progress | Finished

FREE_KEYS = ("runtime.device", "runtime.precision", "runtime.threads", "runtime.compile", "data.path")
"""Keys that may differ between a run and its resume; the data themselves are compared by their hash."""
FREE_ENDINGS = (".checkpoint_every", ".keep_checkpoints", ".log_every")


def run_training(request: TrainingRequest, section: Section, prepare: Prepare) -> Iterator[Event]:
    """Admit, prepare, train, finish: yields notes and progress, and the result at last."""
    preset = request.resolved.preset
    _check_encoder(request.resolved)
    ranks = current()
    device = choose_device(preset.runtime.device, ranks)
    if preset.runtime.threads is not None:
        torch.set_num_threads(preset.runtime.threads)
    if request.dry_run:
        prepared = yield from _prepared(prepare(request, device))
        yield Finished(plan_of(request, section, prepared, device))
        return
    run = RunDirectory(request.output)
    facts = preset_facts(preset.to_dict(), section)
    ranks.connect(device)
    with _admitted(run, request, section, facts, ranks) as standing:
        if standing == "finished":
            result = ranks.broadcast(run.read_result() if ranks.is_main else None)
            yield Note(f"{run.path} is finished; nothing to do")
            yield Finished(result)
            return
        prepared = yield from _prepared(prepare(request, device))
        with _way_out_of_a_full_disk(), stop_requests(ranks) as stop:
            session = _session(run, preset, section, prepared, device, stop, facts)
            _refuse_other_ranks(session, prepared)
            if ranks.is_main:
                if standing == "new":
                    run.clear()
                write_atomically(run.preset, dump(preset.to_dict()))  # from here on the folder is a run
                ranks.mark_started()
                yield from notes_on_room(run, prepared.model, section, getattr(preset, section).keep_checkpoints)
            yield from session.restore()
            yield from session.train()
            yield Finished(_finish(session, request, section, prepared))


@contextlib.contextmanager
def _way_out_of_a_full_disk() -> Iterator[None]:
    """What the disk refused, with what to do then: all that was saved before is whole."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{error}; then go on with the same command and --resume") from None


@contextlib.contextmanager
def _admitted(
    run: RunDirectory, request: TrainingRequest, section: Section, facts: Mapping[str, Any], ranks: Ranks
) -> Iterator[RunStatus]:
    """How the training stands to its run directory, which the first process locks for the block."""
    if not ranks.is_main:
        yield ranks.broadcast(None)
        return
    begun = (
        ranks.was_started()
    )  # torchrun starts anew with the same words: not to be refused, nor to overwrite its own run
    resume, overwrite = request.resume or begun, request.overwrite and not begun
    run.admit(resume=resume, overwrite=overwrite)  # before a lock file is made; and again under the lock
    with run.lock():
        standing = run.admit(resume=resume, overwrite=overwrite)
        if standing != "new":
            require_same(preset_facts(stored_preset(run.path), section), facts, run.path)
        yield ranks.broadcast(standing)


def _refuse_other_ranks(session: Session, prepared: TrainingSetup) -> None:
    """Refuse to train with processes that have read other data, or compute in another way, than the first one."""
    ranks = session.ranks
    own = {
        **session.must_match,
        **session.should_match,
        "vocabulary": sha256(prepared.tokenizer.to_json().encode()).hexdigest(),
    }
    del own["threads"]  # machines differ in that
    first, *others = ranks.all_gather(own)
    for rank, other in enumerate(others, 1):
        if difference := first_difference(first, other):
            raise UsageError(f"rank 0 and rank {rank} must be alike: {difference}")


def _check_encoder(resolved: ResolvedPreset) -> None:
    """Refuse values that the encoder's own Config refuses, before any data are read."""
    values = {key: value for key, value in resolved.preset.encoder.items() if key != "name"}
    try:
        parse_config(encoder_class(resolved.preset.encoder["name"]).Config, values)
    except InvalidConfig as fault:
        raise resolved.located(InvalidConfig(("encoder", *fault.path), fault.reason)) from None


def _prepared(steps: Iterator[Note | TrainingSetup]) -> Generator[Note, None, TrainingSetup]:
    """Pass the notes on; the value of the generator is what was prepared."""
    for step in steps:
        if isinstance(step, TrainingSetup):
            return step
        yield step
    raise AssertionError("a prepare function ends with what it prepared")


def preset_facts(values: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """The keys of a preset that a resume must match, as dotted paths."""
    other = "finetuning" if section == "pretraining" else "pretraining"
    pairs = ((".".join(path), value) for path, value in flatten(values) if path[0] != other)
    return {key: value for key, value in pairs if key not in FREE_KEYS and not key.endswith(FREE_ENDINGS)}


def _session(
    run: RunDirectory,
    preset: Preset,
    section: Section,
    prepared: TrainingSetup,
    device: torch.device,
    stop: StopRequest,
    facts: Mapping[str, Any],
) -> Session:
    config: OptimizationConfig = getattr(preset, section)
    prepared.model.to(device)
    if preset.runtime.compile:
        prepared.model.encoder.compile(dynamic=True)  # one graph for all lengths
    fitting = TrainingLoop(
        model=prepared.model,
        optimizer=build_optimizer(prepared.model, config),
        objective=prepared.objective,
        plan=Plan(prepared.objective.lengths, config, preset.runtime.seed),
        device=device,
        autocast=partial(autocast, device, preset.runtime.precision),
        evaluate=None if prepared.evaluate is None else partial(prepared.evaluate, stop),
        evaluate_every=getattr(config, "evaluate_every", None),
        patience=getattr(config, "patience", None),
        ranks=stop.ranks,
    )
    data_facts = {
        f"{split} {key}": facts[key] for split, facts in prepared.data.items() for key in ("sha256", "rows", "dropped")
    }
    origin = {"labels": list(prepared.config.labels), "--init sha256": prepared.init_sha256}
    return Session(
        run=run,
        fitting=fitting,
        must_match={**facts, **data_facts, **origin},
        should_match=machine_facts(device, preset, stop.ranks),
        publish=partial(write_model, run.path, prepared.config, prepared.tokenizer),
        stop=stop,
        state=TrainingState(),
    )


def _finish(session: Session, request: TrainingRequest, section: Section, prepared: TrainingSetup) -> dict[str, Any]:
    """Make the run's model the best one (or the last, where nothing is scored), and write what describes it."""
    ranks = session.ranks
    if session.best is not None:
        prepared.model.load_state_dict(session.best)
    ranks.broadcast_(list(prepared.model.state_dict().values()))
    if ranks.is_main:
        session.publish(prepared.model.state_dict())
    try:
        scores = prepared.finish(session.run.path, session.stop)
    except StopTraining:
        session.leave()
    if not ranks.is_main:
        return ranks.broadcast(None)
    result = result_of(request, section, prepared, session, scores)
    write_atomically(
        session.run.path / "README.md", model_card(result, {name: metric.words for name, metric in METRICS.items()})
    )
    session.run.write_result(result)
    return ranks.broadcast(session.run.read_result())
