"""Recurrence encoding matrices are what their entries say, and the fast product is the product with them."""

import itertools
from typing import Any

import pytest
import torch
from allocations import Allocations
from equations import check_same
from torch import Tensor

from recurcli.ops.recurrence import (
    Kind,
    recurrence_matrix,
    recurrence_matrix_loop,
    recurrence_product,
    recurrence_product_dense,
    recurrence_product_loop,
)

RATES: dict[Kind, float] = {"regular": -0.93, "cosine": 0.96, "sine": 0.9}
ANGLE = 0.7
KIND = pytest.mark.parametrize("kind", list(RATES))
CAUSAL = pytest.mark.parametrize("causal", [True, False])
DILATION = pytest.mark.parametrize("dilation", [1, 2, 3])


def number(value: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(value, dtype=dtype)


def values(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).to(dtype)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


@KIND
@DILATION
@CAUSAL
@pytest.mark.parametrize("length", [1, 2, 9])
def test_the_matrix_holds_the_entries_of_its_definition(kind: Kind, dilation: int, causal: bool, length: int) -> None:
    made = recurrence_matrix(
        kind, length, rate=number(RATES[kind]), angle=number(ANGLE), dilation=dilation, causal=causal
    )
    defined = recurrence_matrix_loop(kind, length, rate=RATES[kind], angle=ANGLE, dilation=dilation, causal=causal)
    close(made, defined, 1e-14)


@KIND
@DILATION
@CAUSAL
@pytest.mark.parametrize("length", [1, 5, 64, 65, 131, 300])
def test_the_product_is_the_recurrence_and_the_product_with_the_matrix(
    kind: Kind, dilation: int, causal: bool, length: int
) -> None:
    rate, angle, value = number(RATES[kind]), number(ANGLE), values(2, length, 3)
    fast = recurrence_product(kind, value, rate=rate, angle=angle, dilation=dilation, causal=causal)
    slow = recurrence_product_loop(kind, value, rate=rate, angle=angle, dilation=dilation, causal=causal)
    dense = recurrence_matrix(kind, length, rate=rate, angle=angle, dilation=dilation, causal=causal) @ value
    close(fast, slow)
    close(fast, dense)


@DILATION
@CAUSAL
def test_the_product_has_the_gradients_of_the_matrix(dilation: int, causal: bool) -> None:
    leaves = [values(2, 3, 150, 2), number(0.9) * torch.tensor([-1.0, 1.0, 0.9]), torch.tensor([0.0, 0.5, 0.5])]
    value, rate, angle = (leaf.double().requires_grad_() for leaf in leaves)
    keys: dict[str, Any] = {"rate": rate, "angle": angle, "dilation": dilation, "causal": causal}
    kinds: list[Kind] = ["regular", "cosine", "sine"]
    fast, dense = (form(kinds, value, **keys) for form in (recurrence_product, recurrence_product_dense))
    check_same(fast, dense, [value, rate, angle], 1e-11)


@CAUSAL
@pytest.mark.parametrize("length", [128, 1000])
def test_both_forms_agree_in_single_precision(causal: bool, length: int) -> None:
    rate, angle = torch.tensor([0.88, 0.73, 0.95]), torch.tensor([0.8, 0.8, 0.3])
    value = values(2, 3, length, 4, dtype=torch.float32)
    forms = [
        product(["cosine", "sine", "cosine"], value, rate=rate, angle=angle, dilation=2, causal=causal)
        for product in (recurrence_product, recurrence_product_dense)
    ]
    assert (forms[0] - forms[1]).abs().max() <= 1e-5 * forms[1].abs().max()


def test_heads_of_several_kinds_are_each_their_own() -> None:
    kinds: list[Kind] = ["regular", "cosine", "sine", "regular"]
    rates, angles = torch.tensor([0.9, 0.8, 0.7, -0.6]).double(), torch.tensor([0.4, 0.3, 0.2, 0.1]).double()
    value = values(2, 4, 100, 3)
    matrices = recurrence_matrix(kinds, 100, rate=rates, angle=angles)
    products = recurrence_product(kinds, value, rate=rates, angle=angles)
    assert matrices.shape == (4, 100, 100)
    for head, kind in enumerate(kinds):
        close(matrices[head], recurrence_matrix(kind, 100, rate=rates[head], angle=angles[head]))
        close(products[:, head], recurrence_product(kind, value[:, head], rate=rates[head], angle=angles[head]))


def test_rates_may_be_plain_numbers_and_values_may_have_no_batch() -> None:
    assert recurrence_matrix("regular", 3, rate=0.5).tolist() == [[0, 0, 0], [0.5, 0, 0], [0.25, 0.5, 0]]
    assert recurrence_product("regular", torch.ones(3, 1), rate=0.5).flatten().tolist() == [0, 0.5, 0.75]
    close(recurrence_product("cosine", values(9, 1), rate=0.9, angle=0.3)[1], 0.9 * number(0.3).cos() * values(9, 1)[0])
    assert recurrence_product("regular", torch.ones(2, 3, 1), rate=torch.tensor([0.5, 1.0]))[:, 2, 0].tolist() == [
        0.75,
        2,
    ]


@KIND
@DILATION
@pytest.mark.parametrize("length", [7, 300])
def test_gradients_at_rate_0_are_finite_and_those_of_lag_1(kind: Kind, dilation: int, length: int) -> None:
    rate, angle = number(0.0).requires_grad_(), number(ANGLE).requires_grad_()
    value = values(length, 2)
    for product in (recurrence_product, recurrence_product_dense):
        result = product(kind, value, rate=rate, angle=angle, dilation=dilation)
        slope, turn = torch.autograd.grad(result.sum(), [rate, angle], allow_unused=True)
        wave: Tensor = {"regular": number(1.0), "cosine": number(ANGLE).cos(), "sine": number(ANGLE).sin()}[kind]
        close(slope, (value[:-dilation] * wave).sum())
        assert turn is None or torch.isfinite(turn)


def test_no_matrix_of_lags_is_made() -> None:
    rates = torch.linspace(0.5, 0.9, 4)
    with Allocations() as allocations:
        recurrence_matrix("cosine", 50, rate=rates, angle=rates, dilation=2, causal=False)
    whole = [shape for shape, dtype in allocations.made if not dtype.is_floating_point]
    assert max(shape.numel() for shape in whole) == 50


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_rnn_is_a_sum_of_recurrence_heads(seed: int) -> None:
    """Proposition 1: h_t = W_h h_{t-1} + W_x x_t is W_x x_t plus a head for each eigenvalue, two for each pair."""
    generator = torch.Generator().manual_seed(seed)
    size, length = 7, 90  # an odd size has a real eigenvalue
    w_h = torch.randn(size, size, dtype=torch.float64, generator=generator)
    w_h = 0.95 * w_h / torch.linalg.eigvals(w_h).abs().max()
    x = torch.randn(length, size, dtype=torch.float64, generator=generator)  # W_x x_t
    state, states = torch.zeros(size, dtype=torch.float64), []
    for t in range(length):
        state = w_h @ state + x[t]
        states.append(state)
    eigenvalues, z = torch.linalg.eig(w_h)
    inverse = torch.linalg.inv(z)
    total, kinds = x.clone(), set()
    for k, eigenvalue in enumerate(eigenvalues):
        outer = torch.outer(z[:, k], inverse[k])
        if eigenvalue.imag == 0:
            kinds.add("real")
            total += recurrence_product("regular", x @ outer.real.T, rate=eigenvalue.real)
        elif eigenvalue.imag > 0:
            kinds.add("pair")
            rate, angle = eigenvalue.abs(), eigenvalue.angle()
            total += recurrence_product("cosine", x @ (2 * outer.real).T, rate=rate, angle=angle)
            total += recurrence_product("sine", x @ (-2 * outer.imag).T, rate=rate, angle=angle)
    assert kinds == {"real", "pair"}
    close(total, torch.stack(states))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be regular, cosine or sine, not 'tangent'"):
        recurrence_matrix("tangent", 3, rate=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dilation must be at least 1, not 0"):
        recurrence_matrix("regular", 3, rate=0.5, dilation=0)
    for kind in itertools.islice(RATES, 1, None):
        with pytest.raises(ValueError, match="need an angle"):
            recurrence_product(kind, torch.ones(3, 1), rate=0.5)
