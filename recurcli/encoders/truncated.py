"""Stable and truncated recurrent models (Miller & Hardt, Stable Recurrent Models, 2019).

    RNN    h_t = tanh(W h_{t-1} + U x_t + b)
    LSTM   f_t = f̄ σ(…),  i_t, o_t = σ(…),  z_t = tanh(…),  c_t = f_t c_{t-1} + i_t z_t,  h_t = o_t tanh(c_t)

The truncated model computes h_t from x_{t-k+1} … x_t only, starting with the zero state. Ours: all layers share one window,
so the output depends on k positions per direction for any L; f̄ < 1 in the stable LSTM, because with torch's default
initialisation the forget gate is so close to 1 that the paper's inequalities would shrink the matrices to 0. `carry` goes on
with the state of every layer, or with the last k - 1 inputs, so that every position has its whole window and none more.

Shapes: B batch, T positions, D hidden size, S state size of a direction, L layers, k window.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from recurcli.encoders.config import TruncatedConfig, TruncatedLSTMConfig, TruncatedRNNConfig
from recurcli.encoders.encoder import CarriedState, Encoder, LayerStats, StepState
from recurcli.layers import Dropout
from recurcli.ops.precision import at_least_float32, without_autocast
from recurcli.ops.stable import clip_singular_values, lstm_contraction, project_lstm, truncation_factor
from recurcli.ops.windowed import Cell, State, full_recurrence, reversed_sequences, windowed_recurrence


class RNNCell(nn.Module):
    """One RNN layer in one direction: `input` is U and b, `recurrent` is W (S, S)."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, size)
        self.recurrent = nn.Parameter(nn.init.orthogonal_(torch.empty(size, size)))

    def forward(self, projected: Tensor, state: State | None) -> State:
        """Return (h,) from `projected`, U x + b (N, S), and the previous state; None: the zero state."""
        return (torch.tanh(_plus(projected, state, self.recurrent)),)


class LSTMCell(nn.Module):
    """One LSTM layer in one direction. The rows of `recurrent` (4 S, S): input gate, forget gate, candidate, output gate."""

    def __init__(self, input_size: int, size: int, forget_bound: float) -> None:
        super().__init__()
        self.forget_bound = forget_bound
        self.input = nn.Linear(input_size, 4 * size)
        self.recurrent = nn.Parameter(torch.empty(4 * size, size).uniform_(-(size**-0.5), size**-0.5))

    def forward(self, projected: Tensor, state: State | None) -> State:
        """Return (h, c) from `projected`, U x + b (N, 4 S), and the previous state; None: the zero state."""
        enter, forget, candidate, leave = _plus(projected, state, self.recurrent).chunk(4, dim=-1)
        memory = torch.sigmoid(enter) * torch.tanh(candidate)
        if state is not None:
            memory = memory + self.forget_bound * torch.sigmoid(forget) * state[1]
        return torch.sigmoid(leave) * torch.tanh(memory), memory


def _plus(projected: Tensor, state: State | None, recurrent: Tensor) -> Tensor:
    """Return `projected` + W h; `projected` alone if the state is None (zero)."""
    return projected if state is None else torch.addmm(projected, state[0], recurrent.T)


def stacked(cells: Sequence[nn.Module]) -> Cell:
    """Combine the layers of one direction into one cell. Its input is U x + b of the first layer; its state lists the last
    layer's state first."""

    def cell(projected: Tensor, state: State | None) -> State:
        width = 0 if state is None else len(state) // len(cells)
        states: State = ()
        for depth, layer in enumerate(cells):
            start = (len(cells) - 1 - depth) * width
            own: State = layer(projected, None if state is None else state[start : start + width])
            states = own + states
            if depth + 1 < len(cells):
                projected = cells[depth + 1].input(own[0])  # type: ignore[operator]
        return states

    return cell


def whole(
    cells: Sequence[RNNCell | LSTMCell], x: Tensor, mask: Tensor | None, start: State | None = None
) -> tuple[Tensor, State]:
    """Return the last layer's states of one direction without truncation, 0 at padding: (B, T, D) -> (B, T, S).

    Also returns h, and c of the LSTM, of all layers after the last position without a mask (L, B, S); `start` are those before
    the first one, None: 0. torch's RNN and LSTM take a third of the time of a loop over the positions. They cannot bound the
    forget gate. They run in float32 under autocast too: not every CPU has their primitives in bfloat16, and cuDNN's would run
    in float16, without a scale of the loss. cuDNN has a backward pass only if it is told that it trains.
    """
    first = cells[0]
    if torch.compiler.is_compiling() or (isinstance(first, LSTMCell) and first.forget_bound != 1.0):
        # the state of stacked cells is that of the last layer first
        depths = reversed(range(len(cells)))
        state = None if start is None else tuple(part[depth] for depth in depths for part in start)
        states, end = full_recurrence(stacked(cells), first.input(x), mask, state)
        width = len(end) // len(cells)
        return states, tuple(torch.stack(end[number::width][::-1]) for number in range(width))
    weights: list[Tensor] = []
    for cell in cells:
        weights += [cell.input.weight, cell.recurrent, cell.input.bias, torch.zeros_like(cell.input.bias)]
    zero = x.new_zeros(len(cells), len(x), first.recurrent.shape[1])
    is_lstm = isinstance(first, LSTMCell)
    start = start or ((zero, zero) if is_lstm else (zero,))
    training = x.is_cuda and torch.is_grad_enabled()
    sizes = True, len(cells), 0.0, training, False, True  # biases, layers, dropout, training, directions, batch first
    x, start = at_least_float32(x), tuple(map(at_least_float32, start))
    with without_autocast(x), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # cuDNN copies the weights of the cells to one place
        found = torch.lstm(x, start, weights, *sizes) if is_lstm else torch.rnn_tanh(x, start[0], weights, *sizes)
    return found[0] if mask is None else found[0].masked_fill(~mask[..., None], 0.0), found[1:]


def run(layers: nn.ModuleList, x: Tensor, mask: Tensor | None, window: int | None) -> Tensor:
    """Return the last layer's states of all directions, concatenated: (B, T, D) -> (B, T, S) or (B, T, 2 S)."""
    outputs = []
    for direction in range(len(layers[0])):  # type: ignore[arg-type]
        cells: list[RNNCell | LSTMCell] = [layer[direction] for layer in layers]  # type: ignore[index]
        seen = reversed_sequences(x, mask) if direction else x
        if window is None:
            states, _ = whole(cells, seen, mask)
        else:
            projected = cells[0].input(seen)  # once for all windows
            states = windowed_recurrence(stacked(cells), projected, window, mask)
        outputs.append(reversed_sequences(states, mask) if direction else states)
    return torch.cat(outputs, dim=-1)


def run_on(
    layers: nn.ModuleList, x: Tensor, state: CarriedState | None, window: int | None
) -> tuple[Tensor, CarriedState]:
    """Return the last layer's states of the first direction, and what is carried on: (B, T, D) -> (B, T, S).

    Without a window h, and c of the LSTM, are carried, (B, L, S) each; with a window k the last k - 1 inputs (B, k - 1, D).
    """
    cells: list[RNNCell | LSTMCell] = [layer[0] for layer in layers]  # type: ignore[index]
    if window is None:
        names = ("h", "c") if isinstance(cells[0], LSTMCell) else ("h",)
        start = None if state is None else tuple(state[name].transpose(0, 1).contiguous() for name in names)
        states, end = whole(cells, x, None, start)
        return states, {name: part.transpose(0, 1) for name, part in zip(names, end, strict=True)}
    before = x[:, :0] if state is None else state["inputs"]
    seen = torch.cat([before, x], dim=1)
    states = windowed_recurrence(stacked(cells), cells[0].input(seen), window)
    return states[:, before.shape[1] :], {"inputs": seen[:, max(0, seen.shape[1] - window + 1) :]}


class Truncated(Encoder):
    """What both models share: layers of one cell in each direction, and weights that are projected if the model is `stable`.

    `cell(input_size, state_size)` builds a cell, `bounded` projects its W, and `contraction` is the λ that this guarantees.
    """

    carry_obstacle = ""

    def __init__(
        self,
        config: TruncatedConfig,
        cell: Callable[[int, int], nn.Module],
        bounded: Callable[[Tensor], Tensor],
        contraction: float,
    ) -> None:
        super().__init__()
        self.config = config
        self.bounded = bounded
        self.contraction = contraction
        if not config.bidirectional:
            self.step_obstacle = ""
        if config.window is None:
            self.export_obstacle = "with window null it runs a loop over the positions, and a graph has one length"
        directions = 2 if config.bidirectional else 1
        size = config.hidden_size // directions
        self.layers = nn.ModuleList(
            nn.ModuleList(cell(size if depth else config.hidden_size, size) for _ in range(directions))
            for depth in range(config.num_layers)
        )
        self.dropout = Dropout(config.dropout)
        self.project_()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.dropout(run(self.layers, self.dropout(x), mask, self.config.window))

    def carry(self, x: Tensor, state: CarriedState | None = None) -> tuple[Tensor, CarriedState]:
        states, after = run_on(self.layers, self.dropout(x), state, self.config.window)
        return self.dropout(states), {name: part.detach() for name, part in after.items()}

    def step(self, x: Tensor, state: StepState | None = None) -> tuple[Tensor, StepState]:
        states, after = run_on(self.layers, self.dropout(x[:, None]), state, self.config.window)
        return self.dropout(states).squeeze(1), after

    def cells(self) -> list[RNNCell | LSTMCell]:
        """Return the cells of all layers and directions."""
        return [cell for cell in self.modules() if isinstance(cell, RNNCell | LSTMCell)]

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return the largest 2-norm of the trained W, and if `stable` what Lemma 1 guarantees of one layer without the others.

        That is λ, and the truncation factor of the window. The W of an LSTM's gates are matrices of their own. With a window,
        the truncation error is the largest ‖h - h^k‖ of the tokens of x (B, T, D), h without the window. For an RNN of one
        layer Lemma 1 bounds it by the factor times ‖U‖ max ‖x‖ + ‖b‖.
        """
        matrices = [cell.recurrent.view(-1, *2 * [cell.recurrent.shape[1]]) for cell in self.cells()]
        norms = torch.linalg.matrix_norm(torch.cat(matrices).double(), ord=2)
        found: LayerStats = {"recurrent_norm": norms.amax().item()}
        if self.config.stable:
            found["contraction"] = self.contraction
            if self.config.window:
                found["truncation_factor"] = truncation_factor(self.contraction, self.config.window)
        if self.config.window:
            known, all_known = (run(self.layers, x, mask, window) for window in (self.config.window, None))
            sides = (known - all_known).chunk(2 if self.config.bidirectional else 1, dim=-1)
            found["truncation_error"] = max(side.norm(dim=-1).amax().item() for side in sides)
            cells = self.cells()
            if self.config.stable and self.config.num_layers == 1 and isinstance(cells[0], RNNCell):
                longest = (x if mask is None else x[mask]).norm(dim=-1).amax()
                pushes = [
                    torch.linalg.matrix_norm(cell.input.weight, ord=2) * longest + cell.input.bias.norm()
                    for cell in cells
                ]
                found["truncation_bound"] = found["truncation_factor"] * max(pushes).item()
        return found

    @torch.no_grad()
    def project_(self) -> None:
        for cell in self.cells() if self.config.stable else ():
            cell.recurrent.copy_(self.bounded(cell.recurrent))


class TruncatedRNN(Truncated):
    """The RNN. If `stable`, the singular values of every W are at most `spectral_bound`."""

    Config = TruncatedRNNConfig
    pretrained_learning_rate = 1e-3  # ours

    def __init__(self, config: TruncatedRNNConfig) -> None:
        bound = config.spectral_bound
        super().__init__(config, RNNCell, partial(clip_singular_values, bound=bound), bound)


class TruncatedLSTM(Truncated):
    """The LSTM. If `stable`, f̄ is `forget_bound` and the recurrent weights satisfy `ops.stable.lstm_bounds`."""

    Config = TruncatedLSTMConfig
    scratch_learning_rate = pretrained_learning_rate = 3e-3  # ours: at 1e-3 the bounded gates learn slowly

    def __init__(self, config: TruncatedLSTMConfig) -> None:
        bound = config.forget_bound
        cell = partial(LSTMCell, forget_bound=bound if config.stable else 1.0)
        super().__init__(config, cell, partial(project_lstm, forget_bound=bound), lstm_contraction(bound))
