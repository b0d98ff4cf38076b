"""Pooling takes the real states of each row, whatever the padding holds."""

import pytest
import torch

from recurcli.config import Pooling
from recurcli.network import ClassificationHead, pool

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


SEPARATORS = torch.zeros(4, 5, dtype=torch.bool)
SEPARATORS[0, 1] = SEPARATORS[1, 2] = True
"""Row 0 is a text of one token and one of three; the second text of row 1 is empty; the others are no pairs."""


def test_the_head_is_one_linear_map_of_the_pooled_states() -> None:
    head = ClassificationHead(3, 2, "max")
    torch.testing.assert_close(head(STATES, MASK, SEPARATORS), head.output(pool(STATES, MASK, "max")))


@pytest.mark.parametrize("how", ["mean", "max", "first", "last"])
def test_the_sides_of_a_pair_are_pooled_apart(how: Pooling) -> None:
    head = ClassificationHead(3, 2, how, "sides")

    def pooled(row: int, start: int, end: int) -> torch.Tensor:
        if start >= end:
            return torch.zeros(3)
        return pool(STATES[row : row + 1, start:end], torch.ones(1, end - start, dtype=torch.bool), how)[0]

    sides = [((0, 1), (2, 5)), ((0, 2), (3, 3)), ((0, 1), (1, 1)), ((0, 0), (0, 0))]
    logits = head(STATES.masked_fill(~MASK[..., None], 1e4), MASK, SEPARATORS)
    for row, (first, second) in enumerate(sides):
        u, v = pooled(row, *first), pooled(row, *second)
        torch.testing.assert_close(logits[row], head.output(torch.cat([u, v, (u - v).abs(), u * v])))
