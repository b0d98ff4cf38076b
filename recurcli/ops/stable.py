"""Projections that make recurrent models stable (Miller & Hardt, Stable Recurrent Models, 2019, sections 2 and 4).

A model is stable where its state map contracts: ‖φ(h, x) - φ(h', x)‖ <= λ ‖h - h'‖ with λ < 1. Matrices are (S, S) and
act from the left, h -> W h; a row belongs to one unit of the new state.
"""

import torch
from torch import Tensor


def clip_singular_values(weight: Tensor, bound: float) -> Tensor:
    """Return the nearest matrix whose singular values are at most `bound`. A matrix that fulfils this is returned unchanged.

    With |tanh'| <= 1 the network tanh(W h + U x + b) then contracts by `bound` in the 2-norm.
    """
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    clipped = (left * values.clamp(max=bound)) @ right
    return torch.where(values.amax() <= bound, weight, clipped)


def scale_rows(weight: Tensor, bound: float) -> Tensor:
    """`weight` with each row whose absolute sum exceeds `bound` scaled down to it: the induced ∞-norm is `bound` at most.

    Ours: the nearest such row, as in projected gradient descent, would have its entries reduced by one number instead.
    """
    sums = weight.abs().sum(dim=-1, keepdim=True)
    return weight * (bound / sums).clamp(max=1)


def lstm_bounds(forget_bound: float) -> tuple[float, float, float, float]:
    """The ∞-norms allowed to an LSTM's recurrent matrices, in the order input, forget, candidate, output.

    With f̄ the forget gate's largest value: 1 - f̄ for W_i and W_o, (1 - f̄)² for W_f, (1 - f̄) / 4 for W_z (the paper's
    proposition on LSTMs).
    """
    rest = 1 - forget_bound
    return rest, rest**2, rest / 4, rest


def lstm_contraction(forget_bound: float) -> float:
    """λ of an LSTM within `lstm_bounds`, on states (c, h) with |c| <= 1 / (1 - f̄), in the ∞-norm: f̄ + (1 - f̄)(3 + f̄) / 4. Ours.

    Of |Δc'| at most f̄ comes from c, f̄ (1 - f̄) / 4 from the forget gate (|c| times a quarter of f̄ times its matrix) and
    (1 - f̄) / 2 from input gate and candidate; |Δh'| is at most that and the output gate's (1 - f̄) / 4.
    """
    return forget_bound + (1 - forget_bound) * (3 + forget_bound) / 4


def truncation_factor(contraction: float, window: int) -> float:
    """λ^k / (1 - λ), by which Lemma 1 bounds what a window of k inputs changes in a state, in units of ‖U‖ max ‖x‖ + ‖b‖."""
    return contraction**window / (1 - contraction)


def project_lstm(weight: Tensor, forget_bound: float) -> Tensor:
    """Recurrent weights (4 S, S) of input gate, forget gate, candidate and output gate, each within its bound."""
    parts = weight.chunk(4)
    return torch.cat([scale_rows(part, bound) for part, bound in zip(parts, lstm_bounds(forget_bound), strict=True)])
