"""Steps that `recur pretrain` and `recur finetune` share: build the model and the training loop."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from recurcli.commands.training.request import Section, TrainingRequest
from recurcli.distributed.group import current
from recurcli.errors import UsageError
from recurcli.evaluation.metrics import PERPLEXITY
from recurcli.events import Note
from recurcli.linear.model import LinearModel
from recurcli.model.config import LabelType, ModelConfig
from recurcli.model.device import choose_precision
from recurcli.model.models import Classifier, LanguageModel
from recurcli.preset import Preset
from recurcli.runs.run_directory import RunStatus
from recurcli.runs.training_overlap import KnownRows
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.tokens.vectors import read_vectors
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import DevScore, TrainingLoop, seed_weights
from recurcli.training.objectives import Objective
from recurcli.training.optimizer import build_optimizer
from recurcli.training.schedule import resolve_schedule
from recurcli.training.session import StopRequest

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

    def evaluate_partly(self, batches: int) -> int:
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
    """The evaluation on dev data that selects the best model. None in masked pre-training, which keeps the last model."""
    linear: LinearModel | None = None
    """The linear model that is kept beside the encoder; None: there is none."""
    known: KnownRows | None = None
    """The rows that the training reads and those that select its model. None in masked pre-training, which reads dev and test
    texts too, and in a dry run."""
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
        minimize=dev is not None and dev.metric_name == PERPLEXITY,
        patience=getattr(config, "patience", None),
        ranks=current(),
    )


def build_model(
    kind: type[Model],
    preset: Preset,
    tokenizer: Tokenizer,
    max_length: int,
    labels: tuple[str, ...] = (),
    columns: Mapping[str, list[str]] | None = None,
    *,
    pairs: bool,
    label_type: LabelType = "str",
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
        embedding_scaled=preset.embedding.scaled,
        embedding_segments=preset.embedding.segments and pairs,
        embedding_matches=preset.embedding.matches and pairs,
        embedding_ngrams=preset.embedding.ngrams,
        separator_id=tokenizer.separator_id,
        unknown_id=-1 if tokenizer.unknown_id is None else tokenizer.unknown_id,
        pooling=preset.pooling,
        pair_pooling=preset.pair_pooling if pairs else "joint",
        labels=labels,
        label_type=label_type,
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
