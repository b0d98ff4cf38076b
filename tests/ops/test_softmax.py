"""Directional attention in O(T) memory is directional attention."""

import pytest
import torch
import torch.nn.functional as F
from allocations import Allocations
from cases import slow_but
from equations import check_same
from torch import Tensor

from recurcli.layers import softmax_attention
from recurcli.ops import attention
from recurcli.ops.attention import blockwise_attention, directional_attention, directional_attention_loop


def inputs(length: int, masked: bool) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(length)
    drawn = torch.randn(4, 3, length, 8, dtype=torch.float64, generator=generator)
    query, key, past, future = (tensor.requires_grad_() for tensor in drawn.unbind())
    lengths = torch.tensor([length, max(1, length // 2), 1] if masked else [length] * 3)
    return (query, key, past, future), torch.arange(length) < lengths[:, None]


FEW = [(1, 256), (7, 256), (17, 8), (5, 1)]


@pytest.mark.parametrize(
    ("length", "block"), slow_but(FEW, [*FEW, (2, 256), (33, 256), (33, 8), (32, 16)], unpack=True)
)
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loop_and_its_gradients(
    length: int, block: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MAX_QUERIES", block)
    tensors, mask = inputs(length, masked)
    query, key, past, future = tensors
    forms = (blockwise_attention, directional_attention_loop)
    outputs = [form(query, key, past, future, mask) for form in forms]
    check_same(outputs[0][mask], outputs[1][mask], tensors)


def test_plain_attention_is_torchs_with_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MAX_QUERIES", 8)
    (query, key, value, _), mask = inputs(33, masked=True)
    found = blockwise_attention(query, key, value, value, mask)
    expected = F.scaled_dot_product_attention(query, key, value, mask[:, None])
    check_same(found[mask], expected[mask], (query, key, value))


def test_no_mask_means_that_all_are_real() -> None:
    tensors, mask = inputs(9, masked=False)
    assert torch.equal(blockwise_attention(*tensors), blockwise_attention(*tensors, mask))


def relative(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.015)])
def test_is_as_exact_as_its_type(dtype: torch.dtype, bound: float) -> None:
    tensors, mask = inputs(300, masked=True)  # two blocks
    narrow = [(2 * tensor.detach()).to(dtype).requires_grad_() for tensor in tensors]  # scores up to 15
    wide = [tensor.detach().double().requires_grad_() for tensor in narrow]
    gradient = torch.randn(narrow[0].shape, generator=torch.Generator().manual_seed(9)).double() * mask[..., None]
    (q, k, u, v), (query, key, past, future) = wide, narrow
    exact, fast = directional_attention(q, k, u, v, mask), blockwise_attention(query, key, past, future, mask)
    assert fast.dtype == dtype
    assert relative(fast[mask], exact[mask]) < bound
    expected = torch.autograd.grad(exact, wide, gradient)
    for found, wanted in zip(torch.autograd.grad(fast, narrow, gradient.to(dtype)), expected, strict=True):
        assert relative(found, wanted) < 2 * bound


@pytest.mark.parametrize(("length", "causal"), [(513, False), (20, False), (20, True)], ids=["long", "short", "causal"])
def test_training_in_bf16_is_attention_head_by_head(length: int, causal: bool) -> None:
    drawn = torch.randn(4, 2, 3, length, 8, generator=torch.Generator().manual_seed(5)).bfloat16()
    query, key, value = (part.clone().requires_grad_() for part in drawn[:3])
    mask = torch.arange(length) < torch.tensor([length, length // 3])[:, None]
    gradient = drawn[3] * mask[:, None, :, None]
    exact = [part.detach().double().requires_grad_() for part in (query, key, value)]
    seen = mask[:, None, None] & (torch.ones(length, length).tril() if causal else torch.ones(length, length)).bool()
    q, k, v = exact
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    found = softmax_attention(query, key, value, mask, causal=causal)
    real = mask[:, None].expand(2, 3, length)
    assert relative(found[real], expected[real]) < 0.015
    gradients = torch.autograd.grad(found, (query, key, value), gradient)
    for one, other in zip(gradients, torch.autograd.grad(expected, exact, gradient.double()), strict=True):
        assert relative(one, other) < 0.015


def test_a_row_without_a_real_token_is_finite() -> None:
    tensors, mask = inputs(5, masked=False)
    mask[1] = False
    output = blockwise_attention(*tensors, mask)
    assert torch.isfinite(output).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(output[mask].sum(), tensors))


def test_memory_doubles_with_the_length() -> None:
    def peak(length: int) -> int:
        tensors, _ = inputs(length, masked=False)
        with Allocations() as allocations:
            blockwise_attention(*tensors).sum().backward()  # type: ignore[no-untyped-call]
        return allocations.peak_bytes

    assert peak(2048) < 2.2 * peak(1024), "no tensor is (T, T)"
