"""An ensemble: the linear model on n-grams, whose logits are joined with the encoder's.

Both are trained apart on the training rows, so the encoder is that of a run without an ensemble. The joint logits are a
weighted sum; the two weights are fitted on the dev rows [ours]. Shapes: N rows, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.model import LinearModel

Logits = NDArray[np.float64]
NEUTRAL = np.array([0.5, 2.0])
"""Centre of the L2 penalty on the weights of encoder and linear model. Ours: about the weights fitted on 600 TNEWS rows."""
SMALLEST = 1e-3
"""Lower bound of the weight of a part alone. With weight 0 all logits would be equal."""
SHARES = (1.0, 0.5, 0.25, 0.125)
"""Fractions of the fitted encoder weight that are tried. Ours: cross-entropy gives the encoder more weight than accuracy
does. On halves of 5,000 TNEWS rows that fitted nothing, sums have an accuracy of 57.6 % with all of it, and 57.9, 58.2 and
58.5 % with a half, a quarter and an eighth (linear model 58.3 %, encoder 55.7 %)."""
STANDARD_ERRORS = 1.0
"""Standard errors by which the sum must be better than a part alone, which is the simpler model (one-standard-error rule;
Hastie, Tibshirani & Friedman, 2009, section 7.10). Ours: on TNEWS and IMDb, sums that won by 0 or 1 of 600 dev rows lost 0.1 to
0.7 points on test rows, and the linear model alone is far faster."""


@dataclass(frozen=True)
class Ensemble:
    """The linear model, and the weights of the sum."""

    linear: LinearModel
    encoder_weight: float
    """0 if the linear model alone was selected."""
    linear_weight: float
    """0 if the encoder alone was selected."""
    rows: int
    """Number of dev rows on which the weights were fitted."""

    @classmethod
    def fit(
        cls,
        linear: LinearModel,
        logits: tuple[Logits, Logits],
        targets: NDArray[np.int64],
        score: Callable[[Logits], tuple[float, ...]],
    ) -> "Ensemble":
        """Choose the weights on rows with these `logits` of encoder and linear model (each N, C) and `targets` (N,).

        The better of encoder alone and linear model alone, by `score`, is the result, unless the best sum is better by `score`
        and by STANDARD_ERRORS: if exactly one of the two is right on n rows, the standard error of the difference is
        sqrt(n) rows. So on these rows the result is never worse than a part alone. The sums have the weights of the smallest
        cross-entropy, the encoder's times SHARES, both scaled to the smallest cross-entropy again.
        """
        parts, count = np.stack(logits), len(targets)
        alone = [max(SMALLEST, float(fit_weights(parts[[k]], targets, NEUTRAL[[k]])[0])) for k in (0, 1)]
        candidates = [cls(linear, 0.0, alone[1], count), cls(linear, alone[0], 0.0, count)]
        best = max(candidates, key=lambda ensemble: score(ensemble.join(*logits)))
        a, b = fit_weights(parts, targets, NEUTRAL).tolist()
        sums = []
        for share in SHARES if a and b else ():
            joint = share * a * parts[0] + b * parts[1]
            scale = max(SMALLEST, float(fit_weights(joint[None], targets, np.ones(1))[0]))
            sums.append(cls(linear, scale * share * a, scale * b, count))
        both = max(sums, key=lambda ensemble: score(ensemble.join(*logits)), default=best)
        if score(both.join(*logits)) <= score(best.join(*logits)):
            return best
        right, before = (ensemble.join(*logits).argmax(axis=1) == targets for ensemble in (both, best))
        gain, differ = int(right.sum()) - int(before.sum()), int((right != before).sum())
        return both if gain >= STANDARD_ERRORS * max(1, differ) ** 0.5 else best

    def join(self, encoder: Logits, linear: Logits) -> Logits:
        """Return the weighted sum of the logits (N, C) of encoder and linear model."""
        return self.encoder_weight * encoder + self.linear_weight * linear

    def to_json(self) -> dict[str, Any]:
        """Return the content of ensemble.json: the kind, the two weights, and the rows on which they were fitted."""
        return {
            "kind": "linear",
            "encoder_weight": self.encoder_weight,
            "linear_weight": self.linear_weight,
            "fitted_on": "dev",
            "rows": self.rows,
        }


def fit_weights(parts: Logits, targets: NDArray[np.int64], neutral: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights (P,), none below 0, with which the sum of the logits `parts` (P, N, C) fits `targets` (N,) best.

    They minimise the sum of the rows' cross-entropies + |weights - neutral|^2 / 2, which is convex.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rows = np.arange(len(targets))

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        log_probabilities = log_softmax(np.tensordot(weights, parts, 1), axis=1)
        gradient = np.exp(log_probabilities)  # of the cross-entropies with respect to the logits
        gradient[rows, targets] -= 1
        distance = weights - neutral
        loss = distance @ distance / 2 - log_probabilities[rows, targets].sum()
        return loss, distance + np.tensordot(parts, gradient, 2)

    found: NDArray[np.float64] = minimize(
        objective, neutral, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(parts), tol=1e-12
    ).x
    return found
