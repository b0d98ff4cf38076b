"""The rule by which a run keeps the encoder, the linear model, or an ensemble of both: `choose_ensemble` [ours].

The weights are fitted on the dev rows. Nothing else of the package depends on how they were found. Shapes: N rows, C classes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.model import Ensemble, LinearModel, Logits

RowWeights = NDArray[np.float64] | None
"""(N,) factors of the rows' losses; None: 1."""

PRIOR_WEIGHTS = np.array([0.5, 2.0])
"""The weights of encoder and linear model to which the L2 penalty pulls. Ours: about those fitted on 600 TNEWS rows."""
SMALLEST = 1e-3
"""Lower bound of the weight of a model that stands alone. With weight 0 all logits would be equal."""
ENCODER_WEIGHT_FACTORS = (1.0, 0.5, 0.25, 0.125)
"""Factors of the fitted encoder weight that are tried. Ours: cross-entropy gives the encoder more weight than accuracy
does. On halves of 5,000 TNEWS rows that fitted nothing, ensembles have an accuracy of 57.6 % with all of it, and 57.9, 58.2
and 58.5 % with a half, a quarter and an eighth (linear model 58.3 %, encoder 55.7 %)."""
STANDARD_ERRORS = 2.0
"""Standard errors by which the cross-entropy of an ensemble must be lower than that of the better part, the simpler model. With
one more ensembles are kept, but on AFQMC, where no accuracy is above the majority's, they lose up to 0.9 points (ours)."""
ENCODER, LINEAR = 0, 1
ENSEMBLES = range(2, 2 + len(ENCODER_WEIGHT_FACTORS))
"""Numbers of the candidates of `fit_candidates`."""
FEWEST_ROWS = 100
"""Dev rows that an ensemble needs. Ours: with 50 rows hardly any is significantly better."""


def choose_ensemble(
    linear: LinearModel,
    logits: tuple[Logits, Logits],
    targets: NDArray[np.int64],
    score: Callable[[Logits], tuple[float, ...]],
    row_weights: RowWeights = None,
) -> Ensemble:
    """Choose what is kept by rows with these `logits` of encoder and linear model (each N, C) and `targets` (N,).

    The better part is the encoder or the linear model, by `score`. The result is the best by `score` of the ensembles that
    are `significantly_better`. It is the better part where there are none, or fewer than FEWEST_ROWS rows.
    """
    parts, count = np.stack(logits), len(targets)
    weights = fit_candidates(parts, targets, row_weights)
    scores = [score(np.tensordot(row, parts, 1)) for row in weights]
    part = max((LINEAR, ENCODER), key=scores.__getitem__)
    ensembles = significantly_better(weights, part, parts, targets, row_weights) if count >= FEWEST_ROWS else []
    encoder_weight, linear_weight = weights[max(ensembles, key=scores.__getitem__, default=part)].tolist()
    return Ensemble(linear, encoder_weight, linear_weight, count, float(weights[LINEAR, 1]))


def fit_calibration(
    logits: Logits,
    targets: NDArray[np.int64],
    prior: float = PRIOR_WEIGHTS[LINEAR],
    row_weights: RowWeights = None,
) -> float:
    """Return the factor of a model's logits (N, C) with the smallest cross-entropy on `targets` (N,)."""
    return max(SMALLEST, float(fit_weights(logits[None], targets, np.array([prior]), row_weights)[0]))


def fit_candidates(parts: Logits, targets: NDArray[np.int64], row_weights: RowWeights = None) -> NDArray[np.float64]:
    """Return the weights (K, 2) of encoder and linear model in each candidate, fitted on `parts` (2, N, C) and `targets` (N,).

    Candidates are the encoder, the linear model, and an ensemble for each of ENCODER_WEIGHT_FACTORS. An ensemble starts from
    the weights of the smallest cross-entropy. The factor multiplies the encoder's weight. One number then scales both to the
    smallest cross-entropy. A weight of an ensemble is 0 where the part does not lower the cross-entropy.
    """
    alone = [fit_calibration(parts[part], targets, PRIOR_WEIGHTS[part], row_weights) for part in (ENCODER, LINEAR)]
    weights = [*np.diag(alone)]
    encoder, linear = fit_weights(parts, targets, PRIOR_WEIGHTS, row_weights).tolist()
    for factor in ENCODER_WEIGHT_FACTORS:
        pair = np.array([factor * encoder, linear])
        weights.append(pair * fit_calibration(np.tensordot(pair, parts, 1), targets, 1.0, row_weights))
    return np.stack(weights)


def significantly_better(
    weights: NDArray[np.float64],
    part: int,
    parts: Logits,
    targets: NDArray[np.int64],
    row_weights: RowWeights = None,
) -> list[int]:
    """Return which candidates of `weights` (K, 2) are ensembles that are significantly better than the candidate `part`.

    Its held-out cross-entropy is lower by STANDARD_ERRORS of the rows' differences. Or its cross-entropy is lower at all, and
    its accuracy is higher by one standard error. That is sqrt(n) rows, if exactly one of the two is right on n rows.
    """
    if not weights[ENSEMBLES].all():
        return []
    losses = held_out_losses(parts, targets, row_weights)
    right = np.stack([np.tensordot(row, parts, 1).argmax(axis=1) == targets for row in weights])
    gains = losses[part] - losses[ENSEMBLES]
    won, differ = right[ENSEMBLES].sum(axis=1) - right[part].sum(), (right[ENSEMBLES] != right[part]).sum(axis=1)
    lower = gains.mean(axis=1) > STANDARD_ERRORS * gains.std(axis=1, ddof=1) / len(targets) ** 0.5
    higher = (gains.mean(axis=1) > 0) & (won >= np.maximum(1, differ) ** 0.5)
    return [number for number, better in zip(ENSEMBLES, lower | higher, strict=True) if better]


def held_out_losses(parts: Logits, targets: NDArray[np.int64], row_weights: RowWeights = None) -> NDArray[np.float64]:
    """Return the cross-entropy of each row (K, N) with each candidate's weights that are fitted on the other half of the rows.

    Each half has every second row of each class, in an order that is drawn with a fixed seed.
    """
    from scipy.special import log_softmax

    order = np.lexsort((np.random.default_rng(0).random(len(targets)), targets))
    halves = order[::2], order[1::2]
    losses = np.empty((2 + len(ENCODER_WEIGHT_FACTORS), len(targets)))
    for fitted, scored in (halves, halves[::-1]):
        own = None if row_weights is None else row_weights[fitted]
        joint = np.tensordot(fit_candidates(parts[:, fitted], targets[fitted], own), parts[:, scored], 1)
        losses[:, scored] = -log_softmax(joint, axis=2)[:, np.arange(len(scored)), targets[scored]]
    return losses


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
