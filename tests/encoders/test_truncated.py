"""Stable recurrent models are near their truncated ones, as near as the theory says; unstable ones need not be."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from recurcli.encoders import build_encoder
from recurcli.encoders.truncated import LSTMCell, RNNCell, TruncatedLSTM, TruncatedRNN
from recurcli.ops.stable import lstm_bounds, lstm_contraction, truncation_factor
from recurcli.ops.windowed import State, full_recurrence, windowed_recurrence

NAMES = pytest.mark.parametrize("name", ["truncated-rnn", "truncated-lstm"])
SIZE, LENGTH = 8, 40
BOUND, FORGET = 0.95, 0.64


def encoder_of(name: str, **more: Any) -> TruncatedRNN | TruncatedLSTM:
    """In float64, with recurrent weights far outside their bounds, then projected."""
    torch.manual_seed(3)
    keys = {"name": name, "hidden_size": SIZE, "num_layers": 1, "bidirectional": False, **more}
    encoder = cast(TruncatedRNN | TruncatedLSTM, build_encoder(keys).double().eval())
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    encoder.project_()
    return encoder


def inputs(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(
        *(shape or (3, LENGTH, SIZE)), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def test_lemma_1_bounds_what_truncation_changes_for_every_window_of_the_rnn() -> None:
    encoder, x = encoder_of("truncated-rnn"), inputs()
    cell = cast(RNNCell, encoder.layers[0][0])  # type: ignore[index]
    projected = cell.input(x)
    states, _ = full_recurrence(cell, projected)
    push = torch.linalg.matrix_norm(cell.input.weight, 2) * x.norm(dim=-1).max() + cell.input.bias.norm()
    for window in range(1, LENGTH + 1):
        difference = (states - windowed_recurrence(cell, projected, window)).norm(dim=-1)  # (B, T)
        assert (difference <= truncation_factor(BOUND, window) * push).all()
        assert difference[:, :window].max() < 1e-14


@pytest.mark.parametrize("sides", [False, True])
@pytest.mark.parametrize("window", [2, 4, LENGTH])
def test_the_truncation_error_of_a_batch_is_that_of_the_states_and_below_the_bound(sides: bool, window: int) -> None:
    encoder, x = encoder_of("truncated-rnn", window=window, bidirectional=sides), inputs()
    mask = torch.arange(LENGTH) < torch.tensor([LENGTH, 3, 1])[:, None]
    found = encoder.stats(x, mask)
    whole = encoder_of("truncated-rnn", window=None, bidirectional=sides)
    whole.load_state_dict(encoder.state_dict())
    difference = (encoder(x, mask) - whole(x, mask)).unflatten(-1, (2 if sides else 1, -1)).norm(dim=-1)
    assert found["truncation_error"] == pytest.approx(difference.max().item(), abs=1e-12)
    assert 0 <= found["truncation_error"] <= found["truncation_bound"]
    assert found["truncation_error"] > 1e-6 or window == LENGTH


def test_lemma_1_bounds_what_truncation_changes_for_every_window_of_the_lstm() -> None:
    encoder, x = encoder_of("truncated-lstm"), inputs()
    lstm = cast(LSTMCell, encoder.layers[0][0])  # type: ignore[index]

    def both(projected: Tensor, state: State | None) -> State:
        """The cell with h and c in one tensor."""
        own = None if state is None else state[0].chunk(2, dim=-1)
        return (torch.cat(lstm(projected, own), dim=-1),)

    projected = lstm.input(x)
    states, _ = full_recurrence(both, projected)
    assert states.abs().max() <= 1 / (1 - FORGET)
    for window in range(1, LENGTH + 1):
        difference = (states - windowed_recurrence(both, projected, window)).abs().amax(dim=-1)
        assert (difference <= lstm_contraction(FORGET) ** window / (1 - FORGET)).all()
        assert difference[:, :window].max() < 1e-14


@NAMES
def test_stays_stable_at_every_optimiser_step(name: str) -> None:
    encoder = encoder_of(name, bidirectional=True, num_layers=2).train()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=10.0)
    for _ in range(5):
        optimizer.zero_grad()
        encoder(inputs()).square().sum().backward()
        optimizer.step()
        recurrent = [p for key, p in encoder.named_parameters() if "recurrent" in key]
        assert len(recurrent) == 4
        before = [weight.clone() for weight in recurrent]
        encoder.project_()
        assert any(not torch.equal(old, new) for old, new in zip(before, recurrent, strict=True))
        for weight in recurrent:
            if name == "truncated-rnn":
                assert torch.linalg.matrix_norm(weight, 2) <= BOUND + 1e-12
            else:
                for part, bound in zip(weight.chunk(4), lstm_bounds(FORGET), strict=True):
                    assert part.abs().sum(dim=-1).max() <= bound + 1e-12


@NAMES
def test_is_stable_from_the_start_and_left_alone_where_stability_is_not_asked_for(name: str) -> None:
    fresh = build_encoder({"name": name, "hidden_size": SIZE, "num_layers": 1})
    before = {key: value.clone() for key, value in fresh.state_dict().items()}
    fresh.project_()
    for key, value in fresh.state_dict().items():
        torch.testing.assert_close(value, before[key], atol=1e-6, rtol=0)
    free = encoder_of(name, stable=False)
    before = {key: value.clone() for key, value in free.state_dict().items()}
    free.project_()
    assert all(torch.equal(value, before[key]) for key, value in free.state_dict().items())


@pytest.mark.parametrize(("name", "peer"), [("truncated-rnn", nn.RNN), ("truncated-lstm", nn.LSTM)])
@pytest.mark.parametrize("window", [None, LENGTH, 3 * LENGTH])
def test_a_free_model_over_the_whole_text_is_that_of_torch(name: str, peer: Any, window: int | None) -> None:
    encoder = encoder_of(name, stable=False, window=window, num_layers=2)
    other = peer(SIZE, SIZE, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        for depth, layer in enumerate(encoder.layers):
            cell = cast(RNNCell | LSTMCell, layer[0])  # type: ignore[index]
            getattr(other, f"weight_ih_l{depth}").copy_(cell.input.weight)
            getattr(other, f"weight_hh_l{depth}").copy_(cell.recurrent)
            getattr(other, f"bias_ih_l{depth}").copy_(cell.input.bias)
            getattr(other, f"bias_hh_l{depth}").zero_()
    torch.testing.assert_close(encoder(inputs()), other(inputs())[0])


@NAMES
def test_the_whole_text_is_read_in_float32_under_autocast(name: str) -> None:
    encoder, x = encoder_of(name, stable=False, window=None, num_layers=2).float(), inputs().bfloat16()
    expected, state = encoder.carry(x.float(), None)
    with torch.autocast("cpu", torch.bfloat16):  # whose LSTM many CPUs do not have
        found, after = encoder.carry(x, None)
        again, _ = encoder.carry(x, {key: value.bfloat16() for key, value in after.items()})
    assert found.dtype == again.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert after.keys() == state.keys()


@NAMES
@pytest.mark.parametrize("layers", [1, 3])
def test_sees_exactly_the_window_whatever_the_depth(name: str, layers: int) -> None:
    for bidirectional in (False, True):
        encoder = encoder_of(name, num_layers=layers, window=3, bidirectional=bidirectional)
        slopes: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
            lambda x, model=encoder: model(x)[0].sum(-1), inputs(1, 9, SIZE)
        )
        reach = slopes[:, 0].abs().sum(-1)  # (T outputs, T inputs)
        lag = torch.arange(9)[:, None] - torch.arange(9)
        seen = (lag.abs() < 3) & ((lag >= 0) | torch.tensor(bidirectional))
        assert ((reach != 0) == seen).all()


@NAMES
def test_two_directions_are_one_model_each_and_the_second_starts_at_the_last_real_token(name: str) -> None:
    encoder = encoder_of(name, bidirectional=True, window=4)
    x, mask = inputs(2, 9, SIZE), torch.arange(9) < torch.tensor([9, 5])[:, None]
    found = encoder(torch.where(mask[..., None], x, 1e4), mask)
    assert (found[~mask] == 0).all()
    directions: Any = encoder.layers[0]
    ahead, back = directions
    for row, length in enumerate((9, 5)):
        text = x[row : row + 1, :length]
        forward = windowed_recurrence(ahead, ahead.input(text), 4)
        backward = windowed_recurrence(back, back.input(text.flip(1)), 4).flip(1)
        assert forward.shape[-1] == backward.shape[-1] == SIZE // 2
        torch.testing.assert_close(found[row, :length], torch.cat([forward, backward], dim=-1)[0])


@NAMES
@pytest.mark.parametrize("stable", [True, False])
def test_the_norm_of_the_trained_recurrent_matrices_is_told(name: str, stable: bool) -> None:
    encoder = encoder_of(name, num_layers=2, stable=stable)
    found = encoder.stats(inputs(), None)
    norms = []
    for cell in encoder.modules():
        if isinstance(cell, RNNCell | LSTMCell):
            norms += [torch.linalg.svdvals(part)[0].item() for part in torch.split(cell.recurrent, SIZE)]
    assert len(norms) == (2 if name == "truncated-rnn" else 8)
    assert found["recurrent_norm"] == pytest.approx(max(norms))
    assert ("contraction" in found) == stable
