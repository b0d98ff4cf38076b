"""Recurrence over the last k positions only: the truncated model (Miller & Hardt, Stable Recurrent Models, 2019, section 3).

    state_t = cell(x_t, cell(x_{t-1}, … cell(x_{t-k+1}, 0)))

Shapes: B batch, T positions, D input size, S state size, k window. `mask` (B, T) is bool, True at real tokens.

A cell is a function of inputs (N, D) and a state, a tuple of (N, S) of which the first is the output; the state None is
all zeros. `torch.nn.LSTMCell` is one.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State | None], State]


def windowed_recurrence(cell: Cell, x: Tensor, window: int, mask: Tensor | None = None) -> Tensor:
    """The truncated model at all positions at once: k steps over B T rows, (B, T, D) -> (B, T, S).

    The state is exactly 0 before the first position and at masked ones, whatever biases the cell has, so the output is
    0 at masked positions too.
    """
    length = x.shape[1]
    steps = window if torch.compiler.is_compiling() else min(window, length)  # a graph for every length has no minimum
    padding = x.new_zeros(x.shape[:2], dtype=torch.bool) if mask is None else ~mask
    x, padding = F.pad(x, (0, 0, steps - 1, 0)), F.pad(padding, (steps - 1, 0), value=True)
    state: State | None = None
    for step in range(steps):
        here = slice(step, step + length)
        state = _kept(cell(x[:, here].flatten(0, 1), state), padding[:, here].flatten())
    assert state is not None
    return state[0].view(x.shape[0], length, -1)


def full_recurrence(
    cell: Cell, x: Tensor, mask: Tensor | None = None, state: State | None = None
) -> tuple[Tensor, State]:
    """The model itself, a position at a time: (B, T, D) -> (B, T, S), and the last state. It is 0 at masked positions.

    `state` is that before the first position; None: 0.
    """
    outputs = []
    for t in range(x.shape[1]):
        state = cell(x[:, t], state)
        if mask is not None:
            state = _kept(state, ~mask[:, t])
        outputs.append(state[0])
    assert state is not None
    return torch.stack(outputs, dim=1), state


def windowed_recurrence_loop(cell: Cell, x: Tensor, window: int, mask: Tensor | None = None) -> Tensor:
    """The definition of `windowed_recurrence`: one row, one position, one step of its window at a time."""
    rows = []
    for b in range(x.shape[0]):
        outputs = []
        for t in range(x.shape[1]):
            state: State | None = None
            for s in range(max(0, t - window + 1), t + 1):
                state = cell(x[b, s][None], state)
                if mask is not None and not mask[b, s]:
                    state = tuple(torch.zeros_like(part) for part in state)
            assert state is not None
            outputs.append(state[0])
        rows.append(torch.cat(outputs))
    return torch.stack(rows)


def reversed_sequences(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """x (B, T, …) with each row's real tokens in reverse order and its padding, on the right, left in place."""
    if mask is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    last = mask.sum(dim=1, keepdim=True) - 1  # (B, 1)
    turned = torch.where(places <= last, last - places, places)  # (B, T)
    return x.gather(1, turned.view(*turned.shape, *[1] * (x.ndim - 2)).expand_as(x))


def _kept(state: State, padding: Tensor) -> State:
    """The state with exact zeros where `padding` (N,) is True."""
    return tuple(part.masked_fill(padding[:, None], 0.0) for part in state)
