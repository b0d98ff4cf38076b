"""Training objectives: they build micro-batches, the parts of a batch, and compute the summed loss of each.

The loss of each micro-batch is divided by the weight of the whole batch, so the gradient does not depend on the number
of micro-batches. Shapes: B rows, T positions, C classes, V vocabulary, N predicted positions.
"""

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
from recurcli.network import Classifier, LanguageModel
from recurcli.targets import Target
from recurcli.targets.target import Y
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
    """(B, …) encoded labels, or (N,) token ids with IGNORED at filler positions."""
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
            self.state = {name: part.contiguous() for name, part in self.state.items()}
            for part in self.state.values():
                ranks.all_reduce_(part)

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


class ClassificationObjective:
    """The loss of the target on weighted labelled rows, and its loss of a teacher's soft labels on them.

    A row with a gold label and a soft label has (1 - w) CE + w T² KL, with the keys `teacher_weight` w and
    `teacher_temperature` T. A row with a soft label alone has T² KL (Hinton, Vinyals & Dean, 2015, section 2). With `prefixes`,
    the label (M, …) of the prefix that ends at each of the M tokens, the loss of a row is the mean of those of its positions.
    """

    carry: Carry | None = None

    def __init__(
        self,
        tokens: Tokens,
        y: Y,
        target: Target,
        row_weights: NDArray[np.float64],
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        teacher: Teacher | None = None,
        prefixes: Y | None = None,
    ) -> None:
        self.tokens, self.prefixes = tokens, prefixes
        self.lengths = tokens.lengths
        self.target, self.targets = target, torch.from_numpy(y)
        self.config = config
        self.tokenizer = tokenizer
        assert config.word_dropout != "auto", "settle replaces auto"
        self.word_dropout = config.word_dropout
        self.row_weights = torch.from_numpy(row_weights).float()
        self.teacher: tuple[Tensor, Tensor] | None = None
        if teacher is not None:
            soft, gold = torch.from_numpy(teacher.probabilities), torch.from_numpy(teacher.gold)
            weights = torch.where(gold, config.teacher_weight, 1.0) * ~soft[:, 0].isnan()
            self.teacher = target.soften(soft.nan_to_num(), config.teacher_temperature), weights

    def micro_batch(self, rows: np.ndarray, generator: torch.Generator) -> MicroBatch:
        """Return the micro-batch of `rows`; word dropout draws from `generator`."""
        pad_id = self.tokenizer.pad_id
        ids, mask = collate(self.tokens, rows, pad_id=pad_id)
        chosen = torch.from_numpy(rows)
        if rate := self.word_dropout:
            words = self.tokenizer.word_ids
            ids, mask = drop_words(ids, mask, probability=rate, word_ids=words, pad_id=pad_id, generator=generator)
        targets = self.targets[chosen]
        if self.prefixes is not None:
            own = [self.prefixes[self.tokens.offsets[row] : self.tokens.offsets[row + 1]] for row in rows]
            targets = torch.full_like(ids, IGNORED).masked_scatter_(mask, torch.from_numpy(np.concatenate(own)))
        teacher = self.teacher and (self.teacher[0][chosen], self.teacher[1][chosen])
        row_weights = self.row_weights[chosen]
        return MicroBatch(ids, mask, targets, None, float(row_weights.sum()), teacher, row_weights)

    def loss(self, model: nn.Module, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the losses over the rows, and the auxiliary losses."""
        assert isinstance(model, Classifier) and batch.row_weights is not None
        logits, auxiliary = model(batch.ids, batch.mask, every=self.prefixes is not None)
        targets, weights = batch.targets, batch.row_weights
        if self.prefixes is not None:
            known = targets != IGNORED
            weights = (weights / known.sum(dim=1))[:, None].expand_as(known)[known]
            logits, targets = logits[known], targets[known]
        return self._summed(logits.float(), targets, weights, batch.teacher), auxiliary

    def mean_loss(self, logits: NDArray[np.float64], y: Y, row_weights: NDArray[np.float64]) -> float:
        """Return the mean loss of logits (N, C) for the labels `y`, which training minimizes, by weights (N,)."""
        loss = self._summed(torch.from_numpy(logits), torch.from_numpy(y), torch.from_numpy(row_weights))
        return float(loss) / max(row_weights.sum(), 1e-12)

    def _summed(
        self, logits: Tensor, targets: Tensor, row_weights: Tensor, teacher: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Return the weighted sum of the losses: (N, C), (N,), (N,) -> number."""
        losses = self.target.loss(logits, targets, self.config)
        if teacher is not None:
            probabilities, weights = teacher
            distilled = self.target.teacher_loss(logits, probabilities, self.config.teacher_temperature)
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
