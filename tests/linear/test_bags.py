"""Sums of the rows of a table."""

import itertools

import numpy as np
import pytest

from recurcli.linear.bags import LONG, sums, unit


def bags(bags: int = 40, longest: int = 2 * LONG) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the offsets, rows, table and weights of random bags, of which the first and the last are empty."""
    drawn = np.random.default_rng(0)
    lengths = np.append(0, drawn.integers(0, longest, bags - 1))
    lengths[-1] = 0
    rows = drawn.integers(0, 50, lengths.sum()).astype(np.uint16)
    table = drawn.normal(size=(50, 7)).astype(np.float32)
    return np.append(0, np.cumsum(lengths)), rows, table, drawn.normal(size=len(rows)).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_bag_has_the_weighted_sum_of_its_rows(*, weighted: bool) -> None:
    offsets, rows, table, weights = bags()
    expected = np.zeros((len(offsets) - 1, table.shape[1]))
    for bag in range(len(expected)):
        for item in range(offsets[bag], offsets[bag + 1]):
            expected[bag] += (float(weights[item]) if weighted else 1.0) * table[rows[item]].astype(np.float64)
    found = sums(offsets, rows, table, weights if weighted else None)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sum_does_not_depend_on_the_other_bags(*, weighted: bool) -> None:
    offsets, rows, table, weights = bags()
    together = sums(offsets, rows, table, weights if weighted else None)
    for bag, (start, end) in enumerate(itertools.pairwise(offsets)):
        alone = sums(np.array([0, end - start]), rows[start:end], table, weights[start:end] if weighted else None)
        assert np.array_equal(alone[0], together[bag])


def test_zeros_have_no_direction() -> None:
    assert np.allclose(unit(np.array([[3, 4], [0, 0]], np.float32)), np.array([[0.6, 0.8], [0, 0]]))
