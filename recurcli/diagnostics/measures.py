"""What a layer does to distances, how spread out its values and attention are, and how far back an encoder looks.

Shapes: B batch, T positions, D hidden size, N pairs. `mask` (B, T) is bool, True at real tokens.
"""

import torch
from torch import Tensor

from recurcli.encoders.encoder import Encoder

BINS = 256


def pair_distances(states: Tensor, mask: Tensor) -> Tensor:
    """Euclidean distances (N,) of all pairs of real tokens within a sample; states (B, T, D)."""
    return torch.cat([torch.pdist(row[real]) for row, real in zip(states.double(), mask, strict=True)])


def activation_factor(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Mean over samples and token pairs of |h'_i - h'_j| / |h_i - h_j|; before and after (B, T, D).

    1 where distances are kept, above 1 where they grow; pairs without a distance before are left out. TransJect (Sengupta
    et al., 2023) reports such a factor in its eq. 5, whose exact form is lost to us: this one is ours.
    """
    old, new = pair_distances(before, mask), pair_distances(after, mask)
    apart = old > 1e-9 * old.amax() if old.numel() else old.bool()
    return (new[apart] / old[apart]).mean().item()


def distance_preservation(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Pearson's correlation of the pairs' distances before and after; 1 if all are scaled by one factor."""
    pairs = torch.stack([pair_distances(before, mask), pair_distances(after, mask)])
    return torch.corrcoef(pairs)[0, 1].item()


def movement(before: Tensor, after: Tensor, mask: Tensor) -> float:
    """Mean of |h' - h| over the real tokens."""
    return (after - before)[mask].double().norm(dim=-1).mean().item()


def differential_entropy(states: Tensor, mask: Tensor) -> float:
    """Entropy in nats of the density of a layer's values, all coordinates of all real tokens; states (B, T, D).

    TransJect (Sengupta et al., 2023, eq. 6) takes it of the empirical density; a histogram of BINS bins is our choice.
    Unlike estimators from spacings, it allows values that occur many times, such as those of a repeated token.
    """
    import numpy as np
    from scipy import stats

    values = states[mask].double().flatten().cpu().numpy()
    return float(stats.rv_histogram(np.histogram(values, bins=BINS)).entropy())


def attention_entropy(weights: Tensor, mask: Tensor) -> float:
    """Mean entropy in nats of the attention of real queries; weights (B, T, C) or (B, H, T, C), rows sum to 1.

    0 where each position looks at one other, log C where it looks at all alike.
    """
    heads = weights if weights.ndim == 4 else weights.unsqueeze(1)  # (B, H, T, C)
    entropies = -(heads * heads.clamp_min(1e-30).log()).sum(dim=-1)  # (B, H, T)
    return entropies.mT[mask].double().mean().item()


def gradient_norm_by_distance(encoder: Encoder, x: Tensor, seed: int = 0) -> list[float]:
    """‖∂(v · h_T) / ∂x_{T-k}‖ for k = 0 … T-1, the mean over rows x (B, T, D) without padding and random unit v.

    After Miller & Hardt, Stable Recurrent Models, ICLR 2019, figure 2, which takes the gradient of the loss at all
    positions; a random projection of the last state is ours.
    """
    # cuDNN's LSTM has no backward pass in evaluation mode; without it, torch's LSTM has.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        x = x.detach().requires_grad_()
        last = encoder(x)[:, -1]  # (B, D)
        generator = torch.Generator().manual_seed(seed)
        v = torch.nn.functional.normalize(torch.randn(last.shape, generator=generator), dim=-1).to(last)
        (gradient,) = torch.autograd.grad((v * last).sum(), x)
    return gradient.double().norm(dim=-1).mean(dim=0).flip(0).tolist()
