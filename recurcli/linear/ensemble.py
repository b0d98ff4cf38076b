"""The rule by which a run keeps the encoder, the linear model, or an ensemble of both: `fit_ensemble` [ours].

The weights are fitted on the dev rows. Nothing else of the package depends on how they were found. Shapes: N rows,
C logits of a row, P parts.
"""

import numpy as np
from numpy.typing import NDArray

from recurcli.targets import Target
from recurcli.targets.target import Logits, RowWeights, Y

SMALLEST = 1e-3
"""Lower bound of the weight of a model that stands alone. With weight 0 all logits would be equal."""
ENCODER_FACTOR = 0.75
"""Factor of the encoder's fitted weight. Ours: its step is chosen by the same dev rows, on which its logits are therefore a
little too good. presets/RESULTS.md has other factors beside it."""
STANDARD_ERRORS = 1.0
"""Standard errors by which the weight of a part must be above 0."""
ENCODER, LINEAR = 0, 1


def fit_ensemble(
    encoder: Logits, linear: Logits, y: Y, target: Target, row_weights: RowWeights = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weights of the parts that are kept, and the weight of each part without the other.

    Both parts have logits (N, C) of rows with the labels `y`. The weights are those with the smallest loss of the `target`,
    pulled to its `prior_weights`, with ENCODER_FACTOR of the encoder's. A part whose weight is not above 0 by one standard
    error is left out, and the other one has its own weight. Where neither is, the linear model is kept.
    """
    parts, names, priors = np.stack([encoder, linear]), ("encoder", "linear"), np.array(target.prior_weights)
    alone = [fit_calibration(part, y, target, prior, row_weights) for part, prior in zip(parts, priors, strict=True)]
    weights = fit_weights(parts, y, target, priors, row_weights)
    kept = weights > STANDARD_ERRORS * standard_errors(weights, parts, y, target, row_weights)
    if kept.all():
        weights[ENCODER] *= ENCODER_FACTOR
        weights *= fit_calibration(np.tensordot(weights, parts, 1), y, target, 1.0, row_weights)
        return dict(zip(names, weights.tolist(), strict=True)), dict(zip(names, alone, strict=True))
    best = ENCODER if kept[ENCODER] else LINEAR
    return {names[best]: alone[best]}, dict(zip(names, alone, strict=True))


def fit_calibration(logits: Logits, y: Y, target: Target, prior: float, row_weights: RowWeights = None) -> float:
    """Return the factor of a model's logits (N, C) with the smallest loss on rows with the labels `y`."""
    return max(SMALLEST, float(fit_weights(logits[None], y, target, np.array([prior]), row_weights)[0]))


def fit_weights(
    parts: Logits, y: Y, target: Target, prior: NDArray[np.float64], row_weights: RowWeights = None
) -> NDArray[np.float64]:
    """Return the weights (P,), none below 0, with which the sum of the logits `parts` (P, N, C) fits the labels `y` best.

    They minimise the sum of the rows' losses, times `row_weights` (N,), + |weights - prior|^2 / 2, which is convex.
    """
    from scipy.optimize import minimize

    factors = np.ones(len(y)) if row_weights is None else row_weights

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        losses, gradient = target.losses_and_gradient(np.tensordot(weights, parts, 1), y)
        distance = weights - prior
        loss = float(distance @ distance / 2 + factors @ losses)
        return loss, distance + np.tensordot(parts, gradient * factors[:, None], 2)

    weights: NDArray[np.float64] = minimize(
        objective, prior, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(parts), tol=1e-12
    ).x
    return weights


def standard_errors(
    weights: NDArray[np.float64], parts: Logits, y: Y, target: Target, row_weights: RowWeights = None
) -> NDArray[np.float64]:
    """Return the standard errors (P,) of weights (P,) that `fit_weights` fitted on these rows (White, 1982, theorem 3.2).

    They are about the deviations of weights that are fitted on bootstraps of the rows.
    """
    factors, logits = np.ones(len(y)) if row_weights is None else row_weights, np.tensordot(weights, parts, 1)
    gradients = factors * np.einsum("nc,pnc->pn", target.losses_and_gradient(logits, y)[1], parts)
    inverse = np.linalg.inv(np.eye(len(parts)) + target.curvature(logits, parts, factors))
    return np.sqrt(np.diag(inverse @ (gradients @ gradients.T) @ inverse))
