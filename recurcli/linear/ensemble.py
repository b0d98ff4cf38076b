"""The rule by which a run keeps the encoder, the linear model, or an ensemble of both: `fit_ensemble` [ours].

The weights are fitted on the dev rows. Nothing else of the package depends on how they were found. Shapes: N rows, C classes.
"""

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.model import Logits

RowWeights = NDArray[np.float64] | None
"""(N,) factors of the rows' losses; None: 1."""

PRIOR_WEIGHTS = np.array([0.5, 2.0])
"""The weights of encoder and linear model to which the L2 penalty pulls. Ours: about those fitted on 600 TNEWS rows."""
SMALLEST = 1e-3
"""Lower bound of the weight of a model that stands alone. With weight 0 all logits would be equal."""
ENCODER_FACTOR = 0.75
"""Factor of the encoder's fitted weight. Ours: its step is chosen by the same dev rows, on which its logits are therefore a
little too good. presets/RESULTS.md has other factors beside it."""
STANDARD_ERRORS = 1.0
"""Standard errors by which the weight of a part must be above 0."""
ENCODER, LINEAR = 0, 1


def fit_ensemble(
    encoder: Logits, linear: Logits, targets: NDArray[np.int64], row_weights: RowWeights = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weights of the parts that are kept, and the weight of each part without the other.

    Both parts have logits (N, C) of rows with the `targets` (N,). The weights are those with the smallest cross-entropy, with
    ENCODER_FACTOR of the encoder's. A part whose weight is not above 0 by one standard error is left out, and the other one has
    its own weight. Where neither is, the linear model is kept.
    """
    parts, names = np.stack([encoder, linear]), ("encoder", "linear")
    alone = [
        fit_calibration(part, targets, prior, row_weights) for part, prior in zip(parts, PRIOR_WEIGHTS, strict=True)
    ]
    weights = fit_weights(parts, targets, PRIOR_WEIGHTS, row_weights)
    kept = weights > STANDARD_ERRORS * standard_errors(weights, parts, targets, row_weights)
    if kept.all():
        weights[ENCODER] *= ENCODER_FACTOR
        weights *= fit_calibration(np.tensordot(weights, parts, 1), targets, 1.0, row_weights)
        return dict(zip(names, weights.tolist(), strict=True)), dict(zip(names, alone, strict=True))
    best = ENCODER if kept[ENCODER] else LINEAR
    return {names[best]: alone[best]}, dict(zip(names, alone, strict=True))


def fit_calibration(
    logits: Logits,
    targets: NDArray[np.int64],
    prior: float = PRIOR_WEIGHTS[LINEAR],
    row_weights: RowWeights = None,
) -> float:
    """Return the factor of a model's logits (N, C) with the smallest cross-entropy on `targets` (N,)."""
    return max(SMALLEST, float(fit_weights(logits[None], targets, np.array([prior]), row_weights)[0]))


def fit_weights(
    parts: Logits, targets: NDArray[np.int64], prior: NDArray[np.float64], row_weights: RowWeights = None
) -> NDArray[np.float64]:
    """Return the weights (P,), none below 0, with which the sum of the logits `parts` (P, N, C) fits `targets` (N,) best.

    They minimise the sum of the rows' cross-entropies, times `row_weights` (N,), + |weights - prior|^2 / 2, which is convex.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rows = np.arange(len(targets))
    factors = np.ones(len(targets)) if row_weights is None else row_weights

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_probabilities = log_softmax(np.tensordot(weights, parts, 1), axis=1)
        gradient = np.exp(log_probabilities)  # of the cross-entropies with respect to the logits
        gradient[rows, targets] -= 1
        gradient *= factors[:, None]
        distance = weights - prior
        loss = distance @ distance / 2 - factors @ log_probabilities[rows, targets]
        return loss, distance + np.tensordot(parts, gradient, 2)

    weights: NDArray[np.float64] = minimize(
        objective, prior, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(parts), tol=1e-12
    ).x
    return weights


def standard_errors(
    weights: NDArray[np.float64], parts: Logits, targets: NDArray[np.int64], row_weights: RowWeights = None
) -> NDArray[np.float64]:
    """Return the standard errors (P,) of weights (P,) that `fit_weights` fitted on these rows (White, 1982, theorem 3.2).

    They are about the deviations of weights that are fitted on bootstraps of the rows.
    """
    from scipy.special import softmax

    factors = np.ones(len(targets)) if row_weights is None else row_weights
    shares = softmax(np.tensordot(weights, parts, 1), axis=1)
    means = np.einsum("nc,pnc->pn", shares, parts)
    gradients = factors * (means - parts[:, np.arange(len(targets)), targets])
    squares = np.einsum("n,nc,pnc,qnc->pq", factors, shares, parts, parts, optimize=True)
    inverse = np.linalg.inv(np.eye(len(parts)) + squares - (factors * means) @ means.T)
    return np.sqrt(np.diag(inverse @ (gradients @ gradients.T) @ inverse))
