"""The trainer of `recur pretrain` and `recur finetune`: enter the run directory, build the model and its loop, train, finish.

The two commands read their data and objectives between `enter_run` and `run_training`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

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
from recurcli.commands.training.request import (
    COMMANDS,
    Section,
    TrainingRequest,
    check_inputs,
    facts_before_and_now,
    preset_facts,
)
from recurcli.commands.training.resolve import resolve_schedule
from recurcli.distributed.group import current
from recurcli.encoders import PRETRAINED, encoder_class
from recurcli.encoders.folder import folder_of, weight_files
from recurcli.errors import Interrupted, NumericError, StorageError, UsageError, escaped
from recurcli.evaluation.metrics import MINIMIZED, format_score, words_of
from recurcli.evaluation.report import Evaluation
from recurcli.facts import check_same, first_difference
from recurcli.files import sha256_of, to_json
from recurcli.linear.ensemble import Ensemble
from recurcli.linear.model import LinearModel
from recurcli.log import Log
from recurcli.model.config import LabelType, ModelConfig
from recurcli.model.device import choose_device, choose_precision
from recurcli.model.models import Classifier, LanguageModel, part_buckets
from recurcli.model.saved import build_shapes, find_weights, load_folder
from recurcli.preset import Preset, ResolvedPreset
from recurcli.runs.model_files import KnownRows, known_to_bytes, write_model
from recurcli.runs.run_directory import ENSEMBLE, KNOWN_ROWS, LINEAR_MODEL, RunDirectory, RunStatus, checkpoint_folders
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.tokens.vectors import read_vectors
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import TrainingLoop, build_optimizer, seed_weights
from recurcli.training.objectives import Objective
from recurcli.training.session import Session, StopRequest, StopTraining
from recurcli.validation import InvalidConfig, parse_config

Model = TypeVar("Model", Classifier, LanguageModel)


@contextlib.contextmanager
def enter_run(request: TrainingRequest, section: Section) -> Iterator[tuple[RunDirectory, RunStatus, torch.device]]:
    """Lock the run directory within the block (on rank 0); yields the run to write, its status and the device.

    A dry run has the status "new" and writes no file. Raises UsageError if the encoder rejects its keys, if the training
    would replace what it reads, or if the run cannot be resumed with this preset.
    """
    preset, ranks = request.resolved.preset, current()
    check_encoder(request.resolved)
    run = RunDirectory(request.output)
    if not request.resume and ranks.is_main:
        check_inputs(request.output, preset, request.init)
    device = choose_device(preset.runtime.device, ranks)
    if preset.runtime.threads is not None:
        torch.set_num_threads(preset.runtime.threads)
    if request.dry_run:
        yield run, "new", device
        return
    ranks.connect(device)
    if not ranks.is_main:
        yield run, ranks.broadcast(None), device
        return
    # torchrun restarts processes with the same options; a restart resumes its run, whatever the options say.
    restarted = ranks.was_started()
    resume, overwrite = request.resume or restarted, request.overwrite and not restarted
    check = partial(run.check_output, COMMANDS[section], resume=resume, overwrite=overwrite)
    check()  # before a lock file is made; and again under the lock
    with run.lock():
        written, status = check()
        if request.resume and status == "unfinished" and not checkpoint_folders(written.checkpoints):
            check_inputs(request.output, preset, request.init)  # a checkpoint compares what the training reads
        if status != "new":
            try:
                check_same(*facts_before_and_now(written, preset.to_dict(), section), run.path)
            except UsageError as error:
                if written is not run:
                    what = f"the new training in {written.path} differs, not the run before"
                    error.add_note(f"{what}; delete that folder to give it up")
                raise
        try:
            yield written, ranks.broadcast(status), device
        except Interrupted as stop:
            if not hasattr(stop, "__notes__"):  # a stop in training says itself how to continue
                hint = "nothing was saved; run the same command to start again"
                stop.add_note(hint if status == "new" else "the run is unchanged; run the same command to continue it")
            raise


def check_encoder(resolved: ResolvedPreset) -> None:
    """Raise UsageError if the encoder's Config rejects a value. This runs before any data are read."""
    values = {key: value for key, value in resolved.preset.encoder.items() if key != "name"}
    try:
        parse_config(encoder_class(resolved.preset.encoder["name"]).Config, values)
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """A training run that is ready to start: all data are read and the model is built."""

    request: TrainingRequest
    section: Section
    run: RunDirectory
    """The run that is written."""
    status: RunStatus
    loop: TrainingLoop
    tokenizer: Tokenizer
    data: dict[str, dict[str, Any]]
    """By split: path, sha256, and the numbers of rows, dropped rows, bad rows and truncated rows."""
    stop: StopRequest
    dev: Evaluation | None = None
    """The evaluation on dev data that selects the best model. None in masked pre-training, which keeps the last model."""
    linear: LinearModel | None = None
    """The linear model that is kept beside the encoder. None if there is none."""
    linear_alone: Ensemble | None = None
    """The linear model as the whole model, until the encoder is trained and joined; None: it is no part of the model."""
    linear_dev_metric: float | None = None
    """The dev metric of the linear model. None if there is none."""
    known: KnownRows | None = None
    """The rows that the training reads and those that select its model. None in masked pre-training, which reads dev and test
    texts too, and in a dry run."""
    teacher: Mapping[str, Any] | None = None
    """Facts of the teacher's file; None: there is none."""
    init_sha256: str | None = None
    """sha256 of the initial weights of --init; None: random initial weights."""


def build_model(
    kind: type[Model],
    preset: Preset,
    tokenizer: Tokenizer,
    max_length: int,
    log: Log,
    labels: tuple[str, ...] = (),
    columns: Mapping[str, list[str]] | None = None,
    *,
    pairs: bool,
    label_type: LabelType = "str",
) -> Model:
    """Return a model with random initial weights, drawn with the preset's seed.

    Without `pairs` among the rows the preset's settings for pairs are left out.

    Word vectors of `embedding.vectors` are copied into its embedding. Raises UsageError if
    their size does not fit the model.
    """
    bag = preset.embedding.bag if kind is Classifier and not pairs else None
    config = ModelConfig(
        encoder=preset.encoder,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=max_length,
        embedding_dropout=preset.embedding.dropout,
        embedding_orthonormal=preset.embedding.orthonormal,
        embedding_scaled=preset.embedding.scaled,
        embedding_segments=preset.embedding.segments and pairs,
        embedding_matches=preset.embedding.matches and pairs,
        embedding_ngrams=preset.embedding.ngrams,
        embedding_bag=bag,
        separator_id=tokenizer.separator_id,
        unknown_id=-1 if tokenizer.unknown_id is None else tokenizer.unknown_id,
        pooling=preset.pooling,
        pair_pooling=preset.pair_pooling if pairs else "joint",
        labels=labels,
        label_type=label_type,
        task=preset.task,
        columns=dict(columns or {}),
    )
    weights = None
    if preset.encoder["name"] == PRETRAINED:  # before memory is allocated
        weights = find_weights(build_shapes(partial(kind, config)), folder_of(preset.encoder["path"]))
    seed_weights(preset.runtime.seed)
    model = kind(config)
    if bag is not None and isinstance(model, Classifier) and model.bag is not None:
        model.bag.parts.copy_(part_buckets(tokenizer.tokens, bag.characters, bag.buckets))
    if weights is not None:
        load_folder(model, weights)
        if kind is LanguageModel and weights.bias is None:
            tied = "" if getattr(model.encoder, "is_tied", True) else " that is tied to its word embeddings"
            log.note(f"{preset.encoder['path']}: has no head for masked tokens{tied}, so a new one is trained")
    if preset.embedding.vectors is None:
        return model
    path = Path(preset.embedding.vectors)
    vectors = read_vectors(path, tokenizer.tokens)
    width, wanted = vectors.matrix.shape[1], model.embedding.weight.shape[1]
    if width != wanted:
        why = ", half of encoder.hidden_size because of concatenated positions" if wanted < config.hidden_size else ""
        raise UsageError(
            f"{path}: has vectors of size {width}; the model needs size {wanted}{why}; change encoder.hidden_size"
        )
    freeze = preset.embedding.freeze
    model.embedding.use_vectors(torch.from_numpy(vectors.matrix), torch.from_numpy(vectors.known), freeze=freeze)
    log.note(f"{path.name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
    return model


def build_loop(
    preset: Preset,
    section: Section,
    model: Classifier | LanguageModel,
    objective: Objective,
    device: torch.device,
    dev: Evaluation | None = None,
    *,
    pretrained: bool = False,
    pairs: bool = False,
) -> TrainingLoop:
    """Move `model` to `device` and build the loop that trains it, from fresh weights or `pretrained` ones."""
    stored: OptimizationConfig = getattr(preset, section)
    config = resolve_schedule(stored, model.encoder, len(objective.lengths), pretrained=pretrained, pairs=pairs)
    model.to(device)
    if preset.runtime.compile:
        model.encoder.compile(dynamic=True)  # one graph for all lengths
    return TrainingLoop(
        model=model,
        optimizer=build_optimizer(model, config),
        objective=objective,
        config=config,
        seed=preset.runtime.seed,
        device=device,
        precision=choose_precision(preset.runtime.precision, device),
        evaluate=None if dev is None else dev.score,
        evaluate_every=getattr(config, "evaluate_every", None),
        minimize=dev is not None and dev.metric_name in MINIMIZED,
        patience=getattr(config, "patience", None),
        ranks=current(),
    )


def run_training(setup: TrainingSetup, log: Log) -> dict[str, Any]:
    """Train to the end, from the newest checkpoint if there is one, and return the result. A dry run returns its plan."""
    notes_on_model(setup, log)
    if setup.request.dry_run:
        return plan_of(setup)
    ranks, values, output = setup.loop.ranks, setup.request.resolved.preset.to_dict(), setup.request.output
    try:
        with setup.stop.listening():
            session = _session(setup)
            _check_same_ranks(session)
            if ranks.is_main:
                if setup.status == "new":
                    session.run.start()
                    session.run.write_preset(values, COMMANDS[setup.section])
                ranks.mark_started()
                notes_on_disk_space(setup, log)
            session.restore(log)
            if ranks.is_main and setup.status != "new":
                session.run.write_preset(values, COMMANDS[setup.section])
            if setup.linear is not None and setup.dev is not None:  # on rank 0 alone
                if setup.linear_alone is not None and not session.run.has_model:
                    session.publish(setup.loop.model.state_dict())
                assert setup.linear_dev_metric is not None, "a linear model is scored where there are dev rows"
                score = format_score(setup.dev.metric_name, setup.linear_dev_metric)
                log.note(f"dev {words_of(setup.dev.metric_name)} of the linear model: {score}")
            session.train(log)
            result = _finish(session, setup)
            notes_on_result(setup, setup.loop.state, result, log)
            return result
    except (Interrupted, NumericError) as stop:
        if setup.run.path != output:
            stop.add_note(f"{output} is still the run before; delete {setup.run.path} to give the new one up")
        elif setup.linear_alone is not None and setup.run.has_model and isinstance(stop, Interrupted):
            stop.add_note(f"until then `recur predict {escaped(quote(str(output)), 300)}` labels by the linear model")
        raise
    except StorageError as error:
        error.add_note(f"then {setup.run.way_on}")
        raise


def _session(setup: TrainingSetup) -> Session:
    """Return the session, with the facts that a resume must or should match."""
    preset, run = setup.request.resolved.preset, setup.run
    config = setup.loop.model.config
    data = {
        f"{split} {key}": facts[key] for split, facts in setup.data.items() for key in ("sha256", "rows", "dropped")
    }
    origin = {
        "labels": config.labels,
        "--init sha256": setup.init_sha256,
        **({} if setup.teacher is None else {"teacher sha256": setup.teacher["sha256"]}),
        "vocabulary sha256": sha256(setup.tokenizer.to_json().encode()).hexdigest(),
        "max_length": config.max_length,  # these four are what `auto` and null came to
        "steps": setup.loop.total_steps,
        "learning_rate": setup.loop.config.learning_rate,
        "word_dropout": getattr(setup.loop.config, "word_dropout", None),
    }
    if preset.encoder["name"] == PRETRAINED:
        origin["encoder.path sha256"] = [sha256_of(file) for file in weight_files(folder_of(preset.encoder["path"]))]
    machine = machine_facts(setup.loop, preset)
    if setup.loop.objective.carry is not None:
        origin["world size"] = machine.pop("world size")
    unwritten: dict[str, Callable[[], bytes]] = {KNOWN_ROWS: partial(known_to_bytes, setup.known)}
    if setup.linear is not None:
        unwritten[LINEAR_MODEL] = setup.linear.to_bytes

    def publish(tensors: Mapping[str, Tensor]) -> None:
        more = {name: content() for name, content in unwritten.items()}
        if setup.linear_alone is not None:
            more[ENSEMBLE] = to_json(setup.linear_alone.to_json()).encode()
        write_model(run.path, config, setup.tokenizer, tensors, more)
        unwritten.clear()  # they never change, so the first model brings them

    return Session(
        run=run,
        loop=setup.loop,
        resume_key={**preset_facts(preset.to_dict(), setup.section), **data, **origin},
        environment=machine,
        publish=publish,
        stop=setup.stop,
        linear_dev_metric=setup.linear_dev_metric,
    )


def _check_same_ranks(session: Session) -> None:
    """Raise UsageError if a rank differs from rank 0 in its data, preset or machine facts."""
    facts = {**session.resume_key, **session.environment}
    del facts["threads"]  # may differ between machines
    first, *others = session.ranks.all_gather(facts)
    for rank, other in enumerate(others, 1):
        if difference := first_difference(first, other):
            raise UsageError(f"rank {rank} differs from rank 0: {difference}; give all ranks the same data and options")


def _finish(session: Session, setup: TrainingSetup) -> dict[str, Any]:
    """Write the model (the best weights; in pre-training the last ones), its dev predictions and result.json.

    Then the run takes the place of the one before, and the checkpoints are removed, unless they are to be kept.
    """
    model, ranks = setup.loop.model, session.ranks
    if session.best is not None:
        model.load_state_dict(session.best)
    ranks.broadcast_(list(model.state_dict().values()))
    if ranks.is_main:
        session.publish(model.state_dict())
    try:
        report = {} if setup.dev is None else setup.dev.write_report(session.run.path)
    except StopTraining:
        session.leave()
    if not ranks.is_main:
        return ranks.broadcast(None)
    result = result_of(setup, setup.loop.state, report)
    session.run.write_result(result, model_card(result))
    run = RunDirectory(setup.request.output)
    run.settle()
    if not setup.request.keep_checkpoints:
        run.remove_checkpoints()
    return ranks.broadcast(run.read_result())
