"""SGD of the linear model: equal to the plain loop in float64."""

import numpy as np
import pytest
from class_numbers import numbered
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from recurcli.config import DataConfig
from recurcli.linear import fitting
from recurcli.targets import Number, Target
from recurcli.targets.target import Y

ROWS, SIZE, FEATURES = 150, 40, 6


def drawn(classes: int) -> tuple[csr_matrix, NDArray[np.float32], Y, NDArray[np.float64], Target]:
    draw = np.random.default_rng(0)
    vectors = csr_matrix(np.where(draw.random((ROWS, SIZE)) < 0.2, draw.random((ROWS, SIZE)), 0).astype(np.float32))
    features = draw.normal(1, 1, (ROWS, FEATURES)).astype(np.float32)
    if classes > 1:
        return vectors, features, draw.integers(classes, size=ROWS), draw.random(ROWS), numbered(classes)
    y = draw.normal(size=ROWS)
    return vectors, features, y, draw.random(ROWS), Number.of(y.tolist(), DataConfig())


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_its_steps_are_those_of_the_plain_loop(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "BLOCK_SIZE", 2 * fitting.BATCH_SIZE)
    vectors, features, y, row_weights, target = drawn(classes)
    found = fitting.fit_sgd(
        lambda rows: (vectors[rows], features[rows]), np.arange(len(y)), y, target, row_weights=row_weights
    )
    x, center = vectors.toarray().astype(float), features.mean(axis=0).astype(float)
    w, u, b = np.zeros((SIZE, target.width)), np.zeros((FEATURES, target.width)), np.zeros(target.width)
    order, done = np.random.default_rng(0), 0
    for _ in range(fitting.MAX_EPOCHS):
        for block in order.permutation(range(0, ROWS, fitting.BLOCK_SIZE)).tolist():
            of_block = features[block : block + fitting.BLOCK_SIZE] - center
            bounds = fitting._largest_eigenvalues(of_block.astype(np.float32))
            for number, start in enumerate(range(0, len(of_block), fitting.BATCH_SIZE)):
                own = slice(block + start, min(block + start + fitting.BATCH_SIZE, block + fitting.BLOCK_SIZE, ROWS))
                v = features[own] - center
                logits = x[own] @ w + v @ u + b
                gradient = target.linear_loss_gradient(logits, y[own], row_weights[own])
                rate = fitting.LEARNING_RATE * (1 - done / (fitting.MAX_EPOCHS * ROWS))
                w -= rate * x[own].T @ gradient
                u -= rate / max(1, bounds[number]) * v.T @ gradient
                b -= 0.1 * rate * gradient.sum(axis=0)
                done += len(v)
    np.testing.assert_allclose(found[0], np.concatenate([w, u]), atol=1e-4)
    np.testing.assert_allclose(found[1], b - center @ u, atol=1e-4)


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_a_batch_is_bounded_by_its_largest_eigenvalue(shift: float) -> None:
    features = np.random.default_rng(0).normal(shift, 1, (70, 9)).astype(np.float32)
    found = fitting._largest_eigenvalues(features)
    batches = [features[start : start + fitting.BATCH_SIZE] for start in range(0, 70, fitting.BATCH_SIZE)]
    exact = np.array([np.linalg.eigvalsh(batch @ batch.T)[-1] for batch in batches])
    assert len(found) == 3
    assert ((exact <= found * (1 + 1e-5)) & (found <= 1.25 * exact)).all()
    assert fitting._largest_eigenvalues(np.zeros((5, 0), np.float32)) == pytest.approx(0)
