"""One position at a time equals all positions at once, with the gradients."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from equations import batch, built, check_same
from sized_encoders import SIZED

from recurcli.encoders.config import causal_key, encoder_config

SIZE = 16
STEPPING: list[tuple[str, dict[str, Any]]] = [
    ("mingru", {}),
    ("s4d", {}),
    ("gated-linear-attention", {}),
    ("linear-transformer", {}),
    ("linear-transformer", {"norm": "pre", "feature_map": "exp"}),
    *(("transformer", {"position": position}) for position in ("sinusoidal", "rotary", "none")),
    *((name, {"window": window}) for name in ("truncated-rnn", "truncated-lstm") for window in (4, None)),
]


def causal(name: str, **keys: Any) -> Any:
    key, value = causal_key(name) or ("", None)
    heads = {"num_heads": 2} if "num_heads" in {field.name for field in fields(encoder_config(name))} else {}
    return built(name, moved=0.1, **{"hidden_size": SIZE, "num_layers": 2, key: value, **heads, **keys})


@pytest.mark.parametrize(("name", "keys"), STEPPING)
def test_step_by_step_is_all_at_once(name: str, keys: dict[str, Any]) -> None:
    encoder, (x, _) = causal(name, **keys), batch([23, 23], SIZE)
    assert encoder.step_obstacle == ""
    x.requires_grad_()
    state, states = None, []
    for position in range(x.shape[1]):
        found, state = encoder.step(x[:, position], state)
        states.append(found)
    check_same(
        torch.stack(states, dim=1), encoder(x), [x, *encoder.parameters()], 1e-6 if "rotary" in keys.values() else 1e-10
    )


@pytest.mark.parametrize(("name", "keys"), STEPPING)
def test_a_state_grows_only_where_it_is_said(name: str, keys: dict[str, Any]) -> None:
    encoder, (x, _) = causal(name, **keys), batch([12], SIZE)
    state, sizes = None, []
    for position in range(12):
        _, state = encoder.step(x[:, position], state)
        parts = [*state["layers"]] if "layers" in state else [*state.values()]
        tensors = [part for own in parts for part in (own if isinstance(own, tuple) else [own])]
        sizes.append(sum(part.numel() for part in tensors))
    assert (sizes[-1] > sizes[5]) == encoder.step_state_grows
    assert encoder.step_state_grows == (name == "transformer")


def test_every_encoder_that_has_steps_is_tested_and_the_others_say_why_not() -> None:
    able = set()
    for name in SIZED:
        encoder = causal(name) if causal_key(name) else built(name, hidden_size=SIZE)
        able |= {name} if not encoder.step_obstacle else set()
    assert able == {name for name, _ in STEPPING}


@pytest.mark.parametrize("name", ["mingru", "transformer", "truncated-rnn"])
def test_an_encoder_that_reads_both_sides_has_no_steps(name: str) -> None:
    assert built(name, hidden_size=SIZE).step_obstacle
