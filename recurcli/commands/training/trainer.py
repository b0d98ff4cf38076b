"""The trainer of `recur pretrain` and `recur finetune`: enter the run directory, resolve each `auto`, build the model and its
loop, train, finish.

The two commands read their data and objectives between `enter_run` and `Training.execute`.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers.models import WordPiece
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
from recurcli.config import (
    FinetuningConfig,
    LabelType,
    ModelConfig,
    OptimizationConfig,
    TokenizerConfig,
    check_encoder_length,
)
from recurcli.device import choose_device, choose_precision, cuda_settings
from recurcli.distributed.group import current
from recurcli.encoders import PRETRAINED, encoder_class
from recurcli.encoders.folder import folder_of, weight_files
from recurcli.errors import Interrupted, NumericError, StorageError, UsageError
from recurcli.evaluation.report import Evaluation, ScoredLinear
from recurcli.files import MANIFEST, sha256_of, to_json
from recurcli.linear.static_vectors import tokenizer_of_vectors, vectors_of_tokens
from recurcli.log import Log
from recurcli.metrics import format_score, metric_named, words_of
from recurcli.model.models import Classifier, LanguageModel, part_buckets
from recurcli.preset import Preset, ResolvedPreset
from recurcli.requests.training import Section, TrainingRequest
from recurcli.runs.folder_weights import find_weights, load_folder
from recurcli.runs.model_files import KnownRows, build_shapes, known_to_bytes, write_model
from recurcli.runs.run_directory import (
    ENSEMBLE,
    KNOWN_ROWS,
    LINEAR_MODEL,
    VECTORS,
    RunDirectory,
    RunStatus,
    check_same,
    checkpoint_folders,
    first_difference,
)
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.tokenizer import Tokenizer, choose_unseen_max_length, resolved_tokenizer, single_texts
from recurcli.tokens.vectors import read_vectors
from recurcli.training.fit import TrainingLoop, build_optimizer, seed_weights
from recurcli.training.objectives import Objective
from recurcli.training.session import Session, StopRequest, StopTraining
from recurcli.training.trackers import tracking
from recurcli.validation import InvalidConfig, parse_config

Model = TypeVar("Model", Classifier, LanguageModel)
ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""
WORD_DROPOUT, WORD_DROPOUT_OF_PAIRS = 0.5, 0.2
"""Values of `word_dropout: auto`. Ours; the evidence stands in presets/tasks/custom.yaml."""
MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, or with word dropout ROWS_SEEN_WITH_WORD_DROPOUT, in MIN_EPOCHS to
MAX_EPOCHS passes; pairs always ROWS_SEEN. Ours, by accuracy on dev rows. StarSaber on 5,400 TNEWS headlines: 43.8 % in 3
passes, 41.5 in 10; with word_dropout 0.5 46.6 in 12, 46.2 in 20 (other dev rows). On 9,000 pairs of OCNLI with word_dropout
0.2: 55.5 after 3 passes, 53.4 after 7."""


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


def resolve_tokens(
    preset: Preset,
    rows: Callable[[], Iterable[tuple[str, str | None]]],
    log: Log,
    build: Callable[[TokenizerConfig], Tokenizer] | None = None,
    tokenizer: Tokenizer | None = None,
    measured: Sequence[tuple[str, str | None]] | None = None,
) -> tuple[Tokenizer, int]:
    """Return the tokenizer and the largest length in tokens.

    `rows` returns the training rows. A given `tokenizer` is used as it is. Else `build` makes one, or one is trained on the
    rows if `build` is None. The length is chosen for texts like the rows `measured` that train no tokenizer, or for all rows
    themselves if it is None. Raises UsageError if the encoder cannot read rows of that length.
    """
    config: TokenizerConfig | None = None
    if tokenizer is None and preset.encoder["name"] == PRETRAINED:
        tokenizer = PretrainedTokenizer.of_folder(folder_of(preset.encoder["path"]))
    tokenizer = tokenizer or tokenizer_of_vectors(preset)
    if tokenizer is None:
        log.stage("making the tokenizer")
        config = resolved_tokenizer(preset.tokenizer, single_texts(rows()))
        if config != preset.tokenizer:
            log.note(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(single_texts(rows()), config) if build is None else build(config)
    if isinstance(preset.data.max_length, int):
        max_length = preset.data.max_length
    else:
        counted = rows() if measured is None else measured
        if isinstance(counted, list):  # it may be sorted
            some = counted[:: max(1, len(counted) // ROWS_COUNTED)]
        else:
            some = list(islice(counted, ROWS_COUNTED))
        chosen = choose_unseen_max_length(tokenizer.lengths(some), some, None if measured is None else config)
        max_length = min(chosen, preset.encoder["max_length"]) if preset.encoder["name"] == PRETRAINED else chosen
        log.note(f"data.max_length auto: {max_length} tokens")
        check_encoder_length(preset.encoder, max_length)
    special = sum(map(len, tokenizer.template))
    if tokenizer.template.before and max_length <= special:
        raise UsageError(
            f"data.max_length {max_length} leaves no room beside the {special} special tokens of a pair; raise it"
        )
    return tokenizer, max_length


def build_model(
    kind: type[Model],
    preset: Preset,
    tokenizer: Tokenizer,
    log: Log,
    *,
    pairs: bool,
    labels: tuple[str, ...] = (),
    columns: Mapping[str, list[str]] | None = None,
    label_type: LabelType = "str",
) -> Model:
    """Return a model with random initial weights, drawn with the seed of a settled `preset`.

    Without `pairs` among the rows the preset's settings for pairs are left out.

    Word vectors of `embedding.vectors` are copied into its embedding. Raises UsageError if
    their size does not fit the model.
    """
    assert preset.data.max_length != "auto", "settle replaces auto"
    bag = preset.embedding.bag if kind is Classifier and not pairs else None
    config = ModelConfig(
        encoder=preset.encoder,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=preset.data.max_length,
        truncate=preset.data.truncate,
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
    if preset.runtime.checkpoint_layers:
        reason = model.encoder.checkpoint_obstacle
        if reason := reason or ("runtime.compile makes a graph of all layers" if preset.runtime.compile else ""):
            raise UsageError(f"runtime.checkpoint_layers: encoder {preset.encoder['name']}: {reason}; set it to false")
        model.encoder.checkpoint_layers = True
    if bag is not None and isinstance(model, Classifier) and model.bag is not None:
        model.bag.parts.copy_(part_buckets(tokenizer.tokens, bag.characters, bag.buckets))
    if weights is not None:
        load_folder(model, weights)
        if kind is LanguageModel and weights.bias is None:
            tied = "" if getattr(model.encoder, "is_tied", True) else " that is tied to its word embeddings"
            log.note(f"{preset.encoder['path']}: has no head for masked tokens{tied}, so a new one is trained")
    if preset.embedding.vectors is None or preset.is_linear:
        return model
    path, wanted, static = Path(preset.embedding.vectors), model.embedding.weight.shape[1], vectors_of_tokens(preset)
    vectors = static.of_tokens(tokenizer.tokens, wanted) if static else read_vectors(path, tokenizer.tokens)
    width, name = vectors.matrix.shape[1], static.name if static else path.name
    if width != wanted:
        why = ", half of encoder.hidden_size because of concatenated positions" if wanted < config.hidden_size else ""
        raise UsageError(
            f"{static.name if static else path}: has vectors of size {width}; the model needs size {wanted}{why}; "
            "change encoder.hidden_size"
        )
    freeze = preset.embedding.freeze
    model.embedding.use_vectors(torch.from_numpy(vectors.matrix), torch.from_numpy(vectors.known), freeze=freeze)
    log.note(f"{name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
    return model


def settle(
    preset: Preset,
    section: Section,
    tokenizer: Tokenizer,
    max_length: int,
    rows: int,
    log: Log,
    *,
    pretrained: bool = False,
    pairs: bool = False,
) -> Preset:
    """Return `preset` with a value for each `auto` that the training rows decide, and for `learning_rate: null` of `section`.

    `rows` is the number of training rows, which have two texts each in `pairs`. The learning rate is the encoder's, from
    scratch or after pre-training. The text of pre-training has no word dropout.
    """
    config: OptimizationConfig = getattr(preset, section)
    encoder, longer = encoder_class(preset.encoder["name"]), False
    if isinstance(config, FinetuningConfig):
        if config.word_dropout == "auto":
            config = replace(config, word_dropout=WORD_DROPOUT_OF_PAIRS if pairs else WORD_DROPOUT)
            kind = "pairs" if pairs else "single texts"
            log.note(f"finetuning.word_dropout auto: {config.word_dropout}, for {kind}")
        longer = bool(config.word_dropout) and not pairs
    if config.learning_rate is None:
        rate = encoder.pretrained_learning_rate if pretrained else encoder.scratch_learning_rate
        config = replace(config, learning_rate=rate)
    if config.epochs == "auto":
        seen = ROWS_SEEN_WITH_WORD_DROPOUT if longer else ROWS_SEEN
        config = replace(config, epochs=min(MAX_EPOCHS, max(MIN_EPOCHS, round(seen / rows))))
    tokens = preset.tokenizer
    if tokens.kind == "auto":
        tokens = replace(tokens, kind="wordpiece" if isinstance(tokenizer.backend.model, WordPiece) else "char")
    settled: dict[str, Any] = {section: config, "tokenizer": tokens}
    return replace(preset, data=replace(preset.data, max_length=max_length), **settled)


KERNEL_TOLERANCE = 1e-3
"""The largest difference of a kernel from torch that `runtime.kernel: auto` accepts, on numbers of size 1. Ours."""


def settle_kernel(model: Classifier | LanguageModel, preset: Preset, device: torch.device, log: Log) -> None:
    """Let the encoder compute its attention as `runtime.kernel` says. Raises UsageError where `triton` cannot be had."""
    asked, encoder = preset.runtime.kernel, model.encoder
    if asked == "plain":
        return
    obstacles = {
        f"encoder {preset.encoder['name']}: {encoder.kernel_obstacle}": bool(encoder.kernel_obstacle),
        f"it runs on CUDA, and the device is {device}": device.type != "cuda",
        "the package triton is missing (pip install triton)": find_spec("triton") is None,
        "runtime.compile makes kernels of its own": preset.runtime.compile,
    }
    reason = next((reason for reason, holds in obstacles.items() if holds), "")
    if reason and asked == "triton":
        raise UsageError(f"runtime.kernel triton: {reason}; set it to plain")
    if not reason and asked == "auto":
        from recurcli.ops.directional_kernel import difference

        if (found := difference(device)) > KERNEL_TOLERANCE:
            reason = f"the kernel differs from torch by {found:.1g}"
    if reason:
        log.note(f"runtime.kernel auto: plain, since {reason}")
    else:
        encoder.use_kernel()
        log.note("runtime.kernel: the attention is computed by a Triton kernel")


def build_loop(
    preset: Preset,
    section: Section,
    model: Classifier | LanguageModel,
    objective: Objective,
    device: torch.device,
    dev: Evaluation | None,
) -> TrainingLoop:
    """Move `model` to `device` and build the loop that trains it by a settled `preset`."""
    config: OptimizationConfig = getattr(preset, section)
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
        minimize=dev is not None and metric_named(dev.metric_name).minimize,
        ranks=current(),
    )


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
    dev: Evaluation | None = None
    """The evaluation on dev data that selects the best model. None in masked pre-training, which keeps the last model."""
    known: KnownRows | None = None
    """The rows that the training reads and those that select its model. None in masked pre-training, which reads dev and test
    texts too, and in a dry run."""
    teacher: Mapping[str, Any] | None = None
    init_sha256: str | None = None
    budget: float | None = None
    """Seconds of the --budget that gave `finetuning.max_steps`; None: there was none."""
    has_published: bool = False

    @property
    def linear(self) -> ScoredLinear | None:
        """The linear model beside the encoder. It is the whole model until the encoder is trained, if it can be kept."""
        return None if self.dev is None else self.dev.linear

    def execute(self, log: Log) -> dict[str, Any]:
        """Train to the end, from the newest checkpoint if there is one, and return the result. A dry run returns its plan."""
        notes_on_model(self, log)
        if self.request.dry_run:
            return plan_of(self)
        ranks, values, command = self.loop.ranks, self.resolved.preset.to_dict(), self.request.command
        command += "" if self.budget is None else f" --budget {self.budget}s"
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
                    if self.linear.alone is not None and not self.run.has(MANIFEST):
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
            if self.run.path != self.request.folder:
                stop.add_note(
                    f"{self.request.folder} is still the run before; delete {self.run.path} to give the new one up"
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
        if self.linear is not None and self.linear.alone is not None:
            more[ENSEMBLE] = to_json(self.linear.alone.to_json()).encode()
        write_model(self.run.path, self.loop.model.config, self.tokenizer, tensors, more)
        self.has_published = True

    def _finish(self, session: Session) -> None:
        """Write the model (the best weights, or the last ones where nothing is evaluated), its predictions and result.json."""
        model, ranks = self.loop.model, self.loop.ranks
        if session.best is not None:
            model.load_state_dict(session.best)
        session.best = None
        self.loop.optimizer.state.clear()  # the linear model that is fitted again needs the memory
        ranks.broadcast_(list(model.state_dict().values()))
        if ranks.is_main:
            self.publish(model.state_dict())
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
            run.settle()
            if not self.request.keep_checkpoints:
                run.remove_checkpoints()
        return ranks.broadcast(run.read_result() if ranks.is_main else None)
