"""Inference of an encoder: the logits of many rows, and the perplexity of a text. `Predictor` labels texts with any model.

Batches hold rows of similar length; the results come back in the order of the rows. The perplexity is exp of the mean
cross-entropy of all tokens in nats. Shapes: N rows or texts, b rows per batch, C labels; D hidden, V vocabulary.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.config import ModelConfig
from recurcli.device import Precision, SettledPrecision, autocast, choose_precision, mask_to_device, to_device
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.encoders.encoder import CarriedState
from recurcli.errors import NumericError
from recurcli.evaluation.report import DevScore
from recurcli.files import to_json
from recurcli.log import AfterBatch, ignore
from recurcli.metrics import PERPLEXITY
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.model_files import write_listed
from recurcli.runs.network_files import build_trained, read_network
from recurcli.runs.run_directory import TEXT_LOSSES, Run
from recurcli.tokens.batching import collate, sorted_batches
from recurcli.tokens.texts import Windows
from recurcli.tokens.tokenizer import Rows, Tokenizer, Tokens


class InferenceConfig(NamedTuple):
    """Device, precision, batch size and processes of an inference."""

    device: torch.device
    precision: Precision = "fp32"
    """fp32 wherever a stored model is read, so that a score is the same by every command and on every machine."""
    batch_size: int = 64
    ranks: Ranks = SINGLE_PROCESS

    def options(self) -> dict[str, str]:
        """Return what device and precision come to, by option."""
        return {"--device": self.device.type, "--precision": choose_precision(self.precision, self.device)}

    def machine(self) -> dict[str, str | int]:
        """Return the facts about the machine on which the last digits of the logits depend."""
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": device}


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
    ranks.all_reduce_(torch.from_numpy(blocks))
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


@dataclass(frozen=True, kw_only=True)
class DevPerplexity:
    """Computes the perplexity of `model` on the dev text during training. Distributed ranks share the batches."""

    model: LanguageModel
    windows: Windows
    inference: InferenceConfig
    check_stop: Callable[[], None]
    precision: SettledPrecision = "fp32"
    """The precision of the evaluations that select the step: on CUDA that of the training, on CPUs fp32."""
    carry: bool = False
    """Whether the model goes on from window to window of the text (`pretraining.carry`)."""
    metric_name: str = PERPLEXITY
    linear: None = None

    def score(self) -> DevScore:
        """Return the perplexity and the loss of the dev text. Raises what `check_stop` raises."""
        score = self._score(self.precision)
        return DevScore(score.perplexity, score.loss)

    def decide_and_score(self, folder: Path) -> dict[str, Any]:
        """Return the metric, the protocol and the dev score of the selected model, for result.json.

        The losses on the blocks of the dev text are written into `folder`.
        """
        score = self._score()
        if self.inference.ranks.is_main:
            losses = {"tokens": score.block_tokens, "nats": score.block_nats.tolist()}
            write_listed(folder / TEXT_LOSSES, to_json(losses))
        return {"metric": self.metric_name, "carry": self.carry, "dev": score.to_json()}

    def _score(self, precision: SettledPrecision = "fp32") -> TextScore:
        self.check_stop()
        config = self.inference._replace(precision=precision)
        after_batch = lambda done: self.check_stop()  # noqa: E731
        return score_text(self.model, self.windows, config, after_batch, carry=self.carry)


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """The network of a trained classifier, with its tokenizer. Shapes: N texts, C labels."""

    model: Classifier
    tokenizer: Tokenizer
    inference: InferenceConfig

    @classmethod
    def load(cls, run: Run, config: ModelConfig, inference: InferenceConfig) -> "TrainedEncoder":
        """Read the network of a run. Raises ModelError if it is damaged, or has no classes."""
        network = read_network(run, config)
        return cls(build_trained(Classifier, network, inference.device), network.tokenizer, inference)

    def encode(self, texts: Rows) -> Tokens:
        """Tokenise texts."""
        return self.tokenizer.encode(texts, self.model.config.max_length, self.model.config.truncate)

    def logits(self, tokens: Tokens, after_batch: AfterBatch = ignore) -> np.ndarray:
        """Return the logits (N, C) for the `tokens` of `encode`."""
        return compute_logits(self.model, tokens, self.inference, after_batch)
