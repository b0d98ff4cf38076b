"""Dropout: the share of elements kept, their scale, gradients, and the same mask for the same seed."""

import pytest
import torch

from recurcli.layers import STEPS, Dropout, dropout

TYPES = (torch.float32, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.93, 1 / STEPS * 300])
def test_elements_are_zero_or_scaled(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 33, 101).to(dtype) + 3
    found = dropout(x, p, True)
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    kept = found != 0
    share = kept.double().mean().item()
    assert share == pytest.approx(1 - p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5)
    scale = torch.tensor(1 / (1 - p), dtype=torch.float64)
    assert torch.allclose(
        found[kept].double(), x[kept].double() * scale, rtol=1e-2 if dtype == torch.bfloat16 else 2e-4
    )
    columns = kept.double().mean(dim=(0, 1))  # four elements share a number: none of its quarters may be different
    assert (columns - (1 - p)).abs().max() < 6 * (p * (1 - p) / (64 * 33)) ** 0.5
    neighbours = torch.corrcoef(torch.stack([kept[..., :-1].double().flatten(), kept[..., 1:].double().flatten()]))
    assert abs(neighbours[0, 1].item()) < 0.01


@pytest.mark.parametrize("dtype", TYPES)
def test_the_gradient_has_the_same_mask(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.ones(7, 13, dtype=dtype, requires_grad=True)
    found = dropout(x, 0.3, True)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and torch.equal(x.grad, found.detach())


def test_a_seed_gives_a_mask() -> None:
    x = torch.ones(1000)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(dropout(x, 0.5, True))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_nothing_is_dropped_in_evaluation_or_with_probability_zero() -> None:
    x = torch.randn(3, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert dropout(x, 1e-9, True) is x
    assert not dropout(x, 1.0, True).any()
    assert dropout(torch.ones(0, 4), 0.5, True).shape == (0, 4)


def test_a_view_is_dropped_element_by_element() -> None:
    torch.manual_seed(3)
    x = torch.arange(1.0, 25.0).view(4, 6).t()
    found = dropout(x, 0.5, True)
    assert torch.all((found == 0) | (found == 2 * x))
