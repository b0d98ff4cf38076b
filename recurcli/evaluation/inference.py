"""Inference: the logits of many rows, the perplexity of a text, and the Predictor that labels texts with a trained classifier.

Batches hold rows of similar length; the results come back in the order of the rows. The perplexity is exp of the mean
cross-entropy of all tokens in nats. Shapes: N rows or texts, b rows per batch, C labels; D hidden, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.config import Label, RunConfig
from recurcli.data.source import Source
from recurcli.device import Precision, autocast, choose_device, mask_to_device, to_device
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.encoders.encoder import CarriedState
from recurcli.errors import ModelError, NumericError, UsageError, escaped
from recurcli.evaluation.decision import Kept
from recurcli.files import naming_damage
from recurcli.linear.model import LinearModel
from recurcli.log import AfterBatch, Log, ignore
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.model_files import build_trained, read_linear_model, read_model
from recurcli.runs.run_directory import KEPT, KEPT_FILE, LINEAR_MODEL, NETWORK_FILES, THRESHOLDS, Run, read_json
from recurcli.targets import Cell, target_from_json
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.texts import Windows
from recurcli.tokens.tokenizer import Tokenizer, Tokens, note_on_cuts


class InferenceConfig(NamedTuple):
    """Device, precision, batch size and processes of an inference."""

    device: torch.device
    precision: Precision = "fp32"
    """fp32 wherever a stored model is read, so that a score is the same by every command and on every machine."""
    batch_size: int = 64
    ranks: Ranks = SINGLE_PROCESS


def compute_logits(
    model: Classifier, tokens: Tokens, config: InferenceConfig, after_batch: AfterBatch = ignore
) -> np.ndarray:
    """Return the float64 logits (N, C) of all rows. The ranks share the batches; the longest rows come first.

    The model is in evaluation mode meanwhile; then its previous mode is restored. Raises NumericError if a logit is not finite.
    """
    ranks, batches = config.ranks, sorted_batches(tokens.lengths, config.batch_size)
    logits = np.zeros((len(tokens), model.config.num_classes))
    was_training = model.training
    model.eval()  # once for all batches, because a change of mode clears every CachedMap
    try:
        for turn in range(0, len(batches), ranks.world_size):
            if turn + ranks.rank < len(batches):
                rows = batches[turn + ranks.rank]
                with torch.inference_mode(), autocast(config.device, config.precision):
                    ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
                    output, _ = model(to_device(ids, config.device), mask_to_device(mask, config.device))
                    logits[rows] = output.double().cpu().numpy()
                finite = np.isfinite(logits[rows]).all(axis=1)
                if not finite.all():
                    raise NumericError(f"row {rows[~finite][0]}: the model's logits are not finite")
            after_batch(min((turn + ranks.world_size) * config.batch_size, len(tokens)))
    finally:
        model.train(was_training)
    return ranks.sum_disjoint(logits)


TOKENS_AT_ONCE = 1024
"""Tokens whose logits are in memory at a time."""


TOKENS_OF_BLOCK, BLOCKS = 256, 1_000
"""The fewest tokens of a block of a text, and the most blocks; ours. A block is a unit of resampling in `recur compare`."""


@dataclass(frozen=True)
class TextScore:
    """The cross-entropy of a language model on a text of N tokens.

    The text is cut into K blocks of equal length. The last block may be shorter.
    """

    block_nats: NDArray[np.float64]
    """(K,) the sum over the tokens of each block."""
    tokens: int

    @staticmethod
    def block_size(tokens: int) -> int:
        """Return the length of a block of a text of so many tokens. It is the same for all models."""
        return max(TOKENS_OF_BLOCK, -(-tokens // BLOCKS))

    @property
    def block_tokens(self) -> list[int]:
        """The number of tokens of each block (K,)."""
        size = self.block_size(self.tokens)
        return [min(size, self.tokens - start) for start in range(0, self.tokens, size)]

    @property
    def nats(self) -> float:
        """The sum over all tokens."""
        return math.fsum(self.block_nats)

    @property
    def loss(self) -> float:
        """The mean over all tokens in nats."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(loss). Raises NumericError if it is too large for a number."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            raise NumericError(
                f"the mean loss of a token is {self.loss:.0f} nats, so the perplexity is infinite"
            ) from None

    def to_json(self) -> dict[str, float]:
        """Return perplexity, loss and the number of tokens."""
        return {"perplexity": self.perplexity, "loss": self.loss, "tokens": self.tokens}


def score_text(
    model: LanguageModel,
    windows: Windows,
    config: InferenceConfig,
    after_batch: AfterBatch = ignore,
    *,
    carry: bool = False,
) -> TextScore:
    """Return the cross-entropy of the tokens of `windows`. `after_batch` is given the number of finished windows.

    With `carry` the encoder goes on from window to window, and rank 0 reads them. Otherwise the ranks share the batches.
    Raises NumericError if the loss is not finite.
    """
    ranks, batches = config.ranks, sorted_batches(windows.targets.lengths, config.batch_size)
    was_training, count, offsets = model.training, len(windows.targets), windows.targets.offsets
    size = TextScore.block_size(len(windows.targets.ids))
    blocks = np.zeros(-(-len(windows.targets.ids) // size))

    def add(rows: Iterable[int], nats: NDArray[np.float64]) -> None:
        places = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
        np.add.at(blocks, places // size, nats)

    model.eval()
    try:
        state: CarriedState | None = None
        for row in range(count) if carry else ():
            if ranks.is_main:
                nats, state = _next_nats(model, windows, row, state, config)
                add([row], nats)
            if row % config.batch_size == config.batch_size - 1 or row == count - 1:
                after_batch(row + 1)
        for turn in range(0, 0 if carry else len(batches), ranks.world_size):
            if turn + ranks.rank < len(batches):
                rows = batches[turn + ranks.rank]
                add(rows, _batch_nats(model, windows, rows, config))
            after_batch(min((turn + ranks.world_size) * config.batch_size, count))
    finally:
        model.train(was_training)
    ranks.all_reduce_([torch.from_numpy(blocks)])
    score = TextScore(blocks, len(windows.targets.ids))
    if not math.isfinite(score.nats):
        raise NumericError("the loss of the text is not finite")
    return score


def _batch_nats(
    model: LanguageModel, windows: Windows, rows: np.ndarray, config: InferenceConfig
) -> NDArray[np.float64]:
    """Return the cross-entropy of each token of the windows `rows`, in their order (N,)."""
    ids, mask = collate(windows.inputs, rows, pad_id=model.config.pad_id)
    targets = torch.from_numpy(windows.targets.take(rows).ids).long()
    real = mask.flatten().nonzero().squeeze(1)  # on a GPU, the CPU would wait for their number
    ids, mask, real, targets = (to_device(part, config.device) for part in (ids, mask, real, targets))
    with torch.inference_mode(), autocast(config.device, config.precision):
        _, states = model.encode(ids, mask)
        return _nats(model, states.flatten(0, 1)[real], model.embedding.output_weight(), targets)


def _next_nats(
    model: LanguageModel, windows: Windows, row: int, state: CarriedState | None, config: InferenceConfig
) -> tuple[NDArray[np.float64], CarriedState]:
    """Return the cross-entropy of each token of the window `row` (N,), which goes on from `state`, and the state at its end."""
    ids, targets = (
        to_device(torch.from_numpy(part.take(np.array([row])).ids).long(), config.device) for part in windows
    )
    with torch.inference_mode(), autocast(config.device, config.precision):
        states, weight, after = model.carry(ids.unsqueeze(0), state)
        return _nats(model, states.squeeze(0), weight, targets), after


def _nats(
    model: LanguageModel, states: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> NDArray[np.float64]:
    """Return the cross-entropy of each of the `targets` (N,), given the states (N, D) and the output weights (V, W)."""
    nats = []
    for start in range(0, len(targets), TOKENS_AT_ONCE):
        right = targets[start : start + TOKENS_AT_ONCE]
        logits = model.token_logits(states[start : start + TOKENS_AT_ONCE], weight)
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        nats.append(F.cross_entropy(logits, right, reduction="none").double())
    return torch.cat(nats).cpu().numpy()


Pair = tuple[str, str | None]
"""A pair of texts; None as the second item: no second text."""
Text = str | Pair
WINDOW = 4096
"""Number of rows that are sorted by length and predicted together; it limits the memory."""


@dataclass(frozen=True)
class Prediction:
    """The label, its probability `score`, and the probabilities of all labels in the model's order.

    The label is the most probable one, unless the run has thresholds. Labels are strings, or of the type that a fit in Python
    was given. Where rows have several labels, it is the tuple of those that reach their thresholds, in the order of their
    names, and () for none. Where rows have numbers, it is the number, and there are no probabilities.
    """

    label: Any
    score: float | None
    """None for several labels, and for a number."""
    probabilities: dict[Any, float]


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """The network of a trained classifier, with its tokenizer. Shapes: N texts, C labels."""

    model: Classifier
    tokenizer: Tokenizer
    inference: InferenceConfig

    def encode(self, texts: Sequence[Pair]) -> Tokens:
        """Tokenise texts."""
        return self.tokenizer.encode(texts, self.model.config.max_length, self.model.config.truncate)

    def logits(self, tokens: Tokens, after_batch: AfterBatch = ignore) -> np.ndarray:
        """Return the logits (N, C) for the `tokens` of `encode`."""
        return compute_logits(self.model, tokens, self.inference, after_batch)


def read_kept(run: Run, config: RunConfig) -> Kept:
    """Read kept.json of a run, without its thresholds. Raises ModelError if it is damaged."""
    with naming_damage(run.path / "config.json"):
        target = target_from_json(config.target, config.labels)
    if KEPT not in run:
        return Kept.as_is(target)
    with naming_damage(run[KEPT].path):
        return Kept.from_json(read_json(run[KEPT], KEPT_FILE), target)


@dataclass(kw_only=True, eq=False)
class Predictor:
    """A trained classifier. Shapes: N texts, C labels."""

    config: RunConfig
    source: Source
    """What the training rows were like."""
    encoder: TrainedEncoder | None
    """None: the run has no encoder."""
    linear: LinearModel | None
    """The linear model, if it is a part of what is kept."""
    kept: Kept
    """How the logits of encoder and linear model become probabilities and labels."""
    inference: InferenceConfig
    run: Path | None = None
    """The run directory of the model. None if it is not known."""
    truncated: int = 0
    """Number of texts so far that were truncated to the encoder's `max_length` tokens."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes (C), in the order of the logits."""
        return self.kept.target.labels

    @classmethod
    def load(
        cls,
        run: str | Path | Run,
        *,
        device: str = "auto",
        precision: Precision = "fp32",
        batch_size: int = 64,
        fast: bool = False,
    ) -> "Predictor":
        """Load the model of a run directory, which is named or opened.

        Raises ModelError if it is damaged, was not written by recur, or has no labels.

        `fast` takes the linear model of an ensemble alone. Raises UsageError if there is none.
        """
        config, network, folder = read_model(Path(run) if isinstance(run, str) else run)
        inference = InferenceConfig(choose_device(device), precision, batch_size)
        kept, linear, encoder = read_kept(folder, config), None, None
        if network is not None:
            model = build_trained(Classifier, network, inference.device)
            encoder = TrainedEncoder(model, network.tokenizer, inference)
        if "linear" in kept.weights:
            linear = read_linear_model(folder, kept.target.width)
        for name, part, file in (("linear", linear, LINEAR_MODEL), ("encoder", encoder, NETWORK_FILES[0])):
            if name in kept.weights and part is None:
                raise ModelError(f"{folder.path / KEPT}: is damaged: it needs {file}")
        if thresholds := folder.read_thresholds():
            if [*thresholds["thresholds"]] != [*config.labels]:
                raise ModelError(f"{folder.path / THRESHOLDS}: is damaged: its labels are not those of the model")
            kept = replace(kept, thresholds=thresholds)
        source = Source.from_json(config.source, folder.path / "config.json")
        predictor = cls(
            config=config,
            source=source,
            encoder=encoder,
            linear=linear,
            kept=kept,
            inference=inference,
            run=folder.path,
        )
        return predictor.only_linear() if fast else predictor

    def only_linear(self) -> "Predictor":
        """Return a predictor with the linear model of the ensemble alone, which runs no encoder and has no thresholds.

        It is this one if its model is the linear model alone. Raises UsageError if its model is the encoder alone.
        """
        if self.kept.name == "encoder":
            where = "" if self.run is None else f"{self.run}: "
            raise UsageError(
                f"{where}the model is the encoder alone, so it has no linear model; leave --fast out (in Python: fast=True)"
            )
        if self.kept.name == "linear model":
            return self
        return replace(self, kept=self.kept.only_linear, truncated=0)

    def note_on_cuts(self, rows: int, log: Log) -> None:
        """Log how many of the `rows` so far were truncated. A linear model reads whole texts."""
        if self.encoder is None or self.kept.name == "linear model":
            return
        config = self.encoder.model.config
        length = f"the {'encoder' if len(self.kept.alone) > 1 else 'model'}'s {config.max_length} tokens"
        note_on_cuts(self.truncated, rows, length, config.truncate, log)

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """Return one prediction for each text or pair of texts, in order.

        `texts` is a list, an array, a Series, or a table with one column of texts or two columns of pairs (see `text_rows`).
        Raises TypeError for a value that is neither a string nor a pair of strings (None, NaN, a number). Raises ValueError
        for a tuple without two items, for a single text if the model was trained on pairs, and for a pair if it was trained
        on single texts. The messages name the row, counted from 0.
        """
        return list(self.predict_stream(texts))

    def predict_stream(self, texts: Iterable[Text]) -> Iterator[Prediction]:
        """Yield the predictions of `predict` one by one. WINDOW texts are in memory at a time, so `texts` may be endless."""
        source = enumerate(text_rows(texts))
        while window := self._pairs(islice(source, WINDOW)):
            yield from self.predictions(self.logits(window), self.config.classes)

    def _pairs(self, rows: Iterable[tuple[int, Any]]) -> list[Pair]:
        """Return numbered texts or pairs as pairs. Raises as `predict` does."""
        pairs = [(row, as_pair(text, row)) for row, text in rows]
        of_pairs = bool(self.source.columns.pair)
        wanted = "pairs; give (first, second)" if of_pairs else "single texts; give one text"
        for row, (text, second) in pairs:
            if of_pairs == (second is None):
                given = _shown(text if second is None else (text, second))
                raise ValueError(f"texts[{row}] is {given}, but the model was trained on {wanted}")
        return [pair for _, pair in pairs]

    def predictions(self, logits: np.ndarray, classes: Sequence[Label] = ()) -> Iterator[Prediction]:
        """Yield the Prediction of each row of `logits` (N, C); its labels are the `classes` (C), or () for their names."""
        known: dict[Cell, Any] = dict(zip(self.labels, classes or self.labels, strict=True))
        rows = self.kept.probabilities(logits)
        for cell, row in zip(self.kept.target.decode(self.kept.decide(rows)), rows.tolist(), strict=True):
            probabilities = dict(zip(known.values(), row, strict=True))
            if isinstance(cell, float):
                yield Prediction(cell, None, {})
            elif isinstance(cell, tuple):
                yield Prediction(tuple(known[label] for label in cell), None, probabilities)
            else:
                yield Prediction(known[cell], probabilities[known[cell]], probabilities)

    def logits(self, texts: Iterable[Text]) -> np.ndarray:
        """Return the logits (N, C) of `texts`. Raises as `predict` does."""
        return self.logits_of_pairs(self._pairs(enumerate(text_rows(texts))))

    def logits_of_pairs(self, texts: Sequence[Pair], after_batch: AfterBatch = ignore) -> np.ndarray:
        """Return the logits (N, C) of texts that are known to be of the kind that the model was trained on."""
        of: dict[str, np.ndarray] = {}
        if self.linear is not None:
            of["linear"] = self.linear.logits(texts)
        if self.encoder is not None and "encoder" in self.kept.weights:
            tokens = self.encoder.encode(texts)
            self.truncated += tokens.truncated
            of["encoder"] = self.encoder.logits(tokens, after_batch)
        else:
            after_batch(len(texts))
        return self.kept.logits(of)


def text_rows(texts: Iterable[Any]) -> Iterable[Any]:
    """Return the rows of `texts`. A table (an array or a DataFrame) has one column of texts, or two columns of pairs.

    Raises TypeError for one string, ValueError for another number of columns. Iteration over a DataFrame alone would give the
    names of its columns.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string; put it in a list")
    shape: tuple[int, ...] = getattr(texts, "shape", ())
    if len(shape) < 2:
        return texts
    if len(shape) > 2 or shape[1] not in (1, 2):
        raise ValueError(f"texts has the shape {shape}; it must be one column of texts, or two columns of pairs")
    rows: list[Any] = np.asarray(texts, dtype=object).tolist()
    return [row[0] for row in rows] if shape[1] == 1 else rows


def as_pair(text: object, row: int, what: str = "texts") -> Pair:
    """Return `text` as a pair. Raises TypeError or ValueError, `what[row]` first, if it is neither a text nor a pair."""
    if isinstance(text, str):
        return text, None
    if not isinstance(text, tuple | list):
        raise TypeError(f"{what}[{row}] is {_shown(text)}; it must be a string or a pair of strings")
    if len(text) != 2:
        raise ValueError(f"{what}[{row}] is {_shown(text)} with {len(text)} items; a pair must have two")
    first, second = text
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise TypeError(f"{what}[{row}] is {_shown(text)}; it must be a pair of strings")
    return first, second


def _shown(value: object) -> str:
    return f"{escaped(repr(value), 60)} ({type(value).__name__})"
