"""Recurrence encoding matrices are what their entries say, and the fast product is the product with them."""

from typing import Any

import pytest
import torch
from allocations import Allocations
from equations import check_same
from torch import Tensor

from recurcli.ops.recurrence import (
    BLOCK,
    Kind,
    recurrence_matrix,
    recurrence_matrix_loop,
    recurrence_product,
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


def one_head(form: Any, kind: Kind, what: Any, rate: Tensor, angle: Tensor | None = None, **keys: Any) -> Tensor:
    """Return the matrix or the product of one head, whose values are (…, T, K)."""
    what = what.unsqueeze(-3) if isinstance(what, Tensor) else what
    angle = torch.zeros_like(rate) if angle is None or kind == "regular" else angle
    made: Tensor = form([kind], what, rate=rate[None], angle=angle[None], **keys)
    return made.squeeze(-3)


def recurrence_product_dense(kind: list[Kind], value: Tensor, **keys: Any) -> Tensor:
    """The product with the matrix."""
    return recurrence_matrix(kind, value.shape[-2], **keys) @ value


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


@KIND
@DILATION
@CAUSAL
@pytest.mark.parametrize("length", [1, 2, 9])
def test_the_matrix_holds_the_entries_of_its_definition(kind: Kind, dilation: int, causal: bool, length: int) -> None:
    rate, angle = number(RATES[kind]), number(ANGLE)
    made = one_head(recurrence_matrix, kind, length, rate, angle, dilation=dilation, causal=causal)
    defined = recurrence_matrix_loop(kind, length, rate=RATES[kind], angle=ANGLE, dilation=dilation, causal=causal)
    close(made, defined, 1e-14)


@KIND
@DILATION
@CAUSAL
@pytest.mark.parametrize("length", [1, 5, 64, BLOCK + 1, 2 * BLOCK + 3, 4 * BLOCK + 300])
def test_the_product_is_the_recurrence_and_the_product_with_the_matrix(
    kind: Kind, dilation: int, causal: bool, length: int
) -> None:
    rate, angle, value = number(RATES[kind]), number(ANGLE), values(2, length, 3)
    fast = one_head(recurrence_product, kind, value, rate, angle, dilation=dilation, causal=causal)
    slow = recurrence_product_loop(kind, value, rate=rate, angle=angle, dilation=dilation, causal=causal)
    dense = one_head(recurrence_matrix, kind, length, rate, angle, dilation=dilation, causal=causal) @ value
    close(fast, slow)
    close(fast, dense)


@DILATION
@CAUSAL
def test_the_product_has_the_gradients_of_the_matrix(dilation: int, causal: bool) -> None:
    leaves = [
        values(2, 3, 3 * BLOCK + 9, 2),
        number(0.9) * torch.tensor([-1.0, 1.0, 0.9]),
        torch.tensor([0.0, 0.5, 0.5]),
    ]
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
    rates, angles = torch.tensor([0.9, 0.8, 0.7, -0.6]).double(), torch.tensor([0.0, 0.3, 0.2, 0.0]).double()
    value = values(2, 4, 100, 3)
    matrices = recurrence_matrix(kinds, 100, rate=rates, angle=angles)
    products = recurrence_product(kinds, value, rate=rates, angle=angles)
    assert matrices.shape == (4, 100, 100)
    for head, kind in enumerate(kinds):
        close(matrices[head], one_head(recurrence_matrix, kind, 100, rates[head], angles[head]))
        close(products[:, head], one_head(recurrence_product, kind, value[:, head], rates[head], angles[head]))


def test_heads_of_several_dilations_and_layers_are_each_their_own() -> None:
    kinds: list[Kind] = ["regular", "cosine", "sine"]
    rates, angles = values(2, 3).sigmoid(), values(2, 3) * torch.tensor([0.0, 1.0, 1.0])
    made = recurrence_matrix(kinds, 20, rate=rates, angle=angles, dilation=[1, 3, 2], causal=False)
    for layer in range(2):
        for head, (kind, dilation) in enumerate(zip(kinds, [1, 3, 2], strict=True)):
            own = rates[layer, head], angles[layer, head]
            close(made[layer, head], one_head(recurrence_matrix, kind, 20, *own, dilation=dilation, causal=False))


def test_values_may_have_no_batch() -> None:
    rate, zero = torch.tensor([0.5, 1.0]), torch.zeros(2)
    product = recurrence_product(["regular", "regular"], torch.ones(2, 3, 1), rate=rate, angle=zero)
    assert product.squeeze(-1).tolist() == [[0, 0.5, 0.75], [0, 1, 2]]


@KIND
@DILATION
@pytest.mark.parametrize("length", [7, 300])
def test_gradients_at_rate_0_are_finite_and_those_of_lag_1(kind: Kind, dilation: int, length: int) -> None:
    rate, angle = number(0.0).requires_grad_(), number(ANGLE).requires_grad_()
    value = values(length, 2)
    for product in (recurrence_product, recurrence_product_dense):
        result = one_head(product, kind, value, rate, angle, dilation=dilation)
        slope, turn = torch.autograd.grad(result.sum(), [rate, angle], allow_unused=True)
        wave: Tensor = {"regular": number(1.0), "cosine": number(ANGLE).cos(), "sine": number(ANGLE).sin()}[kind]
        close(slope, (value[:-dilation] * wave).sum())
        assert turn is None or torch.isfinite(turn)


def test_no_matrix_of_lags_is_made() -> None:
    rates = torch.linspace(0.5, 0.9, 4)
    with Allocations() as allocations:
        recurrence_matrix(["cosine"] * 4, 50, rate=rates, angle=rates, dilation=2, causal=False)
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
            total += one_head(recurrence_product, "regular", x @ outer.real.T, eigenvalue.real)
        elif eigenvalue.imag > 0:
            kinds.add("pair")
            rate, angle = eigenvalue.abs(), eigenvalue.angle()
            total += one_head(recurrence_product, "cosine", x @ (2 * outer.real).T, rate, angle)
            total += one_head(recurrence_product, "sine", x @ (-2 * outer.imag).T, rate, angle)
    assert kinds == {"real", "pair"}
    close(total, torch.stack(states))
