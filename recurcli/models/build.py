"""What the training rows decide of an encoder: its tokenizer and length, the values of `auto`, the network and its loop."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from tokenizers.models import WordPiece

from recurcli.config import (
    FinetuningConfig,
    ModelConfig,
    OptimizationConfig,
    Preset,
    Section,
    TokenizerConfig,
    check_encoder_length,
)
from recurcli.device import choose_precision
from recurcli.distributed.group import current
from recurcli.encoders import PRETRAINED, encoder_class
from recurcli.encoders.folder import folder_of
from recurcli.errors import UsageError, escaped
from recurcli.evaluation.report import DevScore
from recurcli.linear.static_vectors import tokenizer_of_vectors, vectors_of_tokens
from recurcli.log import Log
from recurcli.metrics import metric_named
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.folder_weights import find_weights, load_folder
from recurcli.runs.network_files import build_shapes
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.tokenizer import Tokenizer, choose_unseen_max_length, resolved_tokenizer, single_texts
from recurcli.tokens.vectors import read_vectors
from recurcli.training.fit import TrainingLoop, build_optimizer, seed_weights
from recurcli.training.objectives import Objective

Model = TypeVar("Model", Classifier, LanguageModel)
ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""
WORD_DROPOUT, WORD_DROPOUT_OF_PAIRS = 0.5, 0.2
"""Values of `word_dropout: auto`. Ours; the evidence stands in presets/tasks/custom.yaml."""
MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, or with word dropout ROWS_SEEN_WITH_WORD_DROPOUT, in MIN_EPOCHS to
MAX_EPOCHS passes; pairs always ROWS_SEEN. Where the rate is null and the weights are fresh, the encoder's
`rate_factor_with_word_dropout` divides ROWS_SEEN_WITH_WORD_DROPOUT. Ours; the evidence stands in presets/tasks/custom.yaml."""


class Evaluation(Protocol):
    """Evaluates the model of a loop on dev data."""

    @property
    def metric_name(self) -> str:
        """The dev metric."""
        ...

    def score(self) -> DevScore:
        """Return the dev metric, and the loss that decides between equal ones."""
        ...


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
            log.detail(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(single_texts(rows()), config) if build is None else build(config)
    if isinstance(preset.data.max_length, int):
        max_length = preset.data.max_length
    else:
        counted = rows() if measured is None else measured
        if isinstance(counted, Sequence):  # it may be sorted
            some = counted[:: max(1, len(counted) // ROWS_COUNTED)]
        else:
            some = list(islice(counted, ROWS_COUNTED))
        chosen = choose_unseen_max_length(tokenizer.lengths(some), some, None if measured is None else config)
        max_length = min(chosen, preset.encoder["max_length"]) if preset.encoder["name"] == PRETRAINED else chosen
        log.detail(f"data.max_length auto: {max_length} tokens")
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
    num_classes: int = 0,
) -> Model:
    """Return a model with random initial weights, drawn with the seed of a settled `preset`.

    Without `pairs` among the rows the preset's settings for pairs are left out.

    Word vectors of `embedding.vectors` are copied into its embedding. Raises UsageError if
    their size does not fit the model.
    """
    assert preset.data.max_length != "auto", "settle replaces auto"
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
        separator_id=tokenizer.separator_id,
        unknown_id=-1 if tokenizer.unknown_id is None else tokenizer.unknown_id,
        pooling=preset.pooling,
        pair_pooling=preset.pair_pooling if pairs else "joint",
        num_classes=num_classes,
    )
    weights = None
    if preset.encoder["name"] == PRETRAINED:  # before memory is allocated
        weights = find_weights(build_shapes(partial(kind, config)), folder_of(preset.encoder["path"]))
    seed_weights(preset.runtime.seed)
    model = kind(config)
    if preset.encoder.get("freeze"):
        model.encoder.requires_grad_(False)
    if preset.runtime.checkpoint_layers:
        reason = model.encoder.checkpoint_obstacle
        if reason := reason or ("runtime.compile makes a graph of all layers" if preset.runtime.compile else ""):
            raise UsageError(f"runtime.checkpoint_layers: encoder {preset.encoder['name']}: {reason}; set it to false")
        model.encoder.checkpoint_layers = True
    if weights is not None:
        load_folder(model, weights)
        if kind is LanguageModel and weights.bias is None:
            tied = "" if getattr(model.encoder, "is_tied", True) else " that is tied to its word embeddings"
            log.detail(f"{preset.encoder['path']}: has no head for masked tokens{tied}, so a new one is trained")
    if preset.embedding.vectors is None:
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
    log.detail(f"{name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
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
    encoder, longer, factor = encoder_class(preset.encoder["name"]), False, 1.0
    if isinstance(config, FinetuningConfig):
        if config.word_dropout == "auto":
            config = replace(config, word_dropout=WORD_DROPOUT_OF_PAIRS if pairs else WORD_DROPOUT)
            kind = "pairs" if pairs else "single texts"
            log.detail(f"finetuning.word_dropout auto: {config.word_dropout}, for {kind}")
        longer = bool(config.word_dropout) and not pairs
    if config.learning_rate is None:
        factor = encoder.rate_factor_with_word_dropout if longer and not pretrained else 1.0
        rate = encoder.pretrained_learning_rate if pretrained else encoder.scratch_learning_rate * factor
        config = replace(config, learning_rate=rate)
    if config.epochs == "auto":
        seen = ROWS_SEEN_WITH_WORD_DROPOUT / factor if longer else ROWS_SEEN
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
        log.detail(f"runtime.kernel auto: plain, since {reason}")
    else:
        encoder.use_kernel()
        log.detail("runtime.kernel: the attention is computed by a Triton kernel")


def build_loop(
    preset: Preset,
    section: Section,
    model: Classifier | LanguageModel,
    objective: Objective,
    device: torch.device,
    dev: Evaluation | None,
    log: Log,
) -> TrainingLoop:
    """Move `model` to `device` and build the loop that trains it by a settled `preset`.

    A note says where rows are too short for what distinguishes the encoder, such as sparse attention.
    """
    config: OptimizationConfig = getattr(preset, section)
    below, most = model.encoder.min_effective_length, model.config.max_length
    if objective.carry is None and below is not None and most < below:
        why = f"a text below {below:,} tokens is too short for it, and data.max_length is {most:,}"
        name = escaped(model.config.encoder["name"])
        log.note(f"{name}: {why}; its attention is full, and no memory or state is used")
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
