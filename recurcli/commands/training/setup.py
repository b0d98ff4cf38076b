"""Steps that `recur pretrain` and `recur finetune` share: tokenise the rows, build the model and the training loop."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from recurcli.commands.training.request import Section, TrainingRequest
from recurcli.data.examples import Split
from recurcli.distributed.group import current
from recurcli.errors import UsageError, counted
from recurcli.evaluation.metrics import PERPLEXITY
from recurcli.events import Note
from recurcli.linear.model import LinearModel
from recurcli.model.config import ModelConfig
from recurcli.model.device import choose_precision
from recurcli.model.models import Classifier, LanguageModel
from recurcli.preset import Preset
from recurcli.preset.schema import require_encoder_length
from recurcli.runs.run_directory import RunStatus
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.splits import TextSplit
from recurcli.tokens.stream import Windows, cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer, Tokens, choose_max_length, settled_tokenizer
from recurcli.tokens.vectors import read_vectors
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import DevScore, TrainingLoop, seed_weights
from recurcli.training.objectives import Objective
from recurcli.training.optimizer import build_optimizer
from recurcli.training.schedule import settle_schedule
from recurcli.training.stop import StopRequest

Model = TypeVar("Model", Classifier, LanguageModel)


class Evaluation(Protocol):
    """The evaluation on dev rows, or on dev text, that selects the model."""

    @property
    def metric_name(self) -> str:
        """The name of the dev metric."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens that an evaluation reads."""
        ...

    @property
    def last_tokens(self) -> int:
        """The number of tokens that the report on the chosen model reads."""
        ...

    def score(self) -> DevScore:
        """Evaluate the model. Raises StopTraining if a rank received a signal to stop."""
        ...

    def score_some(self, batches: int) -> int:
        """Evaluate the model on evenly spaced rows, `batches` batches of them, and return the number of their tokens."""
        ...

    def write_report(self, folder: Path) -> dict[str, Any]:
        """Write what belongs to the chosen model in `folder` (rank 0), and return facts for result.json."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """A training run that is ready to start: all data are read and the model is built."""

    request: TrainingRequest
    section: Section
    status: RunStatus
    loop: TrainingLoop
    tokenizer: Tokenizer
    data: dict[str, dict[str, Any]]
    """By split: path, sha256, and the numbers of rows, dropped rows, bad rows and truncated rows."""
    stop: StopRequest
    dev: Evaluation | None = None
    """The evaluation that selects the model; None in pre-training on masked tokens."""
    linear: LinearModel | None = None
    """The linear model that is kept beside the encoder; None: there is none."""
    init_sha256: str | None = None
    """sha256 of the initial weights of --init; None: random initial weights."""


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
    config = settle_schedule(stored, model.encoder, len(objective.lengths), pretrained=pretrained, pairs=pairs)
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
        minimize=dev is not None and dev.metric_name == PERPLEXITY,
        patience=getattr(config, "patience", None),
        ranks=current(),
    )


MANY_UNKNOWN = 0.2
"""Fraction of unknown tokens in a split above which a warning says so."""
ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""


def settle_tokens(
    preset: Preset,
    rows: Callable[[], Iterable[tuple[str, str | None]]],
    build: Callable[[TokenizerConfig], Tokenizer] | None = None,
    tokenizer: Tokenizer | None = None,
    measured: Sequence[tuple[str, str | None]] | None = None,
) -> Generator[Note, None, tuple[Tokenizer, int]]:
    """Return the tokenizer and the largest length in tokens; yields a note on what each `auto` became.

    `rows` returns the training rows. A given `tokenizer` is used as it is. Else `build` makes one, or one is trained on the
    rows if `build` is None. The length is chosen for the rows `measured`, or for all rows if it is None. Raises UsageError if
    the encoder cannot read rows of that length.
    """

    def texts() -> Iterator[str]:
        return (text for row in rows() for text in row if text is not None)

    if tokenizer is None:
        config = settled_tokenizer(preset.tokenizer, texts())
        if config != preset.tokenizer:
            yield Note(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(texts(), config) if build is None else build(config)
    max_length = preset.data.max_length
    if max_length == "auto":
        max_length = choose_max_length(tokenizer.lengths(_sample(rows() if measured is None else measured)))
        yield Note(f"data.max_length auto: {max_length} tokens")
        require_encoder_length(preset.encoder, max_length)
    return tokenizer, max_length


def _sample(rows: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return about ROWS_COUNTED rows: evenly spaced ones of a list, which may be sorted, the first ones of a stream."""
    if isinstance(rows, list):
        return rows[:: max(1, len(rows) // ROWS_COUNTED)]
    return list(islice(rows, ROWS_COUNTED))


def encode_splits(
    splits: Mapping[str, Split], tokenizer: Tokenizer, max_length: int
) -> Generator[Note, None, tuple[dict[str, Tokens], dict[str, dict[str, Any]]]]:
    """Return the tokens of each split and the facts about it for result.json.

    Yields notes on the rows that were skipped, dropped or truncated.
    """
    tokens, data = {}, {}
    for name, split in splits.items():
        tokens[name] = tokenizer.encode(split.texts, max_length)
        data[name] = {
            "path": None if split.path is None else str(split.path),
            "rows": len(split.examples),
            "sha256": split.sha256,
            "dropped": split.dropped,
            "bad": len(split.bad),
            "truncated": tokens[name].truncated,
        }
        if split.bad:
            yield Note(f"{name}: {counted(len(split.bad), 'bad row')} skipped, the first: {split.bad[0]}", "warning")
        if split.dropped:
            kept = f"{len(split.examples):,} kept"
            yield Note(f"{name}: {counted(split.dropped, 'row')} without a majority label ('-') dropped, {kept}")
        yield from note_on_cuts(name, tokens[name].truncated, len(tokens[name]), max_length)
        unknown = float((tokens[name].ids == tokenizer.unknown_id).mean()) if len(tokens[name].ids) else 0.0
        if unknown > MANY_UNKNOWN:
            yield Note(
                f"{name}: {unknown:.0%} of the tokens are not in the vocabulary, so they are all [UNK]", "warning"
            )
    return tokens, data


def windows_of_splits(
    splits: Mapping[str, TextSplit], tokenizer: Tokenizer, length: int
) -> Generator[Note, None, tuple[dict[str, Windows], dict[str, dict[str, Any]]]]:
    """Return each split's text in windows of `length` tokens, and the facts about it for result.json; yields notes."""
    windows, data = {}, {}
    for name, split in splits.items():
        stream = encode_stream(split.texts, tokenizer)
        windows[name] = cut_windows(stream, tokenizer.separator_id, length)
        unknown = int(np.count_nonzero(stream == tokenizer.unknown_id))
        data[name] = {
            "path": None if split.path is None else str(split.path),
            "rows": len(split.texts),
            "sha256": split.sha256,
            "dropped": split.dropped,
            "bad": split.bad,
            "truncated": 0,
            "tokens": len(stream),
            "unknown": unknown,
        }
        if split.bad:
            yield Note(f"{name}: {counted(split.bad, 'bad row')} skipped, the first: {split.first_bad}", "warning")
        of = (
            f"{unknown / len(stream):.1%} of them not in the vocabulary, so [UNK]"
            if unknown
            else "all in the vocabulary"
        )
        size = f"{counted(len(stream), 'token')} with an <eos> after each of {counted(len(split.texts), 'line')}"
        yield Note(f"{name}: {size}; {of}", "warning" if unknown > MANY_UNKNOWN * len(stream) else "info")
    return windows, data


def note_on_cuts(name: str, cut: int, rows: int, max_length: int) -> Iterator[Note]:
    """Yield a note on the number of rows that were truncated to `max_length` tokens, if there are any."""
    if cut:
        yield Note(f"{name}: {counted(cut, 'row')} ({cut / rows:.1%}) cut to data.max_length {max_length}")


def build_model(
    kind: type[Model],
    preset: Preset,
    tokenizer: Tokenizer,
    max_length: int,
    labels: tuple[str, ...] = (),
    columns: Mapping[str, list[str]] | None = None,
    *,
    pairs: bool,
) -> Generator[Note, None, Model]:
    """Return a model with random initial weights, drawn with the preset's seed.

    Without `pairs` among the rows the preset's settings for pairs are left out.

    Word vectors of `embedding.vectors` are copied into its embedding; yields a note on their number. Raises UsageError if
    their size does not fit the model.
    """
    config = ModelConfig(
        encoder=preset.encoder,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=max_length,
        embedding_dropout=preset.embedding.dropout,
        embedding_orthonormal=preset.embedding.orthonormal,
        embedding_segments=preset.embedding.segments and pairs,
        embedding_matches=preset.embedding.matches and pairs,
        embedding_ngrams=preset.embedding.ngrams,
        separator_id=tokenizer.separator_id,
        unknown_id=-1 if tokenizer.unknown_id is None else tokenizer.unknown_id,
        pooling=preset.pooling,
        pair_pooling=preset.pair_pooling if pairs else "joint",
        labels=labels,
        task=preset.task,
        columns=dict(columns or {}),
    )
    seed_weights(preset.runtime.seed)
    model = kind(config)
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
    yield Note(f"{path.name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
    return model
