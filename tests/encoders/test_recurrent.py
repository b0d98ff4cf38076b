"""minGRU, S4D and gated linear attention: one layer against its equations as a plain loop, in one direction and in both."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from equations import batch, built, check_same
from torch import Tensor

SIZE = 16
NAMES = ("mingru", "s4d", "gated-linear-attention")


def mingru(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    """The states (T, C) of one text x (T, D)."""
    state, states = torch.zeros(SIZE, dtype=x.dtype)[channels], []
    for token in x:
        gate = torch.sigmoid(mixer.gate(token))[channels]
        raw = mixer.candidate(token)[channels]
        candidate = torch.where(raw >= 0, raw + 0.5, torch.sigmoid(raw))
        state = (1 - gate) * state + gate * candidate
        states.append(state)
    return torch.stack(states)


def s4d(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    step = mixer.log_step.exp()
    rates = torch.complex(-mixer.log_decay.exp(), mixer.frequency)
    weights = torch.complex(mixer.weights[..., 0], mixer.weights[..., 1])
    decay = torch.exp(step[:, None] * rates)
    state, states = torch.zeros_like(decay), []
    for token in x:
        state = decay * state + (decay - 1) / rates * token[:, None]
        states.append(F.gelu(2 * (weights * state).sum(-1).real + mixer.skip * token)[channels])
    return torch.stack(states)


def gated_linear_attention(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    size, sides = mixer.key_size, 1 if mixer.causal else 2
    columns = [SIZE // (2 * sides), SIZE // (2 * sides), SIZE // sides]  # of queries, keys and values
    states: list[list[Tensor]] = []
    chosen = range(SIZE // (2 * size))[
        slice(*(part and part // (2 * size) for part in (channels.start, channels.stop)))
    ]
    for head in chosen:
        keys, values = slice(head * size, (head + 1) * size), slice(2 * head * size, 2 * (head + 1) * size)
        state, outputs = torch.zeros(size, 2 * size, dtype=x.dtype), []
        for token in x:
            *parts, low = mixer.projection(token).split([*columns * sides, mixer.rank])
            query, key, value = (torch.cat(parts[place::3]) for place in range(3))  # of both sides
            gate = torch.sigmoid(mixer.gate(low))[keys] ** (1 / mixer.temperature)
            state = gate[:, None] * state + key[keys, None] * value[None, values]
            outputs.append(F.layer_norm(query[keys] / math.sqrt(size) @ state, (2 * size,)))
        states.append(outputs)
    joined = torch.stack([torch.cat(parts) for parts in zip(*states, strict=True)])
    return F.silu(mixer.swish(x))[:, channels] * joined


STATES: dict[str, Callable[[Any, Tensor, slice], Tensor]] = dict(
    zip(NAMES, (mingru, s4d, gated_linear_attention), strict=True)
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_layer_is_its_equations(name: str, causal: bool, norm: str) -> None:
    heads = {"num_heads": 2} if name == "gated-linear-attention" else {}
    encoder = built(name, moved=0.2, hidden_size=SIZE, num_layers=1, causal=causal, norm=norm, **heads)
    layer, (x, mask) = encoder.layers[0], batch([37, 5, 1], SIZE)
    mixer, expected = layer.attention, []
    x.requires_grad_()
    for text, real in zip(x, mask, strict=True):
        h = text[real]
        given = layer.attention_norm(h) if norm == "pre" else h
        half = slice(SIZE // 2), slice(SIZE // 2, None)
        if causal:
            states = STATES[name](mixer, given, slice(None))
        else:
            back = STATES[name](mixer, given.flip(0), half[1]).flip(0)
            states = torch.cat([STATES[name](mixer, given, half[0]), back], dim=-1)
        mixed = h + mixer.to_output(states)
        if norm == "pre":
            a = mixed + layer.feed_forward(layer.feed_forward_norm(mixed))
            expected.append(encoder.final_norm(a))
        else:
            a = layer.attention_norm(mixed)
            expected.append(layer.feed_forward_norm(a + layer.feed_forward(a)))
    check_same(encoder(x, mask)[mask], torch.cat(expected), [x, *encoder.parameters()], 1e-10)


def test_s4d_begins_with_the_matrices_of_s4d_lin() -> None:
    encoder = built("s4d", hidden_size=2048, num_layers=1, state_size=8, step_min=0.01, step_max=0.5)
    mixer = encoder.requires_grad_(False).layers[0].attention
    steps, rates, weights = mixer.model()
    expected = torch.complex(torch.tensor(-0.5), math.pi * torch.arange(4)).expand(2048, -1)
    torch.testing.assert_close(rates.to(torch.complex64), expected)
    places = (steps / 0.01).log() / math.log(50)  # uniform from 0 to 1
    assert (places.min(), places.max()) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.01))
    assert (places.mean(), places.std()) == (pytest.approx(0.5, abs=0.03), pytest.approx(12**-0.5, abs=0.02))
    assert (weights.std(), mixer.skip.std()) == (pytest.approx(1, abs=0.05), pytest.approx(1, abs=0.06))


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_is_twice_as_long_takes_twice_the_work(name: str) -> None:
    """Elements that are computed, which the CPU's time would hide in noise. The powers of S4D's kernel grow as √T."""
    encoder, counted = built(name, hidden_size=SIZE, num_layers=1), []
    for length in (512, 1024):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            encoder(torch.zeros(1, length, SIZE, dtype=torch.float64))
        sizes = [math.prod(shape) for event in profile.events() for shape in event.input_shapes if shape]
        counted.append(sum(sizes))
    assert 1.7 < counted[1] / counted[0] < 2.4
