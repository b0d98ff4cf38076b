"""The contraction factor of the projected LSTM, against which projections and truncated models are tested."""


def lstm_contraction(forget_bound: float) -> float:
    """λ of the projected LSTM on states (c, h) with |c| <= 1 / (1 - f̄), in the ∞-norm (ours): f̄ + (1 - f̄)(3 + f̄) / 4.

    Of |Δc'| at most f̄ comes from c, f̄ (1 - f̄) / 4 from the forget gate (|c| times a quarter of f̄ times its matrix) and
    (1 - f̄) / 2 from input gate and candidate; |Δh'| is at most that and the output gate's (1 - f̄) / 4.
    """
    return forget_bound + (1 - forget_bound) * (3 + forget_bound) / 4
