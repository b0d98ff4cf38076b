"""Measures of a layer's effect on distances, of the spread of its values and attention, and of how far back an encoder looks.

Shapes: B batch, T positions, D hidden size, N pairs. `mask` (B, T) is bool, True at real tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

import torch
from torch import Tensor

from recurcli.encoders.encoder import Encoder


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
        v = torch.nn.functional.normalize(torch.randn(last.shape, generator=generator), dim=-1).to(last)
        (gradient,) = torch.autograd.grad((v * last).sum() if loss is None else loss(last), x)
    return gradient.double().norm(dim=-1).mean(dim=0).flip(0).tolist()
