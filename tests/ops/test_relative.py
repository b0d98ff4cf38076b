"""Relative positions are explicit lags: the shift, the four terms, and their gradients."""

import pytest
import torch
from equations import check_same
from torch import Tensor

from recurcli.ops.relative import relative_attention_weights, relative_attention_weights_loop, relative_shift

SIZES = pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (3, 3), (4, 6), (2, 9)])


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@SIZES
def test_the_shift_reads_the_score_of_each_lag(queries: int, keys: int) -> None:
    scores = draw(2, queries, keys + queries)
    shifted = relative_shift(scores)
    assert shifted.shape == (2, queries, keys)
    for i in range(queries):
        for j in range(keys):
            lag = keys - queries + i - j
            assert torch.equal(shifted[:, i, j], scores[:, i, keys - 1 - lag])


@SIZES
@pytest.mark.parametrize("causal", [False, True])
def test_weights_and_gradients_are_those_of_the_four_terms(queries: int, keys: int, causal: bool) -> None:
    torch.manual_seed(0)
    inputs = draw(2, 2, queries, 3), draw(2, 2, keys, 3), draw(2, keys + queries, 3), draw(2, 3), draw(2, 3)
    found = relative_attention_weights(*inputs, causal=causal)
    query, key, lags, u, v = inputs
    loops = []
    for h in range(2):
        lag = {keys - 1 - place: lags[h, place] for place in range(keys + queries)}
        loops += [
            relative_attention_weights_loop(query[h, n], key[h, n], lag, u[h], v[h], causal=causal) for n in range(2)
        ]
    expected = torch.stack(loops).view(found.shape)
    check_same(found, expected, inputs)


def test_a_masked_key_has_no_weight_and_a_query_without_a_key_is_finite() -> None:
    query, key, lags = draw(2, 2, 3, 4), draw(2, 2, 5, 4), draw(2, 8, 4)
    mask = torch.tensor([[False, True, True, True, False], [False] * 5])
    weights = relative_attention_weights(query, key, lags, draw(2, 4), draw(2, 4), mask)
    assert (weights[:, 0, :, [0, 4]] == 0).all()
    torch.testing.assert_close(weights[:, 1], torch.full_like(weights[:, 1], 0.2))
