"""An encoder that goes on from window to window computes what one pass over the whole text does, without gradients between."""

from typing import Any

import pytest
import torch
from cases import slow_but
from torch import Tensor

from recurcli.encoders import ENCODERS, build_encoder, encoder_class
from recurcli.encoders.encoder import CarriedState, Encoder

SIZE, LENGTH = 8, 24
XL = {"name": "transformer-xl", "num_heads": 2, "causal": True, "segment": 4, "memory": 6}
LATENT = {"name": "temporal-latent-bottleneck", "num_heads": 2, "causal": True, "chunk_size": 4, "num_states": 3}
BLOCKS = {"name": "block-recurrent-transformer", "num_heads": 2, "causal": True, "window": 4, "num_states": 3}
RECURRENT = {"bidirectional": False}
CASES: dict[str, dict[str, Any]] = {
    "rnn": {"name": "truncated-rnn", "window": None, **RECURRENT},
    "lstm": {"name": "truncated-lstm", "window": None, "stable": False, **RECURRENT},
    "stable lstm": {"name": "truncated-lstm", "window": None, "stable": True, **RECURRENT},
    "rnn with a window": {"name": "truncated-rnn", "window": 6, **RECURRENT},
    "lstm with a window": {"name": "truncated-lstm", "window": 10, **RECURRENT},
    "lstm with a window of one": {"name": "truncated-lstm", "window": 1, **RECURRENT},
    "transformer-xl": XL,
    "transformer-xl with rsa": {**XL, "rsa": True},
    "transformer-xl, pre-norm, long memory": {**XL, "norm": "pre", "memory": 16},
    "transformer-xl without memory": {**XL, "memory": 0},
    "block-recurrent": BLOCKS,
    "block-recurrent with rsa, post-norm": {**BLOCKS, "rsa": True, "norm": "post"},
    "latent bottleneck": LATENT,
    "latent bottleneck with rsa, post-norm": {**LATENT, "rsa": True, "norm": "post"},
}
ALL = pytest.mark.parametrize("name", CASES)


def encoder_of(keys: dict[str, Any]) -> Encoder:
    torch.manual_seed(3)
    return build_encoder({"hidden_size": SIZE, "num_layers": 2, **keys}).double().eval()  # without dropout


def text() -> Tensor:
    return torch.randn(3, LENGTH, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def carried(encoder: Encoder, x: Tensor, length: int | list[int]) -> Tensor:
    """The states of a text in windows of `length` tokens, or of these lengths."""
    state: CarriedState | None = None
    windows = []
    for window in torch.split(x, length, dim=1):
        states, state = encoder.carry(window, state)
        assert all(len(part) == len(x) and not part.requires_grad for part in state.values())
        windows.append(states)
    return torch.cat(windows, dim=1)


def test_every_encoder_that_can_carry_is_tested() -> None:
    able = {name for name in ENCODERS if not encoder_class(name).carry_obstacle}
    assert able == {str(keys["name"]) for keys in CASES.values()}


@ALL
@pytest.mark.parametrize("length", slow_but([4], [4, 20]))
def test_windows_have_the_states_of_one_pass(name: str, length: int) -> None:
    encoder, x = encoder_of(CASES[name]), text()
    torch.testing.assert_close(carried(encoder, x, length), encoder(x), rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(carried(encoder, x, length), encoder(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["transformer-xl", "transformer-xl with rsa"])
def test_a_window_that_is_shorter_than_a_segment_is_a_segment(name: str) -> None:
    keys, x = CASES[name], text()
    encoder, shorter = encoder_of(keys), encoder_of({**keys, "segment": 3})
    shorter.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(carried(encoder, x, 3), shorter(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in CASES if "segment" in CASES[name] or "block" in name or "latent" in name]
)
def test_the_last_piece_of_a_window_may_be_shorter(name: str) -> None:
    """A window of six tokens has pieces of four and two, as windows of four and two have."""
    encoder, x = encoder_of(CASES[name]), text()
    torch.testing.assert_close(carried(encoder, x, 6), carried(encoder, x, [4, 2] * 4), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        carried(encoder, x, [7, 17]), carried(encoder, x, [4, 3, 4, 4, 4, 4, 1]), rtol=0, atol=1e-12
    )


@ALL
def test_no_gradient_passes_from_a_window_to_the_one_before(name: str) -> None:
    encoder, x = encoder_of(CASES[name]), text()
    first, second = (part.clone().requires_grad_() for part in torch.split(x, 12, dim=1))
    _, state = encoder.carry(first, None)
    states, _ = encoder.carry(second, state)
    states.square().sum().backward()  # type: ignore[no-untyped-call]
    assert first.grad is None or not first.grad.any()
    assert second.grad is not None and second.grad.any()


@pytest.mark.parametrize("name", [name for name in CASES if "block" in name or "latent" in name])
def test_windows_of_one_block_or_chunk_train_the_weights_that_make_the_state(name: str) -> None:
    encoder, x = encoder_of({**CASES[name], "num_layers": 1}), text()[:, :8]
    states = carried(encoder, x, 4)
    (states * torch.randn_like(states)).sum().backward()  # type: ignore[no-untyped-call]
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 1e-4, key


@pytest.mark.parametrize("name", CASES)
def test_dropout_of_the_embeddings_is_that_of_one_pass(name: str) -> None:
    encoder, x = encoder_of({**CASES[name], "dropout": 0.9}), text()
    encoder.train()
    for module in encoder.modules():
        if module is not encoder and module is not getattr(encoder, "dropout", None):
            module.training = False  # nn.Module.train would reach the children
    torch.manual_seed(0)
    one = encoder(x)
    torch.manual_seed(0)
    torch.testing.assert_close(encoder.carry(x, None)[0], one, rtol=0, atol=1e-12)
    assert not torch.allclose(one, encoder.eval()(x))


@pytest.mark.parametrize("name", ["transformer-xl", "transformer-xl with rsa", "transformer-xl, pre-norm, long memory"])
def test_the_memory_gives_its_weights_the_gradients_of_one_pass(name: str) -> None:
    """In one pass the memory is a constant, too (section 3.2), so windows of one segment have the same gradients."""
    found = []
    for length in (4, LENGTH):
        encoder, x = encoder_of(CASES[name]), text().requires_grad_()
        (carried(encoder, x, 4) if length == 4 else encoder(x)).square().sum().backward()
        found.append({key: parameter.grad for key, parameter in encoder.named_parameters()})
    for key, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][key], rtol=0, atol=1e-10)
