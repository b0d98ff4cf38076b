"""The truncated model at all positions at once is the truncated model at each."""

from typing import cast

import pytest
import torch
from equations import check_same
from torch import Tensor, nn

from recurcli.ops.windowed import (
    Cell,
    State,
    full_recurrence,
    reversed_sequences,
    windowed_recurrence,
    windowed_recurrence_loop,
)

WINDOW = pytest.mark.parametrize("window", [1, 2, 4, 9, 30])
LENGTH = 9


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rnn(x: Tensor, state: State | None) -> State:
    """tanh(W h + x + b), with a bias that moves a zero state."""
    before = 0.0 if state is None else state[0] @ numbers(3, 3, seed=2).T
    return (torch.tanh(before + x + numbers(3, seed=3)),)


def lstm() -> Cell:
    torch.manual_seed(4)
    return cast(Cell, nn.LSTMCell(3, 3).double())


CELL = pytest.mark.parametrize("cell", [rnn, lstm()], ids=["rnn", "lstm"])


def masked_batch() -> tuple[Tensor, Tensor]:
    mask = torch.arange(LENGTH) < torch.tensor([LENGTH, 4, 1, 0])[:, None]
    return torch.where(mask[..., None], numbers(4, LENGTH, 3), 1e4), mask


@CELL
@WINDOW
def test_all_positions_at_once_are_each_position_alone(cell: Cell, window: int) -> None:
    x, mask = masked_batch()
    torch.testing.assert_close(
        windowed_recurrence(cell, x, window, mask), windowed_recurrence_loop(cell, x, window, mask)
    )
    torch.testing.assert_close(windowed_recurrence(cell, x, window), windowed_recurrence_loop(cell, x, window))


@CELL
def test_a_hole_in_the_mask_is_a_zero_state(cell: Cell) -> None:
    x, mask = numbers(1, 6, 3), torch.tensor([[True, True, False, True, True, True]])
    fast = windowed_recurrence(cell, x, 4, mask)
    torch.testing.assert_close(fast, windowed_recurrence_loop(cell, x, 4, mask))
    torch.testing.assert_close(fast[:, 3:], windowed_recurrence(cell, x[:, 3:], 4))


@CELL
def test_a_window_over_the_whole_text_is_the_model_itself(cell: Cell) -> None:
    x, mask = masked_batch()
    for window in (LENGTH, 50):
        torch.testing.assert_close(windowed_recurrence(cell, x, window, mask), full_recurrence(cell, x, mask)[0])


def test_gradients_are_those_of_the_loop() -> None:
    x, mask = masked_batch()
    x.requires_grad_()
    check_same(windowed_recurrence(rnn, x, 4, mask), windowed_recurrence_loop(rnn, x, 4, mask), [x])


def test_reversal_leaves_the_padding_in_place_and_undoes_itself() -> None:
    x, mask = masked_batch()
    turned = reversed_sequences(x, mask)
    assert torch.equal(turned[1, :4], x[1, :4].flip(0))
    assert torch.equal(turned[~mask], x[~mask])
    assert torch.equal(reversed_sequences(turned, mask), x)
    assert torch.equal(reversed_sequences(x), x.flip(1))
