"""What a layer does to the distances between the tokens of a text.

Shapes: B batch, T positions, D hidden size, N pairs. `mask` (B, T) is bool, True at real tokens.
"""

import torch
from torch import Tensor


def pair_distances(states: Tensor, mask: Tensor) -> Tensor:
    """Euclidean distances (N,) of all pairs of real tokens within a sample; states (B, T, D)."""
    found = []
    for row, real in zip(states.double(), mask, strict=True):
        found.append(torch.pdist(row[real]))
    return torch.cat(found)


def mean_ratio(before: Tensor, after: Tensor) -> float:
    """Mean of after / before over the pairs whose `before` is not 0; NaN where there is none."""
    apart = before > 1e-9 * before.amax() if before.numel() else before.bool()
    return (after[apart] / before[apart]).mean().item()


def activation_factor(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Mean over samples and token pairs of |h'_i - h'_j| / |h_i - h_j|; before and after (B, T, D).

    1 where distances are kept, above 1 where they grow. TransJect (Sengupta et al., 2023) reports such a factor in its
    eq. 5, whose exact form is lost to us: this one is ours.
    """
    return mean_ratio(pair_distances(before, mask), pair_distances(after, mask))


def distance_preservation(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Pearson's correlation of the pairs' distances before and after: 1 where all grow alike."""
    pairs = torch.stack([pair_distances(before, mask), pair_distances(after, mask)])
    return torch.corrcoef(pairs)[0, 1].item()


def movement(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Mean of |h' - h| over the real tokens."""
    return (after - before)[mask].double().norm(dim=-1).mean().item()
