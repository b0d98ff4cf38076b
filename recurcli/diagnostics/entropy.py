"""How spread out a layer's values and an attention's weights are.

Shapes: B batch, T positions, D hidden size. `mask` (B, T) is bool, True at real tokens.
"""

from torch import Tensor

LARGEST_SAMPLE = 200_000
"""More values than this tell nothing more: every n-th is taken."""


def differential_entropy(states: Tensor, mask: Tensor) -> float:
    """Entropy in nats of the density of a layer's values, all coordinates of all real tokens; states (B, T, D).

    TransJect (Sengupta et al., 2023, eq. 6) takes it of the empirical density; the estimator, scipy's, is our choice.
    """
    from scipy import stats

    values = states[mask].double().flatten()
    values = values[:: max(1, len(values) // LARGEST_SAMPLE)]
    return float(stats.differential_entropy(values.numpy()))


def attention_entropy(weights: Tensor, mask: Tensor) -> float:
    """Mean entropy in nats of the attention of real queries; weights (B, T, T) or (B, H, T, T), rows sum to 1.

    0 where each position looks at one other, log T where it looks at all alike.
    """
    heads = weights if weights.ndim == 4 else weights.unsqueeze(1)  # (B, H, T, T)
    entropies = -(heads * heads.clamp_min(1e-30).log()).sum(dim=-1)  # (B, H, T)
    return entropies.mT[mask].double().mean().item()
