"""Pooling takes the real states of each row, whatever the padding holds."""

import pytest
import torch

from recurcli.model.config import Pooling
from recurcli.model.head import ClassificationHead, pool

STATES = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0)) - 5
LENGTHS = (5, 3, 1, 0)
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("how", ["mean", "max", "first", "last"])
def test_pools_the_real_states_and_gives_zeros_where_there_are_none(how: Pooling) -> None:
    states = STATES.masked_fill(~MASK[..., None], 1e4)
    pooled = pool(states, MASK, how)
    for row, length in enumerate(LENGTHS[:3]):
        real = STATES[row, :length]
        expected = {"mean": real.mean(dim=0), "max": real.amax(dim=0), "first": real[0], "last": real[-1]}[how]
        torch.testing.assert_close(pooled[row], expected)
    assert torch.equal(pooled[3], torch.zeros(3))


@pytest.mark.parametrize("how", ["mean", "max", "first", "last"])
def test_gradients_do_not_reach_the_padding(how: Pooling) -> None:
    states = STATES.clone().requires_grad_()
    pool(states, MASK, how).sum().backward()  # type: ignore[no-untyped-call]
    assert states.grad is not None
    assert (states.grad[~MASK] == 0).all()
    assert (states.grad[:3].abs().sum(dim=(1, 2)) > 0).all()


def test_the_head_is_one_linear_map_of_the_pooled_states() -> None:
    head = ClassificationHead(3, 2, "max")
    torch.testing.assert_close(head(STATES, MASK), head.output(pool(STATES, MASK, "max")))
