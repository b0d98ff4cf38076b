"""Measures a trained encoder layer by layer: distances, spread and attention of each layer, and how far back it looks.

Shapes: B batch, T positions, D hidden size, N pairs. `mask` (B, T) is bool, True at real tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.network import Backbone, LanguageModel

Stat = float | list[float]


@dataclass(frozen=True)
class LayerDiagnosis:
    """One layer; see the measures below for what each number means."""

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
    encoder_stats = dict(model.encoder.stats(x, mask))
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


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of `values`, one for each text; NaN without a text."""
    return fmean(values) if values else math.nan


def texts(states: Tensor, mask: Tensor) -> Iterator[Tensor]:
    """Yield the states of the real tokens of each text in float64: (B, T, D) -> B times (n, D)."""
    for row, real in zip(states, mask, strict=True):
        yield row[real].double()


def activation_factor(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Return the mean over texts of the mean over token pairs of |h'_i - h'_j| / |h_i - h_j|.

    h are the vectors before a layer and h' those after it, both (B, T, D). The factor is 1 if distances are preserved, and
    above 1 if they grow. Pairs of equal vectors before the layer are left out. TransJect (Sengupta et al., 2023) reports such
    a factor in eq. 5, and its exact form is not given. This form is ours.
    """
    factors = []
    for old_text, new_text in zip(texts(before, mask), texts(after, mask), strict=True):
        old, new = torch.pdist(old_text), torch.pdist(new_text)
        apart = old > 1e-9 * old.amax() if old.numel() else old.bool()
        if apart.any():
            factors.append((new[apart] / old[apart]).mean().item())
    return mean_of(factors)


def dot_product_factor(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Return the mean over texts of sum |h'_i · h'_j| / sum |h_i · h_j|, both sums over token pairs.

    h are the vectors before a layer and h' those after it, both (B, T, D). The factor is 1 if dot products are preserved.
    TransJect (Sengupta et al., 2023, section 5) reports dot products beside distances, and gives no formula. A quotient of sums
    is ours, because single dot products may be 0.
    """
    factors = []
    for old, new in zip(texts(before, mask), texts(after, mask), strict=True):
        total = _dot_products(old)
        if total > 0:
            factors.append(_dot_products(new) / total)
    return mean_of(factors)


def _dot_products(text: Tensor) -> float:
    return (text @ text.mT).triu(diagonal=1).abs().sum().item()


def distance_preservation(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Pearson's correlation of the pairs' distances before and after; 1 if all are scaled by one factor.

    NaN of fewer than two pairs.
    """
    pairs = torch.stack([torch.cat([*map(torch.pdist, texts(states, mask))]) for states in (before, after)])
    if pairs.shape[1] < 2:
        return math.nan
    return torch.corrcoef(pairs)[0, 1].item()


def movement(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Mean of |h' - h| over the real tokens."""
    return (after - before)[mask].double().norm(dim=-1).mean().item()


def scaled_entropy(states: Tensor, mask: Tensor) -> float:
    """Return the entropy, in nats, of a text's values divided by their scale, as mean over texts.

    `states` are (B, T, D). The values of a text are all coordinates of its real tokens. A factor on the values does not change
    the entropy, so it compares layers and encoders of different scale. It is 1.42 for normal values and less for others.
    TransJect (Sengupta et al., 2023, eq. 6) takes the entropy of the empirical density. Ours: a histogram whose bins are
    2 IQR n^(-1/3) wide (Freedman & Diaconis, 1981), which outliers do not stretch and few values do not overfill; the
    scale IQR / 1.349, which is the standard deviation of normal values. Unlike estimators from spacings, a histogram allows
    values that occur many times, such as those of a repeated token.
    """
    return mean_of([_entropy(text.flatten()) for text in texts(states, mask) if len(text)])


def _entropy(values: Tensor) -> float:
    """Return the entropy of `values` (n,) divided by their scale, which is 1 if all are the same."""
    quarter, three_quarters = values.quantile(values.new_tensor([0.25, 0.75])).tolist()
    reach = three_quarters - quarter or (values.amax() - values.amin()).item() or 1.349
    width = 2 * reach * len(values) ** (-1 / 3)
    _, counts = ((values - values.amin()) / width).floor().unique(return_counts=True)  # empty bins cost nothing
    entropy = torch.special.entr(counts.double() / len(values)).sum().item() + math.log(width)
    return entropy - math.log(reach / 1.349)


def attention_entropy(weights: Tensor, mask: Tensor) -> float:
    """Mean entropy in nats of the attention of real queries; weights (B, T, C) or (B, H, T, C), rows sum to 1.

    0 where each position looks at one other, log C where it looks at all alike.
    """
    heads = weights if weights.ndim == 4 else weights.unsqueeze(1)  # (B, H, T, C)
    entropies = -(heads * heads.clamp_min(1e-30).log()).sum(dim=-1)  # (B, H, T)
    return entropies.mT[mask].double().mean().item()


def gradient_norm_by_distance(
    encoder: Encoder, x: Tensor, seed: int = 0, loss: Callable[[Tensor], Tensor] | None = None
) -> list[float]:
    """‖∂ loss(h_T) / ∂x_{T-k}‖ for k = 0 … T-1, the mean over rows x (B, T, D) without padding.

    `loss` maps the last states (B, D) to the sum of the losses of the rows; None: v · h_T with random unit v. After Miller &
    Hardt, Stable Recurrent Models, ICLR 2019, figure 2, which takes the gradient of the loss at all positions; the last one
    alone, and v, are ours.
    """
    # cuDNN's LSTM has no backward pass in evaluation mode; without it, torch's LSTM has.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        x = x.detach().requires_grad_()
        last = encoder(x)[:, -1]  # (B, D)
        generator = torch.Generator().manual_seed(seed)
        v = F.normalize(torch.randn(last.shape, generator=generator), dim=-1).to(last)
        (gradient,) = torch.autograd.grad((v * last).sum() if loss is None else loss(last), x)
    return gradient.double().norm(dim=-1).mean(dim=0).flip(0).tolist()
