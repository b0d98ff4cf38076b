"""The maps to orthogonal matrices equal their definitions, and give what they promise."""

import importlib
from typing import get_args

import pytest
import torch
from equations import check_same
from torch import Tensor

from recurcli.ops.orthogonal import orthogonal, orthogonal_loop, orthonormal
from recurcli.validation import OrthogonalMap

KINDS: tuple[OrthogonalMap, ...] = get_args(OrthogonalMap)


def draw(*shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
    """N(0, scale² / D) entries."""
    generator = torch.Generator().manual_seed(sum(shape))
    return scale * torch.randn(shape, dtype=dtype, generator=generator) / shape[-1] ** 0.5


def error(matrices: Tensor) -> float:
    """The largest entry of |Q^T Q - I|."""
    return (matrices.mT @ matrices - torch.eye(matrices.shape[-1], dtype=matrices.dtype)).abs().max().item()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 6, 6), (2, 45, 45), (100, 100)])
def test_equals_its_definition_and_so_do_its_gradients(kind: OrthogonalMap, shape: tuple[int, ...]) -> None:
    raw = draw(*shape).requires_grad_()
    fast, slow = orthogonal(raw, kind), orthogonal_loop(raw, kind)
    assert fast.shape == raw.shape
    check_same(fast, slow, [raw])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0])
def test_is_orthogonal_in_float32(kind: OrthogonalMap, scale: float) -> None:
    assert error(orthogonal(draw(3, 200, 200, dtype=torch.float32, scale=scale), kind)) <= 1e-5


def test_nothing_is_the_identity_or_its_negative() -> None:
    raw = torch.zeros(2, 5, 5)
    assert torch.equal(orthogonal(raw, "cayley"), torch.eye(5).expand(2, 5, 5))
    assert torch.equal(orthogonal(raw, "householder"), -torch.eye(5).expand(2, 5, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_does_not_depend_on_its_neighbours(kind: OrthogonalMap) -> None:
    raw = draw(4, 40, 40)
    alone = torch.stack([orthogonal(matrix, kind) for matrix in raw])
    torch.testing.assert_close(orthogonal(raw, kind), alone, rtol=0, atol=1e-13)


def test_derivatives_of_the_inverse_by_halves_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("recurcli.ops.orthogonal"), "BLOCK", 1)
    raw = draw(2, 5, 5).requires_grad_()
    assert torch.autograd.gradcheck(orthogonal, raw)
    assert torch.autograd.gradgradcheck(orthogonal, raw)
    torch.testing.assert_close(orthogonal(raw), orthogonal_loop(raw), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_stays_in_float32_under_autocast(kind: OrthogonalMap) -> None:
    raw = draw(2, 40, 40, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = orthogonal(raw, kind)
        columns = orthonormal(raw[0])
    assert torch.equal(made, orthogonal(raw, kind))
    assert torch.equal(columns, orthonormal(raw[0]))
    assert made.dtype == columns.dtype == torch.float32


def test_keeps_the_type_and_needs_no_memory_on_the_meta_device() -> None:
    assert orthogonal(torch.zeros(3, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert orthogonal(torch.empty(2, 50, 50, device="meta")).shape == (2, 50, 50)
    assert orthonormal(torch.empty(50, 9, device="meta")).shape == (50, 9)


def test_works_inside_torchs_function_transforms() -> None:
    raw = draw(3, 40, 40)
    torch.testing.assert_close(torch.func.vmap(orthogonal)(raw), orthogonal(raw), rtol=0, atol=1e-13)
    mean = torch.func.grad(lambda matrix: orthogonal(matrix).mean())(raw[0])
    leaf = raw[0].clone().requires_grad_()
    torch.testing.assert_close(mean, torch.autograd.grad(orthogonal(leaf).mean(), leaf)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(50, 8), (9, 9), (5, 8)])
def test_orthonormal_along_the_shorter_side(shape: tuple[int, int]) -> None:
    made = orthonormal(draw(*shape))
    assert made.shape == shape
    assert error(made if shape[0] >= shape[1] else made.mT) < 1e-11
    assert torch.autograd.gradcheck(orthonormal, draw(*shape).requires_grad_())


def test_every_row_goes_through_one_invertible_matrix() -> None:
    raw = draw(30, 6)
    made = orthonormal(raw)
    matrix = torch.linalg.lstsq(raw, made).solution
    torch.testing.assert_close(raw @ matrix, made, rtol=0, atol=1e-12)
    assert torch.linalg.matrix_rank(matrix) == 6
    close = raw.clone()
    close[1] = close[0] + 1e-6
    assert not torch.equal(*orthonormal(close)[:2])


def test_orthonormal_in_float32_also_where_columns_are_nearly_dependent() -> None:
    raw = draw(200, 20, dtype=torch.float32)
    raw[:, 1] = raw[:, 0] + 0.01 * raw[:, 1]
    assert error(orthonormal(raw)) < 1e-4
    raw[:, 1] = 0
    assert orthonormal(raw).isfinite().all()


def test_bf16_covers_the_backward_pass_of_cayley() -> None:
    raw = torch.randn(3, 40, 40, generator=torch.Generator().manual_seed(1)).requires_grad_()
    gradient = torch.randn(3, 40, 40, generator=torch.Generator().manual_seed(2))
    exact, rounded = (
        torch.autograd.grad(orthogonal(raw, gradient_dtype=dtype), raw, gradient)[0] for dtype in (None, torch.bfloat16)
    )
    assert 1e-4 < (rounded - exact).norm() / exact.norm() < 0.01
