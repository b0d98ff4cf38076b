"""Linear models of few rows are fitted from inner products: they are those of scikit-learn's solvers, for all parts at once."""

from typing import Any

import numpy as np
import pytest
from class_numbers import numbered
from scipy.sparse import csr_matrix
from sklearn.svm import LinearSVC

from recurcli.config import DataConfig
from recurcli.linear.inner_products import fit_on_parts, gram_matrix
from recurcli.targets import Number, SeveralLabels
from recurcli.targets.one_label import UNSEEN


def drawn(rows: int = 120, columns: int = 60) -> csr_matrix:
    """Sparse vectors, of which the first columns are in most rows."""
    draw = np.random.default_rng(0)
    dense = draw.uniform(size=(rows, columns)) * (draw.uniform(size=(rows, columns)) < 0.05)
    dense[:, :3] = draw.normal(size=(rows, 3))
    return csr_matrix(dense.astype(np.float32))


def test_products_are_those_of_dense_vectors_and_of_the_bias() -> None:
    vectors = drawn()
    dense = vectors.toarray()
    np.testing.assert_allclose(gram_matrix(vectors), dense @ dense.T + 1, rtol=1e-5, atol=1e-5)


def primal(vectors: csr_matrix, found: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """The weights (V, C) and the bias (C,) of the first part."""
    return vectors.T @ found[0][0].T, found[1][0]


@pytest.mark.parametrize(("classes", "c"), [(2, 0.5), (2, 8.0), (3, 0.5), (3, 4.0)])
def test_classes_are_divided_as_by_linear_svc(classes: int, c: float) -> None:
    vectors, draw = drawn(), np.random.default_rng(1)
    y, row_weights = draw.integers(classes, size=120), draw.random(120)
    everything = np.ones((1, 120), bool)
    found = fit_on_parts(gram_matrix(vectors), y, numbered(classes + 1), c, row_weights, everything, 1e-5)
    weights, bias = primal(vectors, found)
    own = LinearSVC(C=c, tol=1e-8, max_iter=100_000, random_state=0)
    own.fit(vectors.astype(np.float64), y, row_weights)
    expected = own.decision_function(vectors)
    if classes == 2:
        expected = np.stack([-expected, expected], axis=1)
    np.testing.assert_allclose((vectors @ weights + bias)[:, :classes], expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found[2][0].T, vectors @ weights + bias, atol=1e-4)
    assert not weights[:, classes].any() and bias[classes] == UNSEEN


def test_each_part_is_fitted_without_the_other_rows() -> None:
    vectors, draw = drawn(), np.random.default_rng(1)
    y, parts = draw.integers(3, size=120), draw.random((2, 120)) < 0.7
    _, _, logits = fit_on_parts(gram_matrix(vectors), y, numbered(3), 1.0, None, parts, 1e-5)
    for part, own in zip(parts, logits, strict=True):
        svm = LinearSVC(tol=1e-8, max_iter=100_000, random_state=0).fit(vectors[part].astype(np.float64), y[part])
        np.testing.assert_allclose(own.T, svm.decision_function(vectors), rtol=2e-3, atol=2e-3)


def test_labels_have_their_weights_and_those_of_all_rows_or_none_are_constant() -> None:
    vectors, draw = drawn(), np.random.default_rng(1)
    y = np.column_stack([draw.random(120) < 0.3, np.zeros(120), np.ones(120), np.zeros(120)]).astype(np.int64)
    target = SeveralLabels(("a", "b", "c"), ",").weighted(np.array([3.0, 1.0, 1.0]))
    found = fit_on_parts(gram_matrix(vectors), y, target, 0.5, None, np.ones((1, 120), bool), 1e-5)
    weights, bias = primal(vectors, found)
    own = LinearSVC(C=0.5, tol=1e-8, max_iter=100_000, random_state=0)
    own.fit(vectors.astype(np.float64), y[:, 0], np.where(y[:, 0], 3.0, 1.0))
    np.testing.assert_allclose(weights[:, 0], own.coef_[0], atol=2e-3)
    assert bias[0] == pytest.approx(own.intercept_[0], abs=2e-3)
    assert not weights[:, 1:].any() and bias[1:].tolist() == [-1, 1]


def test_numbers_have_the_least_squares() -> None:
    vectors, draw = drawn(), np.random.default_rng(1)
    y, row_weights, c = draw.normal(size=120), draw.random(120), 0.25
    target = Number.of(y.tolist(), DataConfig())
    found = fit_on_parts(gram_matrix(vectors), y, target, c, row_weights, np.ones((1, 120), bool), 1e-5)
    x = np.column_stack([vectors.toarray(), np.ones(120)]).astype(float)
    system = np.eye(61) + 2 * c * x.T @ (row_weights[:, None] * x)
    exact = np.linalg.solve(system, 2 * c * x.T @ (row_weights * (y - y.mean()) / y.std()))
    for weights, bias in (primal(vectors, found), target.fit_linear(vectors, y, c, row_weights)):
        assert np.append(weights, bias) == pytest.approx(exact, abs=1e-3)
