"""The two models, a classifier and a language model for pre-training, and their parts: token embedding, pooling, head. At the
end, the floating-point operations of an encoder.

Shapes: B batch, T positions, D hidden, C classes, V vocabulary, W columns of the token embedding, N chosen positions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode  # private to torch: a move breaks this import

from recurcli.config import ModelConfig, PairPooling, Pooling
from recurcli.encoders import build_encoder
from recurcli.encoders.encoder import CarriedState, Encoder
from recurcli.layers import CachedMap, Dropout, computed_once, normal_, sinusoidal_positions
from recurcli.ops.attention import LONG
from recurcli.ops.orthogonal import orthonormal
from recurcli.ops.precision import at_least_float32, without_autocast


def _orthonormal_table(parameters: Sequence[Tensor]) -> list[Tensor]:
    (weight,) = parameters
    return [orthonormal(weight) * math.sqrt(max(weight.shape) / 2)]


def in_both_texts(ids: Tensor, second: Tensor, vocab_size: int) -> Tensor:
    """Return a bool mask (B, T): True at each token of `ids` (B, T) that also occurs in the other text of its pair.

    `second` (B, T) is True in the second text.
    """
    # The last column takes the tokens of the other side; it is never read.
    seen = torch.zeros(ids.shape[0], vocab_size + 1, dtype=torch.bool, device=ids.device)
    sides = (torch.where(side, ids, vocab_size) for side in (second, ~second))
    in_second, in_first = (seen.scatter(1, side, True).gather(1, ids) for side in sides)
    return (second & in_first) | (~second & in_second)


class TokenEmbedding(nn.Module):
    """Looks up one row of `table()` (V, W) per token and applies dropout, with the keys `embedding_…` of the config.

    - W is D. Where the encoder `concatenates_positions`, W is D/2, and sinusoidal positions are the other half (TransJect,
      section 3).
    - `weight` (V, W) is initialised as N(0, 1/W) [ours]. A row then has a norm near 1, and a head that predicts tokens with the
      rows as output weights has small initial logits.
    - With `scaled`, or where the encoder has positions, rows are scaled by sqrt(W/2), the norm of a position vector. Otherwise
      the positions would dominate. (Vaswani et al., section 3.4, scale by sqrt(W) for the same reason.) Encoders without
      positions learn faster from it too [ours].
    - `segments` and `matches` add a learned vector (D,), at first zero, to the tokens from the first `separator_id` on (after
      it for an encoder with `second_after_separator`), and to those of a pair that stand in both texts (not to `unknown_id`,
      which stands for different words).
    - With `orthonormal`, the table has orthonormal columns, computed from `weight` and scaled by sqrt(V/2) (TransJect), so
      that a row also has the norm sqrt(W/2). If V < W, the rows are orthonormal instead, scaled to that norm [ours].
    """

    def __init__(self, config: ModelConfig, encoder: Encoder) -> None:
        super().__init__()
        hidden_size = self.hidden_size = encoder.embedding_size or config.hidden_size
        self.second_after_separator = encoder.second_after_separator
        self.concatenate_positions = encoder.concatenates_positions
        width = hidden_size // 2 if self.concatenate_positions else hidden_size
        self.weight = nn.Parameter(normal_(torch.empty(config.vocab_size, width), std=width**-0.5))
        has_positions = self.concatenate_positions or encoder.adds_positions
        self.scale = math.sqrt(width / 2) if has_positions or config.embedding_scaled else 1.0
        self.frozen = False
        """Whether some rows of `weight` are never trained. Weight decay must leave `weight` alone then."""
        self.orthonormal_table = CachedMap(_orthonormal_table) if config.embedding_orthonormal else None
        self.separator_id = config.separator_id
        self.unknown_id = config.unknown_id
        self.second_text = nn.Parameter(torch.zeros(hidden_size)) if config.embedding_segments else None
        self.match = nn.Parameter(torch.zeros(hidden_size)) if config.embedding_matches else None
        self.dropout = Dropout(config.embedding_dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings: ids (B, T) -> (B, T, D)."""
        plain = self.orthonormal_table is None
        x = F.embedding(ids, self.weight) * self.scale if plain else F.embedding(ids, self.table())
        if self.concatenate_positions:
            positions = sinusoidal_positions(x.new_empty(1, ids.shape[1], self.hidden_size - x.shape[-1]))
            x = torch.cat([x, positions.expand(ids.shape[0], -1, -1)], dim=-1)  # (B, T, D)
        if self.second_text is not None or self.match is not None:
            x = self._mark_pairs(x, ids)
        return self.dropout(x)

    def _mark_pairs(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return `x` (B, T, D) plus the learned vectors of second texts and of matches; ids (B, T)."""
        separators = ids == self.separator_id
        second = separators.cumsum(dim=1) > (separators if self.second_after_separator else 0)
        if self.second_text is not None:
            x = x + second.unsqueeze(2) * self.second_text
        if self.match is not None:
            matches = in_both_texts(ids, second, len(self.weight)) & (ids != self.unknown_id)
            x = x + matches.unsqueeze(2) * self.match
        return x

    def table(self) -> Tensor:
        """Return the vectors (V, W) of all tokens."""
        return self.weight * self.scale if self.orthonormal_table is None else self.orthonormal_table([self.weight])[0]

    def output_weight(self) -> Tensor:
        """Return the output weights (V, W) of a head that predicts tokens: the table with rows of norm near 1 [ours]."""
        return self.weight if self.orthonormal_table is None else self.table() * (self.weight.shape[1] / 2) ** -0.5

    def use_vectors(self, vectors: Tensor, known: Tensor, *, freeze: bool = False) -> None:
        """Copy pre-trained `vectors` (V, W) where `known` (V,) is True, scaled to the mean norm of the initial rows.

        With `freeze` these rows have a gradient of 0 from then on. The others, which are random, are trained.
        """
        with torch.no_grad():
            scale = self.weight.norm(dim=1).mean() / vectors[known].norm(dim=1).mean().clamp_min(1e-12)
            self.weight[known] = vectors[known].to(self.weight) * scale
        if freeze:
            self.frozen = True
            self.weight.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient.masked_fill(known.to(gradient.device)[:, None], 0.0)
            )


def pool(states: Tensor, mask: Tensor, how: Pooling) -> Tensor:
    """Pool states (B, T, D) to (B, D). mask (B, T) is True at real tokens; a row without real tokens gives zeros."""
    real = mask.unsqueeze(-1)  # (B, T, 1)
    if how == "mean":
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)
    if how == "max":
        lowest = torch.finfo(states.dtype).min
        return states.masked_fill(~real, lowest).amax(dim=1) * mask.any(dim=1, keepdim=True)
    first = how == "first"
    position = mask.int().argmax(dim=1) if first else mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    chosen = states[torch.arange(states.shape[0], device=states.device), position]
    return chosen * mask.any(dim=1, keepdim=True)


class ClassificationHead(nn.Module):
    """Pooling, then one linear map. Mean pooling is ours; the StarSaber paper's is not available.

    With the pair pooling `sides` the map reads [u; v; |u - v|; u * v]; u and v are the pooled states of the two texts
    (Conneau et al., EMNLP 2017, section 3). A row of one text has v = 0.
    """

    def __init__(
        self, hidden_size: int, classes: int, pooling: Pooling = "mean", pair_pooling: PairPooling = "joint"
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.pair_pooling = pair_pooling
        self.output = nn.Linear(hidden_size * (4 if pair_pooling == "sides" else 1), classes)

    def forward(self, states: Tensor, mask: Tensor, separators: Tensor) -> Tensor:
        """Return the logits (B, C): states (B, T, D), mask (B, T), and (B, T) True at the separators of pairs."""
        if self.pair_pooling == "joint":
            return self.output(pool(states, mask, self.pooling))
        after = separators.cumsum(dim=1) > 0
        u = pool(states, mask & ~after, self.pooling)
        v = pool(states, mask & after & ~separators, self.pooling)
        return self.output(torch.cat([u, v, (u - v).abs(), u * v], dim=1))


class Backbone(nn.Module):
    """Embedding and encoder; fine-tuning loads both from a pretrained run."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder: Encoder = build_encoder(config.encoder)
        self.embedding = TokenEmbedding(config, self.encoder)

    def encode(self, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the embeddings and the encoder's hidden states, both (B, T, D): ids, mask (B, T); None: all are real."""
        x = self.embedding(ids)
        # An encoder on a CPU takes less time without a mask. In a graph it has one always: one graph serves all batches.
        # Private to torch, which has no public test for a module that `compile()` has changed: a rename breaks this line.
        is_compiled, is_compiling = self.encoder._compiled_call_impl is not None, torch.compiler.is_compiling()
        is_long = is_compiled and not is_compiling and ids.shape[1] >= LONG
        if (is_compiled or is_compiling) and not is_long:
            return x, self.encoder(x, _full(mask, ids))
        unmasked = mask is not None and mask.device.type == "cpu" and mask.all()
        # A graph of long texts would hold all (T, T) weights: 13 GB a layer of StarSaber at T 4,096 and B 64.
        encoder = self.encoder.forward if is_long else self.encoder
        return x, encoder(x, None if unmasked else mask)


def _full(mask: Tensor | None, ids: Tensor) -> Tensor:
    """Return the mask (B, T) of the ids (B, T); None stands for one that is True at all."""
    return torch.ones_like(ids, dtype=torch.bool) if mask is None else mask


class Classifier(Backbone):
    """A backbone with a classification head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = ClassificationHead(config.hidden_size, config.num_classes, config.pooling, config.pair_pooling)

    def forward(self, ids: Tensor, mask: Tensor | None, *, every: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the logits (B, C) of ids, mask (B, T), and the encoder's auxiliary losses ({} in evaluation mode).

        `mask` None: all ids are real tokens. With `every` the logits are those of each position without pooling, (B, T, C).
        """
        with computed_once():
            x, states = self.encode(ids, mask)
            losses = self.encoder.auxiliary_losses(x, mask) if self.training else {}
        mask = _full(mask, ids)
        with without_autocast(states):  # so that bf16 rounds no logit, of which a step is 0.06 above 8
            states = at_least_float32(states)
            logits = self.head.output(states) if every else self.head(states, mask, ids == self.config.separator_id)
            return logits, losses


class LanguageModel(Backbone):
    """A backbone with a head that predicts tokens: masked ones, or the next ones if the encoder is causal.

    The head's output weights are tied to the embedding.

    If positions are concatenated, an embedding has W < D columns. The head then uses the first W units of a state [ours].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.token_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.token_head = self.encoder.token_head()

    def forward(self, ids: Tensor, mask: Tensor | None, positions: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the logits (N, V) and the encoder's auxiliary losses ({} in evaluation mode).

        ids, mask: (B, T); positions: (N,) indices into the flattened (B·T,) input.
        """
        with computed_once():
            x, states = self.encode(ids, mask)
            weight = self.embedding.output_weight()
            losses = self.encoder.auxiliary_losses(x, mask) if self.training else {}
        return self.token_logits(states.flatten(0, 1)[positions], weight), losses

    def carry(self, ids: Tensor, state: CarriedState | None = None) -> tuple[Tensor, Tensor, CarriedState]:
        """Return the states (B, T, D) of ids (B, T), the output weights (V, W), and the encoder's state after the last token.

        The ids are real tokens that go on after those of `state`; None: they begin the texts.
        """
        with computed_once():
            states, after = self.encoder.carry(self.embedding(ids), state)
            return states, self.embedding.output_weight(), after

    def token_logits(self, states: Tensor, weight: Tensor) -> Tensor:
        """Return the logits of all tokens: states (N, D), output weights (V, W) -> (N, V)."""
        states = states[:, : weight.shape[1]] if self.token_head is None else self.token_head(states)
        return F.linear(states, weight, self.token_bias)


def forward_flops_per_token(config: ModelConfig, length: int) -> float:
    """FLOPs (a multiplication and an addition are two) of the encoder for one token of a row of `length`.

    Only matrix products and attention count; element-wise work does not. An encoder whose work depends on values, such
    as the tied StarSaber, is counted on one row of equal tokens with fresh weights.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        encoder = build_encoder(config.encoder).eval()
        token = normal_(torch.empty(1, 1, config.hidden_size), std=config.hidden_size**-0.5)
        x = token.repeat(1, length, 1)
        encoder(x)  # what evaluation makes once and keeps is not a token's work
        with _Counter() as counter:
            encoder(x)
    return counter.total / length


def _product(out: Tensor, *factors: Tensor) -> int:
    return 2 * out.numel() * factors[-2].shape[-1]  # a sum with a product has its summand first


def _convolution(out: Tensor, x: Tensor, weight: Tensor, *settings: Any) -> int:
    is_transposed = settings[4]
    return 2 * (x if is_transposed else out).numel() * weight[0].numel()


def _attention(out: tuple[Tensor, ...], query: Tensor, key: Tensor, *_: Any) -> int:
    return 2 * (query.numel() + out[0].numel()) * key.shape[-2]


def _lstm_layer(_out: Any, x: Tensor, of_input: Tensor, of_hidden: Tensor, *_: Any) -> int:
    """FLOPs of the products of an LSTM layer in one direction: x (T, B, D)."""
    return 2 * x.shape[0] * x.shape[1] * (of_input.numel() + of_hidden.numel())


_ATEN = torch.ops.aten
_FORMULAS: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.mm, _ATEN.bmm, _ATEN.addmm, _ATEN.baddbmm, _ATEN.baddbmm_), _product),
    _ATEN.convolution: _convolution,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN.mkldnn_rnn_layer: _lstm_layer,
}
"""FLOPs by the output and the arguments of what encoders compute on a CPU. Those of torch's flop_counter import triton."""


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up FLOPs as torch's FlopCounterMode does, which imports torch._dynamo to stay out of compiled graphs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    # Private to torch: where it is renamed, counts stay right, and torch._dynamo is imported.
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if formula := _FORMULAS.get(func.overloadpacket):
            self.total += formula(result, *args)
        return result
