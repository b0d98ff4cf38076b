"""Training objectives: they build micro-batches, the parts of a batch, and compute the summed loss of each.

The loss of each micro-batch is divided by the weight of the whole batch, so the gradient does not depend on the number
of micro-batches. Shapes: B rows, T positions, C classes, V vocabulary, N predicted positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from recurcli.config import FinetuningConfig, PretrainingConfig
from recurcli.data.teacher import Teacher
from recurcli.device import mask_to_device, to_device
from recurcli.distributed.group import Ranks
from recurcli.encoders.encoder import CarriedState
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.model.models import Classifier, LanguageModel
from recurcli.tokens.batching import TokenRows, collate, drop_words, mask_tokens
from recurcli.tokens.texts import Windows
from recurcli.tokens.tokenizer import Tokenizer, Tokens

IGNORED = -100
POSITIONS_MULTIPLE = 256  # few distinct shapes: oneDNN prepares a new kernel for each


@dataclass(frozen=True)
class MicroBatch:
    """Part of a batch. An objective makes it on the CPU."""

    ids: Tensor
    """(B, T) input ids."""
    mask: Tensor | None
    """(B, T) True at real tokens. None, on a GPU alone: all are real."""
    targets: Tensor
    """(B,) class indices, or (N,) token ids with IGNORED at filler positions."""
    positions: Tensor | None
    """(N,) indices of the targets in the flattened (B·T,) input. None for classification, and with `streams`, where all are."""
    weight: float
    """This micro-batch's part of the batch weight, which divides the summed loss."""
    teacher: tuple[Tensor, Tensor] | None = None
    """The teacher's softened probabilities (B, C), and the weight of its loss in that of each row (B,); None: no teacher."""
    row_weights: Tensor | None = None
    """(B,) factors of the rows' losses in classification."""
    streams: Tensor | None = None
    """(B,) the number of each row's stream. None: nothing is carried from batch to batch."""

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the micro-batch on `device`."""

        def moved(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            return to_device(part, device) if isinstance(part, Tensor) else part

        assert self.mask is not None, "it comes from the CPU"
        parts = {name: moved(part) for name, part in vars(self).items() if name != "mask"}
        return MicroBatch(mask=mask_to_device(self.mask, device), **parts)

    def share(self, rank: int, size: int) -> "MicroBatch":
        """Return the rows of process `rank` of `size`: every size-th row, possibly none. The weight is unchanged."""
        if size == 1:
            return self
        assert self.mask is not None, "it comes from the CPU"
        ids, mask = self.ids[rank::size], self.mask[rank::size]
        if self.streams is not None:
            streams, targets = self.streams[rank::size], self.targets.view_as(self.ids)[rank::size]
            return replace(self, ids=ids, mask=mask, targets=targets.flatten(), streams=streams)
        if self.positions is None:
            targets, teacher = self.targets[rank::size], self.teacher
            teacher = teacher and (teacher[0][rank::size], teacher[1][rank::size])
            row_weights = None if self.row_weights is None else self.row_weights[rank::size]
            return MicroBatch(ids, mask, targets, None, self.weight, teacher, row_weights)
        width = self.ids.shape[1]
        rows = self.positions // width
        mine = (rows % size == rank) & (self.targets != IGNORED)
        positions = rows[mine] // size * width + self.positions[mine] % width
        return MicroBatch(ids, mask, *_filled(self.targets[mine], positions), self.weight)


def _filled(targets: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Pad `targets` (N,) with IGNORED and `positions` (N,) with 0, to a multiple of POSITIONS_MULTIPLE."""
    filler = -len(positions) % POSITIONS_MULTIPLE
    return F.pad(targets, (0, filler), value=IGNORED), F.pad(positions, (0, filler))


class Carry:
    """What an encoder carries from each batch to the next. Row s of a tensor (S, …) belongs to stream s."""

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.state: CarriedState = {}
        """The state after the last step, on all ranks. It is empty at the beginning of the streams."""
        self._coming: CarriedState = {}

    def begin(self) -> None:
        """Begin a step."""
        self._coming = {}

    def of(self, streams: Tensor) -> CarriedState | None:
        """Return the state of some `streams` (B,) before the step; None at their beginning."""
        return {name: part[streams] for name, part in self.state.items()} or None

    def put(self, streams: Tensor, after: CarriedState) -> None:
        """Take the state of some `streams` (B,) at the end of the step."""
        for name, part in after.items():
            whole = self._coming.setdefault(name, part.new_zeros(self.streams, *part.shape[1:]))
            whole[streams] = part

    def advance(self, ranks: Ranks, device: torch.device, *, at_end: bool) -> None:
        """End a step: the state becomes that of all ranks at its end. At the end of the streams it becomes empty."""
        self.state, self._coming = self._coming, {}
        if at_end:
            self.state = {}
        elif ranks.world_size > 1:
            self.share(ranks, device)
            ranks.all_reduce_(list(self.state.values()))

    def share(self, ranks: Ranks, device: torch.device) -> None:
        """Give the state of each rank the names, shapes and types that rank 0 has; what a rank lacks is 0."""
        kinds = [(name, tuple(part.shape), str(part.dtype)) for name, part in self.state.items()]
        for name, shape, dtype in ranks.broadcast(kinds):
            kind = getattr(torch, dtype.removeprefix("torch."))
            self.state.setdefault(name, torch.zeros(shape, dtype=kind, device=device))


class Objective(Protocol):
    """Builds micro-batches from row numbers and computes their summed loss."""

    lengths: np.ndarray
    """Tokens of each training row."""
    carry: Carry | None
    """What goes from batch to batch, whose rows then stand in order; None: nothing does, and the rows are shuffled."""

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of `rows`; word dropout and masking draw from `generator`."""
        ...

    def loss(self, model: nn.Module, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the summed loss of a micro-batch and the encoder's auxiliary losses, which are means over its rows."""
        ...


def multiclass_hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """Crammer and Singer's multi-class hinge loss: max(0, 1 + largest wrong logit - right logit). (B, C), (B,) -> (B,).

    The StarSaber paper (section 4) names the hinge loss and no form of it. Ours: the largest violation, not the sum of all.
    """
    right = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    wrong = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(dim=1)
    return F.relu(1 + wrong - right)


def class_weights(config: FinetuningConfig, labels: Sequence[str], targets: Sequence[int]) -> NDArray[np.float64]:
    """Return the weight of each class (C,). `targets` (N,) are the class indices of the training rows.

    Raises UsageError if `config.class_weights` names an unknown label.
    """
    if config.class_weights == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        return len(targets) / (len(labels) * np.maximum(counts, 1))
    weights = np.ones(len(labels))
    for label, weight in config.class_weights.items() if isinstance(config.class_weights, dict) else ():
        if label not in labels:
            raise UsageError(f"finetuning.class_weights: unknown label '{escaped(label)}'{did_you_mean(label, labels)}")
        weights[labels.index(label)] = weight
    return weights


def distillation_loss(logits: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    """Return T² KL(teacher || student) of each row: (B, C), (B, C) -> (B,).

    `probabilities` are the teacher's at the temperature T (see `soften`); the student's are softmax(logits / T). The factor T²
    keeps the size of the gradient (Hinton, Vinyals & Dean, 2015, section 2.1).
    """
    log_student = F.log_softmax(logits / temperature, dim=1)
    return temperature**2 * F.kl_div(log_student, probabilities, reduction="none").sum(dim=1)


def soften(probabilities: Tensor, temperature: float) -> Tensor:
    """Return softmax(log(probabilities) / T), (N, C): the teacher's probabilities at the temperature T. Rows of zeros stay."""
    scaled = probabilities.double() ** (1 / temperature)
    return (scaled / scaled.sum(dim=1, keepdim=True).clamp_min(1e-300)).to(probabilities.dtype)


class ClassificationObjective:
    """Hinge loss or cross-entropy on weighted labelled rows, and the loss of a teacher's soft labels on them.

    A row with a gold label and a soft label has (1 - w) CE + w T² KL, with the keys `teacher_weight` w and
    `teacher_temperature` T. A row with a soft label alone has T² KL (Hinton, Vinyals & Dean, 2015, section 2).
    """

    carry: Carry | None = None

    def __init__(
        self,
        tokens: Tokens,
        targets: Sequence[int],
        row_weights: NDArray[np.float64],
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        teacher: Teacher | None = None,
    ) -> None:
        self.tokens = tokens
        self.lengths = tokens.lengths
        self.targets = torch.tensor(targets, dtype=torch.long)
        self.config = config
        self.tokenizer = tokenizer
        assert config.word_dropout != "auto", "settle replaces auto"
        self.word_dropout = config.word_dropout
        self.row_weights = torch.from_numpy(row_weights).float()
        self.teacher: tuple[Tensor, Tensor] | None = None
        if teacher is not None:
            soft, gold = torch.from_numpy(teacher.probabilities), torch.from_numpy(teacher.gold)
            weights = torch.where(gold, config.teacher_weight, 1.0) * soft.any(dim=1)
            self.teacher = soften(soft, config.teacher_temperature), weights

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of `rows`; word dropout draws from `generator`."""
        pad_id = self.tokenizer.pad_id
        ids, mask = collate(self.tokens, rows, pad_id=pad_id)
        chosen = torch.from_numpy(rows)
        if rate := self.word_dropout:
            words = self.tokenizer.word_ids
            ids, mask = drop_words(ids, mask, probability=rate, word_ids=words, pad_id=pad_id, generator=generator)
        targets = self.targets[chosen]
        teacher = self.teacher and (self.teacher[0][chosen], self.teacher[1][chosen])
        row_weights = self.row_weights[chosen]
        return MicroBatch(ids, mask, targets, None, float(row_weights.sum()), teacher, row_weights)

    def loss(self, model: nn.Module, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the losses over the rows, and the auxiliary losses."""
        assert isinstance(model, Classifier) and batch.row_weights is not None
        logits, auxiliary = model(batch.ids, batch.mask)
        return self._summed(logits.float(), batch.targets, batch.row_weights, batch.teacher), auxiliary

    def mean_loss(self, logits: Tensor, targets: Tensor, row_weights: NDArray[np.float64] | None) -> float:
        """Return the mean loss of logits (N, C) and targets (N,), which training minimizes, by weights (N,); None: 1."""
        weights = np.ones(len(targets)) if row_weights is None else row_weights
        return float(self._summed(logits, targets, torch.from_numpy(weights))) / max(weights.sum(), 1e-12)

    def _summed(
        self, logits: Tensor, targets: Tensor, row_weights: Tensor, teacher: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Return the weighted sum of the losses: (N, C), (N,), (N,) -> number."""
        if self.config.loss == "hinge":
            losses = multiclass_hinge(logits, targets)
        else:
            losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.config.label_smoothing)
        if teacher is not None:
            probabilities, weights = teacher
            distilled = distillation_loss(logits, probabilities, self.config.teacher_temperature)
            losses = (1 - weights) * losses + weights * distilled
        return (losses * row_weights).sum()


class TokenObjective:
    """Cross-entropy of predicted tokens."""

    carry: Carry | None = None

    def loss(self, model: nn.Module, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the losses over the predicted positions, and the auxiliary losses."""
        assert isinstance(model, LanguageModel)
        assert batch.positions is not None
        logits, auxiliary = model(batch.ids, batch.mask, batch.positions)
        return F.cross_entropy(logits.float(), batch.targets, ignore_index=IGNORED, reduction="sum"), auxiliary


class MaskedTokenObjective(TokenObjective):
    """Masked-token cross-entropy over all real positions (StarSaber, section 4) or over the masked ones (BERT)."""

    def __init__(self, tokens: TokenRows, tokenizer: Tokenizer, config: PretrainingConfig) -> None:
        self.tokens = tokens
        self.lengths = tokens.lengths
        self.tokenizer = tokenizer
        self.config = config

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of `rows`; masking draws from `generator`."""
        ids, mask = collate(self.tokens, rows, pad_id=self.tokenizer.pad_id)
        inputs, selected = mask_tokens(
            ids,
            mask,
            probability=self.config.mlm_probability,
            scheme=self.config.masking,
            word_ids=self.tokenizer.word_ids,
            mask_id=self.tokenizer.mask_id,
            generator=generator,
        )
        predicted = mask if self.config.loss_on == "all" else selected
        positions = predicted.flatten().nonzero().squeeze(1)
        return MicroBatch(inputs, mask, *_filled(ids.flatten()[positions], positions), float(len(positions)))


class NextTokenObjective(TokenObjective):
    """Cross-entropy of every token of a stream, given those before it in its window; the encoder must be causal."""

    def __init__(self, windows: Windows, tokenizer: Tokenizer) -> None:
        self.windows = windows
        self.lengths = windows.targets.lengths
        self.tokenizer = tokenizer

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of the windows `rows`; nothing is drawn."""
        ids, mask = collate(self.windows.inputs, rows, pad_id=self.tokenizer.pad_id)
        targets, _ = collate(self.windows.targets, rows, pad_id=self.tokenizer.pad_id)
        positions = mask.flatten().nonzero().squeeze(1)
        return MicroBatch(ids, mask, *_filled(targets.flatten()[positions], positions), float(len(positions)))


class StreamObjective(NextTokenObjective):
    """Cross-entropy of every token of B streams (see `cut_windows`), given those before it as far as the encoder reaches.

    The encoder goes on from the window before. Gradients end at the beginning of a window. The first token of a stream is
    predicted from the token before it in the text.
    """

    carry: Carry

    def __init__(self, windows: Windows, tokenizer: Tokenizer, streams: int) -> None:
        super().__init__(windows, tokenizer)
        self.carry = Carry(streams)

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of the windows `rows`, each of another stream; nothing is drawn."""
        ids, targets = (torch.from_numpy(tokens.take(rows).ids).long().view(len(rows), -1) for tokens in self.windows)
        streams, mask = torch.from_numpy(rows % self.carry.streams), torch.ones_like(ids, dtype=torch.bool)
        return MicroBatch(ids, mask, targets.flatten(), None, float(ids.numel()), streams=streams)

    def loss(self, model: nn.Module, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the losses over all tokens, and no auxiliary losses. The state goes on in `carry`."""
        assert isinstance(model, LanguageModel)
        assert batch.streams is not None
        states, weight, after = model.carry(batch.ids, self.carry.of(batch.streams))
        self.carry.put(batch.streams, after)
        logits = model.token_logits(states.flatten(0, 1), weight).float()
        return F.cross_entropy(logits, batch.targets, reduction="sum"), {}
