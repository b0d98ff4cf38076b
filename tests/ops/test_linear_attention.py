"""Linear attention's forms are one: the sums, the matrix of weights, and the recurrence."""

from typing import Any, get_args

import pytest
import torch
from equations import check_same
from torch import Tensor

from recurcli.ops.linear_attention import (
    EPSILON,
    FeatureMap,
    feature_map,
    linear_attention,
    linear_attention_loop,
    linear_attention_step,
)

KINDS = pytest.mark.parametrize("kind", get_args(FeatureMap))
CAUSAL = pytest.mark.parametrize("causal", [False, True])


def inputs(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys (2, 3, T, 4), values (2, 3, T, 5)."""
    generator = torch.Generator().manual_seed(3)
    query, key, value = (
        torch.randn(2, 3, length, size, dtype=torch.float64, generator=generator).to(dtype) for size in (4, 4, 5)
    )
    return query, key, value


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def test_the_feature_map_is_elu_plus_one_and_never_negative() -> None:
    x = torch.linspace(-200, 50, 501, dtype=torch.float64)
    close(feature_map(x), torch.nn.functional.elu(x) + 1)
    assert (feature_map(x.float()) >= 0).all()
    assert feature_map(torch.tensor(-80.0)) > 0


def test_the_other_feature_maps_are_relu_and_exp_up_to_a_bound() -> None:
    x = torch.linspace(-40, 40, 81, dtype=torch.float64)
    assert torch.equal(feature_map(x, "relu"), x.relu())
    assert torch.equal(feature_map(x, "exp"), x.clamp(max=30).exp())
    largest = torch.full((2, 3, 4096, 64), 1e10)
    assert torch.isfinite(linear_attention(largest, largest, torch.ones(2, 3, 4096, 5), kind="exp")).all()


@CAUSAL
@KINDS
@pytest.mark.parametrize("length", [1, 7, 64, 65, 150])
def test_sums_are_the_matrix_of_weights(causal: bool, kind: FeatureMap, length: int) -> None:
    query, key, value = inputs(length)
    fast, slow = (
        form(query, key, value, causal=causal, kind=kind) for form in (linear_attention, linear_attention_loop)
    )
    close(fast, slow)


@CAUSAL
@KINDS
def test_sums_have_the_gradients_of_the_matrix_of_weights(causal: bool, kind: FeatureMap) -> None:
    mask = torch.arange(70) < torch.tensor([70, 41])[:, None]
    leaves = query, key, value = inputs(70)
    key[0, 0, 3, 1] = 31.0  # where exp takes no larger number
    for leaf in leaves:
        leaf.requires_grad_()
    keys: dict[str, Any] = {"causal": causal, "kind": kind}
    fast, slow = (form(query, key, value, mask, **keys) for form in (linear_attention, linear_attention_loop))
    check_same(fast, slow, leaves)


def test_causal_is_step_by_step_and_the_cumulative_sum() -> None:
    query, key, value = inputs(80)
    causal = linear_attention(query, key, value, causal=True)
    state, outputs = None, []
    for t in range(80):
        output, state = linear_attention_step(query[..., t, :], key[..., t, :], value[..., t, :], state)
        outputs.append(output)
    close(torch.stack(outputs, dim=-2), causal)
    q, k = feature_map(query), feature_map(key)
    sums = (k[..., :, None] * value[..., None, :]).cumsum(dim=-3)
    summed = (q[..., None, :] @ sums).squeeze(-2) / ((q * k.cumsum(dim=-2)).sum(-1, keepdim=True) + EPSILON)
    close(summed, causal)


@CAUSAL
def test_a_row_with_no_real_token_is_0_and_its_gradients_are_finite(causal: bool) -> None:
    leaves = [leaf.requires_grad_() for leaf in inputs(6, torch.float32)]
    mask = torch.tensor([[True] * 6, [False] * 6])
    result = linear_attention(leaves[0], leaves[1], leaves[2], mask, causal=causal)
    assert (result[1] == 0).all()
    assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(result.sum(), leaves))


@CAUSAL
def test_features_that_underflow_give_finite_numbers(causal: bool) -> None:
    query, key, value = inputs(10, torch.float32)
    leaves = [(query - 500).requires_grad_(), (key - 500).requires_grad_(), value.requires_grad_()]
    result = linear_attention(*leaves, causal=causal)
    assert torch.isfinite(result).all()
    assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(result.sum(), leaves))
