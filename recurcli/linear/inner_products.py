"""Linear models of few rows, fitted from the inner products of their vectors: all classes, folds and C share one matrix.

Shapes: N rows, V features, C logits of a row, P parts of the rows, R models of one logit each.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recurcli.targets import Target
from recurcli.targets.target import RowWeights, Y

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Floats = NDArray[np.floating[Any]]

MAX_ROWS, MAX_SCALE = 4096, 2.0
"""Models of more rows, or of static vectors with a larger norm, are left to LIBLINEAR. Ours: the matrix has 64 MB then, and
Newton's steps converge."""
VALUES_OF_MODEL, VALUES_OF_START = 700, 3_000_000_000
"""Rows for which inner products read a value in the time that LIBLINEAR takes for a value and a model; and values x rows that
take as long as the import of scikit-learn (see `pays`). Ours."""
DENSE_SHARE = 32
"""An n-gram of more than one row in so many is cheaper in a dense matrix. Ours."""
ROWS_AT_ONCE = 512
MANY_LOGITS = 12
"""With as many logits each part is fitted from the products of its own rows, with fewer all parts from one matrix. Ours."""
STEPS, DIRECTIONS, HALVINGS = 30, 5, 10
"""The largest numbers of Newton's steps, of conjugate gradients in each, and of halvings of its length. Ours."""
GRADIENT_NORM, GRADIENT_NORM_OF_CHOICE = 1e-3, 1e-2
"""The gradient's norm at the end, relative to that without weights: of a model that is kept, and of one that is compared. Ours:
with C 0.5 and five classes held-out logits differ by 0.004 and by 0.02 from those at the minimum (root mean square)."""


def pays(rows: int, values: int, dense: int, scale: float, models: int) -> bool:
    """Return whether so many `models` of `rows` take less time from inner products than by LIBLINEAR.

    The rows have `values` n-grams in all, and `dense` further values each, of static vectors with the norm `scale`.
    """
    work = values * rows - VALUES_OF_MODEL * (values + dense * rows) * models
    return rows <= MAX_ROWS and scale <= MAX_SCALE and work <= VALUES_OF_START


def gram_matrix(vectors: "csr_matrix") -> Floats:
    """Return the inner products (N, N) of the rows of `vectors` (N, V), each with a 1 for the bias after it."""
    columns = vectors.tocsc()
    often = np.diff(columns.indptr) * DENSE_SHARE > vectors.shape[0]
    dense, rare = columns[:, often].toarray(), columns[:, ~often]
    found, rare = dense @ dense.T + np.float32(1), rare.tocsr()
    for start in range(0, len(found), ROWS_AT_ONCE):  # a sparse matrix of all would take more memory than they do
        found[start : start + ROWS_AT_ONCE] += (rare[start : start + ROWS_AT_ONCE] @ rare.T).toarray()
    return found


def fit_on_parts(
    products: Floats,
    y: Y,
    target: Target,
    c: float,
    row_weights: RowWeights,
    parts: NDArray[np.bool_],
    tolerance: float = GRADIENT_NORM,
) -> tuple[Floats, Floats, Floats]:
    """Fit a model on each of the `parts` (P, N) of the rows, whose inner products are (N, N), with the loss of the `target`.

    Return the coefficients (P, C, N), the biases (P, C), and the logits (P, C, N) of all rows. A logit whose goal is the same
    for all rows of a part is constant (`Target.constant_logits`).
    """
    goals = target.linear_goals(y).T  # (C, N)
    differ = (goals != goals.T[parts.argmax(axis=1)][..., None]) & parts[:, None]
    alike = ~differ.any(axis=2)  # (P, C)
    factors = 2 * c * target.linear_factors(y, row_weights).T * parts[:, None] * ~alike[..., None]
    constant = np.where(alike, [target.constant_logits(y[part]) for part in parts], 0).astype(np.float32)
    coefficients = np.zeros((len(parts), *goals.shape), np.float32)
    logits, every = np.empty_like(coefficients), range(len(parts))
    for group in [slice(n, n + 1) for n in every] if len(goals) >= MANY_LOGITS else [slice(None)]:
        used = parts[group].any(axis=0)
        rows = products if used.all() else products[used]
        own = np.broadcast_to(goals, coefficients[group].shape)[..., used], factors[group][..., used]
        flat = [each.reshape(-1, len(rows)).astype(np.float32) for each in own]
        is_svc = target.linear_solver == "LinearSVC"
        found = fit_coefficients(rows if used.all() else rows[:, used], flat[0], flat[1], tolerance, hinge=is_svc)
        coefficients[group, :, used] = found.reshape(own[0].shape)
        logits[group] = (found @ rows).reshape(logits[group].shape) + constant[group, :, None]
    return coefficients, coefficients.sum(axis=2) + constant, logits


def fit_coefficients(
    products: Floats, goals: Floats, factors: Floats, tolerance: float = GRADIENT_NORM, *, hinge: bool
) -> Floats:
    """Return the coefficients a (R, N) of R linear models, whose logits are f = a K (R, N); K: `products` (N, N).

    The weights are w = sum_i a_i x_i. Each model minimizes |w|² / 2 + sum_i factors_i (goals_i - f_i)² / 2, given its `goals`
    (R, N) and `factors` (R, N). With `hinge` goals are 1 or -1, and a row whose logit lies beyond its goal costs nothing: that
    is LinearSVC's loss. Newton's steps are made by conjugate gradients in the norm of w (Keerthi & DeCoste, 2005, "A Modified
    Finite Newton Method"; Chapelle, 2007, "Training a Support Vector Machine in the Primal").
    """
    a, f, least = np.zeros_like(goals), np.zeros_like(goals), np.float32(1e-30)
    first = None
    for _ in range(STEPS):
        h = factors * (goals * f < 1) if hinge else factors
        r = h * (goals - f) - a  # the downward gradient is sum_i r_i x_i
        r_k = r @ products
        norms = first_norms = _dot(r, r_k)
        first = first_norms if first is None else first
        is_open = norms > tolerance**2 * first
        if not is_open.any():
            break
        step, step_k, p, p_k = np.zeros_like(a), np.zeros_like(a), r, r_k
        for _ in range(DIRECTIONS):
            h_p = p + h * p_k
            length = np.where(is_open, norms / np.maximum(_dot(p_k, h_p), least), 0)
            step, step_k, r = step + length * p, step_k + length * p_k, r - length * h_p
            r_k = r @ products
            before, norms = norms, _dot(r, r_k)
            is_open &= norms > 0.01 * first_norms  # further directions of a solved model would be rounding errors
            if not is_open.any():
                break
            ratio = norms / np.maximum(before, least)
            p, p_k = r + ratio * p, r_k + ratio * p_k
        size, now = np.ones_like(first), _objective(a, f, goals, factors, hinge=hinge)
        for _ in range(HALVINGS):
            rises = _objective(a + size * step, f + size * step_k, goals, factors, hinge=hinge) > now
            if not rises.any():
                break
            size[rises] /= 2
        a, f = a + size * step, f + size * step_k
    return a


def _objective(a: Floats, f: Floats, goals: Floats, factors: Floats, *, hinge: bool) -> Floats:
    """Return what `fit_coefficients` minimizes (R, 1)."""
    lost = np.maximum(1 - goals * f, 0) if hinge else goals - f
    return (_dot(a, f) + _dot(factors * lost, lost)) / 2


def _dot(x: Floats, y: Floats) -> Floats:
    """Return the inner products of the rows of two matrices (R, N): (R, 1)."""
    return np.einsum("rn,rn->r", x, y)[:, None]
