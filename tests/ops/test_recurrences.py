"""Linear recurrences with gates: the parallel forms against their loops, with gradients, short and long."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from equations import check_same
from torch import Tensor

from recurcli.ops.recurrences import (
    diagonal_ssm,
    diagonal_ssm_loop,
    gated_linear_attention,
    gated_linear_attention_loop,
    linear_scan,
    linear_scan_loop,
)


def normal(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("strength", [1.0, 100.0])
@pytest.mark.parametrize("length", [1, 2, 9, 37, 4096])
def test_the_scan_in_two_levels_is_the_loop(length: int, strength: float) -> None:
    gate, values = normal(2, length, 3, seed=1, scale=strength), normal(2, length, 3, seed=2)
    found, expected = (form(torch.sigmoid(gate), values) for form in (linear_scan, linear_scan_loop))
    check_same(found, expected, [gate, values], 1e-12)


@pytest.mark.parametrize("strength", [1.0, 100.0])
def test_a_long_scan_keeps_its_digits_in_float32(strength: float) -> None:
    gate, values = normal(1, 4099, 8, seed=3, scale=strength), normal(1, 4099, 8, seed=4).exp()
    leaves = [part.detach().float().requires_grad_() for part in (gate, values)]
    found = linear_scan(leaves[0].sigmoid(), leaves[1])
    expected = linear_scan_loop(gate.sigmoid(), values)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=0)
    for one, other in zip(
        torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(expected.sum(), [gate, values]), strict=True
    ):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 33, 36])
def test_the_convolution_of_a_state_space_model_is_its_recurrence(length: int) -> None:
    u, step = normal(2, length, 5, seed=1), normal(5, seed=2)
    parts = [normal(5, 3, seed=seed) for seed in (3, 4, 5, 6)]

    def by(form: Callable[..., Tensor]) -> Tensor:
        rates, weights = torch.complex(-parts[0].exp(), 3 * parts[1]), torch.complex(parts[2], parts[3])
        return form(u, (step - 2).exp(), rates, weights)

    found, expected = by(diagonal_ssm), by(diagonal_ssm_loop)
    check_same(found, expected, [u, step, *parts], 1e-11)


@pytest.mark.parametrize("length", [1, 16, 31, 32, 33, 100, 129])
@pytest.mark.parametrize("strength", [0.1, 3.0, 300.0])
def test_gated_linear_attention_in_chunks_is_the_loop(length: int, strength: float) -> None:
    query, key = (normal(2, 3, length, 4, seed=seed) for seed in (1, 2))
    value, gate = normal(2, 3, length, 5, seed=3), normal(2, 3, length, 4, seed=4, scale=strength)
    forms = (gated_linear_attention, gated_linear_attention_loop)
    found, expected = (form(query, key, value, F.logsigmoid(gate)) for form in forms)
    check_same(found, expected, [query, key, value, gate], 1e-9)


def test_gates_that_forget_all_at_once_keep_the_digits_in_float32() -> None:
    leaves = [normal(1, 1, 100, 8, seed=seed) for seed in (1, 2, 3)]
    leaves.append(torch.full((1, 1, 100, 8), -1e4, dtype=torch.float64, requires_grad=True))
    narrow = [part.detach().float().requires_grad_() for part in leaves]
    found, expected = gated_linear_attention(*narrow), gated_linear_attention_loop(*leaves)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    gradients = (torch.autograd.grad(form.sum(), parts) for form, parts in ((found, narrow), (expected, leaves)))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-4, rtol=1e-4)
