"""What `recur pretrain` and `recur finetune` have in common: a prepared training in its run directory, start to end."""

import math
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import safetensors
import tokenizers
import torch

from recurcli import __version__
from recurcli.data.examples import Split
from recurcli.data.tokenizer import Tokenizer, Tokens
from recurcli.data.vectors import read_vectors
from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.encoders import encoder_class
from recurcli.errors import UsageError
from recurcli.evaluation.model_card import model_card
from recurcli.evaluation.trained import write_model
from recurcli.files import write_atomically
from recurcli.model.config import ModelConfig
from recurcli.model.device import autocast, choose_device, choose_precision
from recurcli.model.models import Classifier, MaskedTokenModel
from recurcli.model.saved import count_parameters, total_bytes
from recurcli.preset import Preset, ResolvedPreset
from recurcli.preset.strict_yaml import dump, leaves, read_mapping
from recurcli.training.checkpoint import refuse_other_facts
from recurcli.training.config import OptimizationConfig
from recurcli.training.events import Finished, Note
from recurcli.training.fit import Fitting, Plan, Progress, TrainingState
from recurcli.training.objectives import Objective
from recurcli.training.optimizer import build_optimizer
from recurcli.training.run_directory import RunDirectory
from recurcli.training.seeding import seed_weights
from recurcli.training.session import Session, StopTraining
from recurcli.training.signals import StopRequest, stop_requests
from recurcli.validation import InvalidConfig, parse_config

Event = Note | Progress | Finished
Model = TypeVar("Model", Classifier, MaskedTokenModel)
Section = Literal["pretraining", "finetuning"]

FREE_KEYS = ("runtime.device", "runtime.precision", "runtime.threads", "runtime.compile", "data.path")
"""Keys that may differ between a run and its resume; the data themselves are compared by their hash."""
FREE_ENDINGS = (".checkpoint_every", ".keep_checkpoints", ".log_every")


@dataclass(frozen=True)
class TrainingRequest:
    """What the command line asks for."""

    resolved: ResolvedPreset
    output: Path
    init: Path | None = None
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Prepared:
    """A training that is ready to run: everything that had to be read has been read."""

    model: Classifier | MaskedTokenModel
    objective: Objective
    tokenizer: Tokenizer
    config: ModelConfig
    data: dict[str, dict[str, Any]]
    """For each split: path, rows, sha256, and what was dropped or truncated."""
    evaluate: Callable[[StopRequest], float] | None = None
    """The dev score of `model` as it is; asks the StopRequest between two batches."""
    finish: Callable[[Path], dict[str, Any]] = field(default=lambda folder: {})
    """Writes what belongs beside the final model, and returns its scores."""


Prepare = Callable[[TrainingRequest, torch.device], Iterator[Note | Prepared]]


def run_training(request: TrainingRequest, section: Section, prepare: Prepare) -> Iterator[Event]:
    """Admit, prepare, train, finish: yields notes and progress, and the result at last."""
    preset = request.resolved.preset
    _check_encoder(request.resolved)
    device = choose_device(preset.runtime.device)
    if preset.runtime.threads is not None:
        torch.set_num_threads(preset.runtime.threads)
    if request.dry_run:
        prepared = yield from _prepared(prepare(request, device))
        yield Finished(_plan_of(request, section, prepared, device))
        return
    run = RunDirectory(request.output)
    facts = preset_facts(preset.to_dict(), section)
    with run.lock():
        standing = run.admit(resume=request.resume, overwrite=request.overwrite)
        if standing != "new":
            stored, _ = read_mapping(run.preset)
            refuse_other_facts(preset_facts(stored, section), facts, run.path)
        if standing == "finished":
            yield Note(f"{run.path} is finished; nothing to do")
            yield Finished(run.read_result())
            return
        prepared = yield from _prepared(prepare(request, device))
        if standing == "new":
            run.begin(dump(preset.to_dict()))
        with stop_requests() as stop:
            session = _session(run, preset, section, prepared, device, stop, facts)
            yield from session.restore()
            yield from session.train()
            yield Finished(_finish(session, request, section, prepared, device))


def _check_encoder(resolved: ResolvedPreset) -> None:
    """Refuse values that the encoder's own Config refuses, before any data are read."""
    values = {key: value for key, value in resolved.preset.encoder.items() if key != "name"}
    try:
        parse_config(encoder_class(resolved.preset.encoder["name"]).Config, values)
    except InvalidConfig as fault:
        raise resolved.located(InvalidConfig(("encoder", *fault.path), fault.reason)) from None


def _prepared(steps: Iterator[Note | Prepared]) -> Generator[Note, None, Prepared]:
    """Pass the notes on; the value of the generator is what was prepared."""
    for step in steps:
        if isinstance(step, Prepared):
            return step
        yield step
    raise AssertionError("a prepare function ends with what it prepared")


def preset_facts(values: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """The keys of a preset that a resume must match, as dotted paths."""
    other = "finetuning" if section == "pretraining" else "pretraining"
    pairs = ((".".join(path), value) for path, value in leaves(values) if path[0] != other)
    return {key: value for key, value in pairs if key not in FREE_KEYS and not key.endswith(FREE_ENDINGS)}


def _session(
    run: RunDirectory,
    preset: Preset,
    section: Section,
    prepared: Prepared,
    device: torch.device,
    stop: StopRequest,
    facts: Mapping[str, Any],
) -> Session:
    config: OptimizationConfig = getattr(preset, section)
    prepared.model.to(device)
    if preset.runtime.compile:
        prepared.model.encoder.compile()
    fitting = Fitting(
        model=prepared.model,
        optimizer=build_optimizer(prepared.model, config),
        objective=prepared.objective,
        plan=Plan(prepared.objective.lengths, config, preset.runtime.seed),
        device=device,
        autocast=partial(autocast, device, preset.runtime.precision),
        evaluate=None if prepared.evaluate is None else partial(prepared.evaluate, stop),
        evaluate_every=getattr(config, "evaluate_every", None),
        patience=getattr(config, "patience", None),
    )
    data_facts = {
        f"{split} {key}": facts[key] for split, facts in prepared.data.items() for key in ("sha256", "rows", "dropped")
    }
    labels = {"labels": list(prepared.config.labels)}
    return Session(
        run=run,
        fitting=fitting,
        fixed={**facts, **data_facts, **labels},
        noted=machine_facts(device, preset),
        publish=partial(write_model, run.path, prepared.config, prepared.tokenizer),
        stop=stop,
        state=TrainingState(),
    )


def machine_facts(device: torch.device, preset: Preset) -> dict[str, Any]:
    """What a run's bits depend on besides preset and data."""
    return {
        "torch": torch.__version__,
        "device": device.type,
        "precision": choose_precision(preset.runtime.precision, device),
        "threads": torch.get_num_threads(),
        "compile": preset.runtime.compile,
        "world size": 1,
    }


def _finish(
    session: Session, request: TrainingRequest, section: Section, prepared: Prepared, device: torch.device
) -> dict[str, Any]:
    """Make the run's model the best one (or the last, where nothing is scored), and write what describes it."""
    preset, state = request.resolved.preset, session.state
    if session.best is not None:
        prepared.model.load_state_dict(session.best)
    session.publish(prepared.model.state_dict())
    result = {
        "command": "pretrain" if section == "pretraining" else "finetune",
        "preset": request.resolved.name,
        "task": preset.task,
        "encoder": preset.encoder["name"],
        "seed": preset.runtime.seed,
        **prepared.finish(session.run.path),
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "epochs": round(state.step / session.fitting.plan.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": count_parameters(prepared.model),
        "init": None if request.init is None else str(request.init.absolute()),
        "data": prepared.data,
        "machine": machine_facts(device, preset),
        "versions": versions(),
        "command_line": sys.argv,
    }
    write_atomically(session.run.path / "README.md", model_card(result))
    session.run.write_result(result)
    return session.run.read_result()


def _plan_of(request: TrainingRequest, section: Section, prepared: Prepared, device: torch.device) -> dict[str, Any]:
    """What a dry run tells: what would be read, built and done."""
    preset = request.resolved.preset
    config: OptimizationConfig = getattr(preset, section)
    plan = Plan(prepared.objective.lengths, config, preset.runtime.seed)
    weights = total_bytes(prepared.model.state_dict())
    learning = sum(p.numel() * p.element_size() for p in prepared.model.parameters() if p.requires_grad)
    mean_length = max(1, math.ceil(prepared.objective.lengths.mean()))
    return {
        "command": "pretrain" if section == "pretraining" else "finetune",
        "preset": request.resolved.name,
        "output": str(request.output),
        "values": preset.to_dict(),
        "data": prepared.data,
        "vocabulary": prepared.tokenizer.vocab_size,
        "mean_length": round(float(prepared.objective.lengths.mean()), 1),
        "parameters": count_parameters(prepared.model),
        "forward_flops_per_token": round(forward_flops_per_token(prepared.config, mean_length)),
        "steps_per_epoch": plan.steps_per_epoch,
        "steps": plan.total_steps,
        "checkpoint_bytes": weights + 2 * learning + (weights if section == "finetuning" else 0),
        "machine": machine_facts(device, preset),
    }


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    return {
        "recurcli": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "safetensors": safetensors.__version__,
    }


def texts_of(*splits: Split) -> Iterator[str]:
    """Every text of the splits, the second ones of pairs too: what a vocabulary is made from."""
    for split in splits:
        for example in split.examples:
            yield example.text
            if example.pair is not None:
                yield example.pair


def encode_split(split: Split, tokenizer: Tokenizer, max_length: int) -> Tokens:
    """The rows of `split` as ids."""
    return tokenizer.encode([(example.text, example.pair) for example in split.examples], max_length)


def describe_split(split: Split, tokens: Tokens) -> dict[str, Any]:
    """What a result says of the rows that were read."""
    return {
        "path": None if split.path is None else str(split.path),
        "rows": len(split.examples),
        "sha256": split.sha256,
        "dropped": split.dropped,
        "bad": len(split.bad),
        "truncated": tokens.truncated,
    }


def notes_on(name: str, split: Split, tokens: Tokens, max_length: int) -> Iterator[Note]:
    """Rows that were not used as they stand: none of them is lost in silence."""
    if split.bad:
        yield Note(f"{name}: {len(split.bad):,} bad rows skipped, the first: {split.bad[0]}", "warning")
    if split.dropped:
        yield Note(
            f"{name}: {split.dropped:,} rows without a majority label ('-') dropped, {len(split.examples):,} kept"
        )
    if tokens.truncated:
        share = tokens.truncated / len(tokens)
        yield Note(f"{name}: {tokens.truncated:,} rows ({share:.1%}) cut to data.max_length {max_length}")


def model_config(preset: Preset, tokenizer: Tokenizer, labels: tuple[str, ...], columns: dict[str, str]) -> ModelConfig:
    """The architecture that a preset and a vocabulary make."""
    return ModelConfig(
        encoder=preset.encoder,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=preset.data.max_length,
        embedding_dropout=preset.embedding.dropout,
        pooling=preset.pooling,
        labels=labels,
        task=preset.task,
        columns=columns,
    )


def build_model(
    kind: type[Model], config: ModelConfig, preset: Preset, tokenizer: Tokenizer
) -> Generator[Note, None, Model]:
    """A model with fresh weights from the run's seed, and with the pre-trained word vectors that the preset names."""
    seed_weights(preset.runtime.seed)
    model = kind(config)
    if preset.embedding.vectors is not None:
        path = Path(preset.embedding.vectors)
        vectors = read_vectors(path, tokenizer.tokens)
        width = vectors.matrix.shape[1]
        if width != model.embedding.weight.shape[1]:
            raise UsageError(
                f"{path}: has vectors of {width} numbers; encoder.hidden_size asks for {config.hidden_size}"
            )
        model.embedding.use_vectors(torch.from_numpy(vectors.matrix), torch.from_numpy(vectors.known))
        yield Note(f"{path.name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
        model.embedding.weight.requires_grad_(not preset.embedding.freeze)
    return model


def ask_to_stop(stop: StopRequest) -> None:
    """Leave an evaluation when a signal has come."""
    if stop:
        raise StopTraining
