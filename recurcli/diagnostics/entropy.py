"""How spread out a layer's values and an attention's weights are.

Shapes: B batch, T positions, D hidden size. `mask` (B, T) is bool, True at real tokens.
"""

from torch import Tensor

BINS = 256


def differential_entropy(states: Tensor, mask: Tensor) -> float:
    """Entropy in nats of the density of a layer's values, all coordinates of all real tokens; states (B, T, D).

    TransJect (Sengupta et al., 2023, eq. 6) takes it of the empirical density; a histogram of BINS bins is our choice.
    It bears what estimators from spacings do not: values that occur many times, as those of a repeated token.
    """
    import numpy as np
    from scipy import stats

    values = states[mask].double().flatten().cpu().numpy()
    return float(stats.rv_histogram(np.histogram(values, bins=BINS)).entropy())


def attention_entropy(weights: Tensor, mask: Tensor) -> float:
    """Mean entropy in nats of the attention of real queries; weights (B, T, T) or (B, H, T, T), rows sum to 1.

    0 where each position looks at one other, log T where it looks at all alike.
    """
    heads = weights if weights.ndim == 4 else weights.unsqueeze(1)  # (B, H, T, T)
    entropies = -(heads * heads.clamp_min(1e-30).log()).sum(dim=-1)  # (B, H, T)
    return entropies.mT[mask].double().mean().item()
