"""One position at a time equals all positions at once, with the gradients."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from cases import slow_but
from equations import batch, built
from sized_encoders import SIZED
from torch import Tensor

from recurcli.encoders import Encoder, encoder_class
from recurcli.encoders.contract import check_steps
from recurcli.encoders.registry import causal_key, encoder_config
from recurcli.encoders.transformer_xl import Tables

SIZE = 16
BLOCKS = {"window": 4, "num_states": 3}
STEPPING: list[tuple[str, dict[str, Any]]] = [
    ("mingru", {}),
    ("s4d", {}),
    ("gated-linear-attention", {}),
    ("gated-linear-attention", {"gate_temperature": 0.05}),  # gates below the least
    ("mingru", {"signed": True}),
    *(
        ("delta-net", keys)
        for keys in ({}, {"negative_eigenvalues": True, "products": 2}, {"gate": "scalar", "products": 3})
    ),
    *(("mamba2", {"signed": signed, "state_size": 6}) for signed in (False, True)),
    ("mlstm", {}),
    ("slstm", {}),
    ("linear-transformer", {}),
    ("linear-transformer", {"norm": "pre", "feature_map": "exp"}),
    *(("transformer", {"position": position}) for position in ("sinusoidal", "rotary", "none")),
    *((name, {"window": window}) for name in ("truncated-rnn", "truncated-lstm") for window in (4, None)),
    *(
        ("transformer-xl", {"segment": 4, **keys})
        for keys in ({"memory": 6}, {"memory": 0}, {"memory": 9, "rsa": True})
    ),
    ("transformer-xl", {"segment": 5, "memory": 3, "norm": "pre", "head_size": 6}),
    *(("block-recurrent-transformer", {**BLOCKS, **keys}) for keys in ({}, {"rsa": True, "norm": "post"})),
    ("block-recurrent-transformer", {**BLOCKS, "gate": "lstm", "state_feed_forward": True}),
]

ONE_OF_EACH = [
    next(case for case in STEPPING if case[0] == name) for name in dict.fromkeys(name for name, _ in STEPPING)
]
"""The first of each encoder, and with it of each form of a state."""


def causal(name: str, **keys: Any) -> Any:
    key, value = causal_key(name) or ("", None)
    return built(name, moved=0.1, **{"hidden_size": SIZE, "num_layers": 2, key: value, **heads(name), **keys})


def heads(name: str) -> dict[str, int]:
    """The number of heads of a small encoder that has any."""
    return {"num_heads": 2} if "num_heads" in {field.name for field in fields(encoder_config(name))} else {}


@pytest.mark.parametrize(("name", "keys"), STEPPING)
def test_step_by_step_is_all_at_once(name: str, keys: dict[str, Any]) -> None:
    assert causal(name, **keys).step_obstacle == ""
    check_steps(name, **heads(name), **keys)


def test_the_check_of_steps_fails_for_another_step_and_passes_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_a_state(encoder: Encoder, x: Tensor, state: object) -> tuple[Tensor, object]:
        return step(encoder, x, None)

    kind = encoder_class("mingru")
    step = kind.step
    monkeypatch.setattr(kind, "step", without_a_state)
    with pytest.raises(AssertionError):
        check_steps("mingru")
    check_steps("mingru", causal=False)
    check_steps("bilstm")


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["mingru", "delta-net", "slstm"],
        ["mingru", "s4d", "gated-linear-attention", "linear-transformer", "delta-net", "mamba2", "mlstm", "slstm"],
    ),
)
def test_steps_of_a_long_text_in_bf16_are_close_to_fp32(name: str) -> None:
    mixer = causal(name).float().layers[0].attention
    x = torch.randn(1, 700, SIZE, generator=torch.Generator().manual_seed(6)).bfloat16()
    state, states = None, []
    with torch.no_grad():
        exact = mixer(x.float())[:, 600:]
        for each in x.unbind(1):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found, state = mixer.step(each, state)
            states.append(found.float())
    assert (torch.stack(states[600:], dim=1) - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize(("name", "keys"), slow_but(ONE_OF_EACH, STEPPING, unpack=True))
def test_a_state_grows_only_where_it_is_said(name: str, keys: dict[str, Any]) -> None:
    encoder = causal(name, **keys)
    sizes = sizes_of_states(encoder, 36)
    assert (max(sizes[18:]) > max(sizes[:18])) == encoder.step_state_grows
    assert encoder.step_state_grows == (name == "transformer")


def sizes_of_states(encoder: Any, length: int) -> list[int]:
    """The size of the state after each position of a text."""
    x, _ = batch([length], SIZE)
    state, sizes = None, []
    for position in range(length):
        _, state = encoder.step(x[:, position], state)
        sizes.append(size_of(state))
    return sizes


def size_of(state: Any) -> int:
    """The count of numbers that a state holds of a text: all but the tables of lags."""
    if isinstance(state, Tensor):
        return state.numel()
    parts = state.values() if isinstance(state, dict) else vars(state).values() if is_dataclass(state) else state
    return sum(size_of(part) for part in parts if not isinstance(part, int | Tables | None))


@pytest.mark.parametrize(
    ("name", "keys", "largest"),
    [
        ("transformer-xl", {"segment": 4, "memory": 6}, 2 * (2 * 6 + 3 * 4) * SIZE),
        ("block-recurrent-transformer", BLOCKS, 2 * 5 * 4 * SIZE + 5 * 3 * SIZE),
    ],
)
def test_segments_keep_as_much_as_is_documented(name: str, keys: dict[str, Any], largest: int) -> None:
    of_a_token = 2 * 3 * SIZE  # key, value and input in two layers; the last token of a segment adds none
    assert max(sizes_of_states(causal(name, **keys), 24)) == largest - of_a_token


@pytest.mark.parametrize(("name", "keys"), slow_but(ONE_OF_EACH, STEPPING, unpack=True))
def test_a_step_leaves_the_state_before_it_as_it_is(name: str, keys: dict[str, Any]) -> None:
    encoder, (x, _) = causal(name, **keys), batch([9], SIZE)
    state = None
    for position in range(8):
        again = encoder.step(x[:, 8], state)[0]
        encoder.step(x[:, position], state)
        assert torch.equal(encoder.step(x[:, 8], state)[0], again)
        state = encoder.step(x[:, position], state)[1]


def test_every_encoder_that_has_steps_is_tested_and_the_others_say_why_not() -> None:
    able = set()
    for name in SIZED:
        encoder = causal(name) if causal_key(name) else built(name, hidden_size=SIZE)
        able |= {name} if not encoder.step_obstacle else set()
    assert able == {name for name, _ in STEPPING}


@pytest.mark.parametrize("name", ["mingru", "transformer", "transformer-xl", "truncated-rnn"])
def test_an_encoder_that_reads_both_sides_has_no_steps(name: str) -> None:
    assert built(name, hidden_size=SIZE).step_obstacle
