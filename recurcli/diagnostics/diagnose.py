"""Measures a trained encoder layer by layer: distances, spread and attention of each layer, and how far back it looks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from recurcli.diagnostics.measures import (
    activation_factor,
    attention_entropy,
    cosine_factor,
    differential_entropy,
    distance_preservation,
    dot_product_factor,
    entropies_of_texts,
    gradient_norm_by_distance,
    movement,
    scaled_entropies,
    spread,
)
from recurcli.encoders.encoder import LayerStats
from recurcli.layers import SelfAttention
from recurcli.model.models import Backbone, LanguageModel

Stat = float | list[float]


@dataclass(frozen=True)
class LayerDiagnosis:
    """One layer; see `recurcli.diagnostics.measures` for what each number means."""

    layer: int
    activation_factor: float
    activation_factor_std: float
    """Standard deviation over texts, as those below."""
    dot_product_factor: float
    dot_product_factor_std: float
    cosine_factor: float
    cosine_factor_std: float
    distance_preservation: float
    """Correlation of the pairs' distances after this layer with those of the embeddings."""
    movement: float
    entropy: float
    entropy_std: float
    scaled_entropy: float
    """Entropy of the values divided by their scale."""
    scaled_entropy_std: float
    stats: dict[str, Stat] = field(default_factory=dict)
    distributions: dict[str, list[list[float]]] = field(default_factory=dict)
    """The values of single texts: `scaled_entropy` in one list, `expert_weights` in a list for each expert."""


@dataclass(frozen=True)
class Diagnosis:
    """All layers (none of an encoder whose layers are not modules of their own), and the gradient norm by distance."""

    rows: int
    embedding_entropy: float
    embedding_scaled_entropy: float
    layers: list[LayerDiagnosis]
    gradient_norm_by_distance: list[float]
    encoder_stats: dict[str, Stat] = field(default_factory=dict)
    """Statistics of the whole encoder (`Encoder.stats`)."""


class _Call(NamedTuple):
    """A layer's input and output (B, T, D), its statistics with the number of tokens of each chunk, and distributions."""

    given: Tensor | None
    after: Tensor
    stats: list[tuple[float, dict[str, Stat]]]
    distributions: dict[str, list[list[float]]]


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
        stats, shares = _stats(module, given, here)
        weighted = [*(known.stats if known else []), (float(here.sum()), stats)]
        calls[module] = _Call(first, after, weighted, shares)

    heads: dict[nn.Module, Tensor] = {}  # the outputs (H, B, T, K) of each attention's heads

    def note_heads(module: SelfAttention, output: nn.Module, given: tuple[Tensor]) -> None:
        size = module.query_key_value.out_features // (module.projections * module.num_heads)
        found = given[0].detach().view(*given[0].shape[:2], -1, size).movedim(2, 0)
        chunked = module in heads and heads[module].shape[2] < length
        heads[module] = torch.cat([heads[module], found], dim=2) if chunked else found

    hooks = [layer.register_forward_hook(note) for layer in model.encoder.layers]
    hooks += [
        module.output.register_forward_pre_hook(partial(note_heads, module))
        for module in model.encoder.modules()
        if isinstance(module, SelfAttention)
    ]
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
    for number, (layer, call) in enumerate(calls.items(), 1):
        after = call.after
        if before is None:  # with positions added, the first layer's input is not the embedding itself
            before = x if call.given is None or call.given.shape != x.shape else call.given
        entropies = entropies_of_texts(after, mask)
        spreads = {
            "activation_factor": activation_factor(before, after, mask),
            "dot_product_factor": dot_product_factor(before, after, mask),
            "cosine_factor": cosine_factor(before, after, mask),
            "entropy": spread(entropies[0]),
            "scaled_entropy": spread(entropies[1]),
        }
        layers.append(
            LayerDiagnosis(
                layer=number,
                **{name: mean for name, (mean, _) in spreads.items()},
                **{f"{name}_std": std for name, (_, std) in spreads.items()},
                distance_preservation=distance_preservation(x, after, mask),
                movement=movement(before, after, mask),
                stats={**_mean_stats(call.stats), **_head_entropies(layer, heads, mask)},
                distributions={"scaled_entropy": [entropies[1]], **call.distributions},
            )
        )
        before = after
    entropy, scaled = differential_entropy(x, mask)
    norms = _gradient_norms(model, ids, mask, targets)
    return Diagnosis(len(ids), entropy.mean, scaled.mean, layers, norms, encoder_stats)


def _stats(
    layer: nn.Module, arguments: tuple[Any, ...], mask: Tensor
) -> tuple[dict[str, Stat], dict[str, list[list[float]]]]:
    """The `stats` of `layer` for its forward `arguments` (`recurcli.encoders.encoder`), and distributions; {} for none.

    Attention weights become `attention_entropy`, in nats, and the outputs of experts `expert_entropies`. The weights of experts
    become means and a distribution. Call it during the forward pass: layers may compute with weights that they do not keep.
    """
    offered = getattr(layer, "stats", None)
    with torch.no_grad():
        stats: LayerStats = {} if offered is None else dict(offered(*arguments))
        weights, experts = stats.pop("attention", None), stats.pop("experts", None)
        if weights is not None:
            stats["attention_entropy"] = attention_entropy(weights, mask)
        if experts is not None:
            stats["expert_entropies"] = scaled_entropies(experts, mask)
        if (shares := stats.get("expert_weights")) is None:
            return stats, {}
        return {**stats, "expert_weights": shares.mean(dim=1).tolist()}, {"expert_weights": shares.tolist()}


def _head_entropies(layer: nn.Module, heads: dict[nn.Module, Tensor], mask: Tensor) -> dict[str, Stat]:
    """Return the scaled entropy of each head's values as `head_entropies`, or {} for a layer without heads."""
    found = [scaled_entropies(heads[module], mask) for module in layer.modules() if module in heads]
    return {"head_entropies": found[0]} if found else {}


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
