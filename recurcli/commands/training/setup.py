"""What `recur pretrain` and `recur finetune` are prepared from: rows, tokens, and a model with fresh weights."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from recurcli.data.examples import Split
from recurcli.errors import ModelError, UsageError
from recurcli.events import Note
from recurcli.model.config import ModelConfig
from recurcli.model.models import Classifier, MaskedTokenModel
from recurcli.preset import Preset, ResolvedPreset
from recurcli.preset.strict_yaml import read_mapping
from recurcli.tokens.tokenizer import Tokenizer, Tokens
from recurcli.tokens.vectors import read_vectors
from recurcli.training.objectives import Objective
from recurcli.training.seeding import seed_weights
from recurcli.training.session import StopTraining
from recurcli.training.signals import StopRequest

Model = TypeVar("Model", Classifier, MaskedTokenModel)
Section = Literal["pretraining", "finetuning"]


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
class TrainingSetup:
    """A training that is ready to run: everything that had to be read has been read."""

    model: Classifier | MaskedTokenModel
    objective: Objective
    tokenizer: Tokenizer
    config: ModelConfig
    data: dict[str, dict[str, Any]]
    """For each split: path, rows, sha256, and what was dropped or truncated."""
    evaluate: Callable[[StopRequest], float] | None = None
    """The dev score of `model` as it is; asks the StopRequest between two batches."""
    init_sha256: str | None = None
    """Of the weights that training starts from, if those are not fresh ones."""
    finish: Callable[[Path, StopRequest], dict[str, Any]] = field(default=lambda folder, stop: {})
    """Writes what belongs beside the final model, and returns its scores; asks the StopRequest between two batches."""


Prepare = Callable[[TrainingRequest, torch.device], Iterator[Note | TrainingSetup]]


def stored_preset(run: Path) -> dict[str, Any]:
    """The preset that a run directory keeps; ModelError if it is damaged or gone."""
    try:
        return read_mapping(run / "preset.yaml")[0]
    except UsageError as error:
        raise ModelError(str(error)) from None


def ask_to_stop(stop: StopRequest) -> None:
    """Leave an evaluation when a signal has come to any of the processes."""
    if stop.agreed():
        raise StopTraining


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
    yield from note_on_cuts(name, tokens.truncated, len(tokens), max_length)


def note_on_cuts(name: str, cut: int, rows: int, max_length: int) -> Iterator[Note]:
    """How many rows lost their end, if any did."""
    if cut:
        yield Note(f"{name}: {cut:,} rows ({cut / rows:.1%}) cut to data.max_length {max_length}")


def model_config(
    preset: Preset, tokenizer: Tokenizer, labels: tuple[str, ...], columns: dict[str, list[str]]
) -> ModelConfig:
    """The architecture that a preset and a vocabulary make."""
    return ModelConfig(
        encoder=preset.encoder,
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=preset.data.max_length,
        embedding_dropout=preset.embedding.dropout,
        embedding_orthonormal=preset.embedding.orthonormal,
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
        if width != (wanted := model.embedding.weight.shape[1]):
            half = ", half of it beside positions" if wanted < config.hidden_size else ""
            raise UsageError(f"{path}: has vectors of {width} numbers; encoder.hidden_size asks for {wanted}{half}")
        model.embedding.use_vectors(torch.from_numpy(vectors.matrix), torch.from_numpy(vectors.known))
        yield Note(f"{path.name}: vectors for {vectors.known.sum():,} of {tokenizer.vocab_size:,} tokens")
        model.embedding.weight.requires_grad_(not preset.embedding.freeze)
    return model
