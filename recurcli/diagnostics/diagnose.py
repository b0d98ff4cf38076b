"""Measures a trained encoder layer by layer: distances, spread and attention of each layer, and how far back it looks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from recurcli.diagnostics.measures import (
    activation_factor,
    attention_entropy,
    distance_preservation,
    dot_product_factor,
    gradient_norm_by_distance,
    movement,
    scaled_entropy,
)
from recurcli.encoders.encoder import LayerStats
from recurcli.model.models import Backbone, LanguageModel

Stat = float | list[float]


@dataclass(frozen=True)
class LayerDiagnosis:
    """One layer; see `recurcli.diagnostics.measures` for what each number means."""

    layer: int
    activation_factor: float
    dot_product_factor: float
    distance_preservation: float
    """Correlation of the pairs' distances after this layer with those of the embeddings."""
    movement: float
    scaled_entropy: float
    """Entropy of the values divided by their scale."""
    stats: dict[str, Stat] = field(default_factory=dict)


@dataclass(frozen=True)
class Diagnosis:
    """All layers (none of an encoder whose layers are not modules of their own), and the gradient norm by distance."""

    rows: int
    embedding_scaled_entropy: float
    layers: list[LayerDiagnosis]
    gradient_norm_by_distance: list[float]
    encoder_stats: dict[str, Stat] = field(default_factory=dict)
    """Statistics of the whole encoder (`Encoder.stats`)."""


class _Call(NamedTuple):
    """A layer's input and output (B, T, D), and its statistics with the number of tokens of each chunk."""

    given: Tensor | None
    after: Tensor
    stats: list[tuple[float, dict[str, Stat]]]


def _mean_stats(chunks: Sequence[tuple[float, dict[str, Stat]]]) -> dict[str, Stat]:
    """Return the mean of each statistic over the chunks of the texts, weighted by their tokens."""
    if len(chunks) == 1:
        return chunks[0][1]
    chunks = [chunk for chunk in chunks if chunk[0]]  # without those of padding alone
    shares = np.array([tokens for tokens, _ in chunks]) / sum(tokens for tokens, _ in chunks)
    return {name: np.tensordot(shares, [stats[name] for _, stats in chunks], 1).tolist() for name in chunks[0][1]}


@torch.no_grad()
def diagnose(model: Backbone, ids: Tensor, mask: Tensor, targets: Tensor | None = None) -> Diagnosis:
    """Run `ids`, `mask` (B, T) through a model in fp32 and measure. Rows of a single token have no pairs to measure.

    `targets` (B, T) are the next tokens of a causal language model: the gradients are then those of the loss of the last one.
    """
    model.eval()
    calls: dict[nn.Module, _Call] = {}
    length = ids.shape[1]

    def note(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        first = given[0].detach() if isinstance(given[0], Tensor) else None
        after, start, known = _as_states(output, length).detach(), 0, calls.get(module)
        if known is not None and known.after.shape[1] < length:  # the next chunk of a text that is read chunk by chunk
            start = known.after.shape[1]
            after = torch.cat([known.after, after], dim=1)
            first = None if known.given is None or first is None else torch.cat([known.given, first], dim=1)
        elif known is not None:  # a layer that is iterated is one layer
            first, known = known.given, None
        here = mask[:, start : after.shape[1]]
        weighted = [*(known.stats if known else []), (float(here.sum()), _stats(module, given, here))]
        calls[module] = _Call(first, after, weighted)

    hooks = [layer.register_forward_hook(note) for layer in model.encoder.layers]
    try:
        with torch.enable_grad():  # without gradients an encoder may take a few samples at a time
            x, _ = model.encode(ids, mask)
    finally:
        for hook in hooks:
            hook.remove()
    x = x.detach()
    encoder_stats = dict(model.encoder.stats())
    layers = []
    before: Tensor | None = None
    for number, call in enumerate(calls.values(), 1):
        after = call.after
        if before is None:  # with positions added, the first layer's input is not the embedding itself
            before = x if call.given is None or call.given.shape != x.shape else call.given
        layers.append(
            LayerDiagnosis(
                layer=number,
                activation_factor=activation_factor(before, after, mask),
                dot_product_factor=dot_product_factor(before, after, mask),
                distance_preservation=distance_preservation(x, after, mask),
                movement=movement(before, after, mask),
                scaled_entropy=scaled_entropy(after, mask),
                stats=_mean_stats(call.stats),
            )
        )
        before = after
    norms = _gradient_norms(model, ids, mask, targets)
    return Diagnosis(len(ids), scaled_entropy(x, mask), layers, norms, encoder_stats)


def _stats(layer: nn.Module, arguments: tuple[Any, ...], mask: Tensor) -> dict[str, Stat]:
    """The `stats` of `layer` for its forward `arguments` (`recurcli.encoders.encoder`); {} for none.

    Attention weights become `attention_entropy`, in nats. Call it during the forward pass: layers may compute with weights that
    they do not keep.
    """
    offered = getattr(layer, "stats", None)
    with torch.no_grad():
        stats: LayerStats = {} if offered is None else dict(offered(*arguments))
        if (weights := stats.pop("attention", None)) is not None:
            stats["attention_entropy"] = attention_entropy(weights, mask)
    return stats


def _as_states(output: Any, length: int) -> Tensor:
    """A layer's output as states (B, T, D): itself, the first of several, or unpacked."""
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    if isinstance(first, PackedSequence):
        return pad_packed_sequence(first, batch_first=True, total_length=length)[0]
    return first


def _gradient_norms(model: Backbone, ids: Tensor, mask: Tensor, targets: Tensor | None) -> list[float]:
    """Gradient norm by distance over the rows of at least median length, each cut to it."""
    lengths = mask.sum(dim=1)
    length = max(1, int(lengths.median()))
    long = lengths >= length
    loss: Callable[[Tensor], Tensor] | None = None
    if targets is not None and isinstance(model, LanguageModel):
        weight, last = model.embedding.output_weight(), targets[long][:, length - 1]
        loss = lambda states: F.cross_entropy(model.token_logits(states, weight), last, reduction="sum")  # noqa: E731
    return gradient_norm_by_distance(model.encoder, model.embedding(ids[long][:, :length]), loss=loss)
