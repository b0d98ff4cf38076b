"""Recurrences in place of attention: one layer against its equations as a plain loop, in one direction and in both."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cases import slow_but
from equations import batch, built, check_same
from torch import Tensor

SIZE = 16
NAMES = ("mingru", "s4d", "gated-linear-attention", "delta-net", "mamba2", "mlstm", "slstm")
VIEWS = {"aten::select", "aten::as_strided", "aten::unbind"}
"""What reads no elements."""
CASES: list[tuple[str, dict[str, Any]]] = [
    ("mingru", {}),
    ("mingru", {"signed": True}),
    ("s4d", {}),
    ("gated-linear-attention", {"num_heads": 2}),
    ("delta-net", {"num_heads": 2}),
    ("delta-net", {"num_heads": 4, "negative_eigenvalues": True, "products": 3, "short_convolution": 1}),
    ("delta-net", {"num_heads": 2, "gate": "scalar", "products": 2}),
    ("mamba2", {"num_heads": 4, "state_size": 6}),
    ("mamba2", {"num_heads": 2, "state_size": 5, "signed": True, "short_convolution": 2}),
    ("mlstm", {"num_heads": 2}),
    ("slstm", {"num_heads": 4}),
]


def mingru(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    """The states (T, C) of one text x (T, D)."""
    state, states = torch.zeros(SIZE, dtype=x.dtype)[channels], []
    for token in x:
        gate = torch.sigmoid(mixer.gate(token))[channels]
        raw = mixer.candidate(token)[channels]
        candidate = torch.where(raw >= 0, raw + 0.5, torch.sigmoid(raw))
        factor = 1 - 2 * gate if mixer.signed else 1 - gate
        state = factor * state + (1 - factor.abs()) * candidate
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


def heads_of(mixer: Any, channels: slice) -> range:
    """The heads whose values are `channels`."""
    start, stop, _ = channels.indices(SIZE)
    return range(start * mixer.heads // SIZE, stop * mixer.heads // SIZE)


def convolved(convolution: Any, inputs: Tensor) -> Tensor:
    """SiLU of w_0 x_(t-W+1) + … + w_(W-1) x_t of each channel of inputs (T, C)."""
    width, found = len(convolution.weight), []
    for position in range(len(inputs)):
        total = torch.zeros_like(inputs[0])
        for place in range(width):
            if (read := position - width + 1 + place) >= 0:
                total = total + convolution.weight[place] * inputs[read]
        found.append(total * torch.sigmoid(total))
    return torch.stack(found)


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def delta_net(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    size, n, outputs = SIZE // mixer.heads, mixer.products, []
    projected = convolved(mixer.convolution, mixer.projection(x)).view(len(x), mixer.heads, 1 + 2 * n, size)
    beta = mixer.largest_beta * torch.sigmoid(mixer.beta(x)).view(len(x), mixer.heads, n)
    for head in heads_of(mixer, channels):
        state, read = torch.zeros(size, size, dtype=x.dtype), []  # values by keys
        for position, token in enumerate(x):
            own = projected[position, head]
            if mixer.gate is not None:
                rate = F.softplus(mixer.gate(token)[head]) * mixer.log_rate[head].exp()
                state = state * torch.exp(-rate)
            for key, value, b in zip(own[1 : n + 1], own[n + 1 :], beta[position, head], strict=True):
                key = key / key.norm()
                state = state @ (torch.eye(size, dtype=x.dtype) - b * torch.outer(key, key)) + b * torch.outer(
                    value, key
                )
            read.append(mixer.norm * rms(state @ (own[0] / own[0].norm())))
        outputs.append(torch.stack(read))
    return torch.cat(outputs, dim=-1)


def mamba2(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    size, outputs = SIZE // mixer.heads, []
    inputs, keys = convolved(mixer.of_inputs, mixer.projection(x)), convolved(mixer.of_keys, mixer.keys(x))
    for head in heads_of(mixer, channels):
        side = head * mixer.sides // mixer.heads
        key, query = keys.view(len(x), mixer.sides, 2, -1)[:, side].unbind(1)
        state, read = torch.zeros(key.shape[1], size, dtype=x.dtype), []
        for position, token in enumerate(x):
            step = F.softplus(mixer.step_size(token)[head])
            decay = torch.exp(-step * mixer.log_rate[head].exp())
            own = inputs[position, head * size : (head + 1) * size]
            state = (2 * decay - 1 if mixer.signed else decay) * state + step * torch.outer(key[position], own)
            read.append(query[position] @ state + mixer.skip[head] * own)
        outputs.append(torch.stack(read))
    return torch.cat(outputs, dim=-1) * F.silu(mixer.gate(x))[:, channels]


def mlstm(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    size, outputs = mixer.key_size, []
    read = convolved(mixer.convolution, mixer.query_key(x)).view(len(x), mixer.heads, 2, size)
    values, gates = mixer.value(x).view(len(x), mixer.heads, size), mixer.gates(x).view(len(x), mixer.heads, 2)
    for head in heads_of(mixer, channels):
        memory, normalizer = (torch.zeros(*shape, dtype=x.dtype) for shape in ((size, size), (size,)))
        for position in range(len(x)):
            query, key = read[position, head]
            enter, forget = gates[position, head, 0].exp(), torch.sigmoid(gates[position, head, 1])
            memory = forget * memory + enter * torch.outer(values[position, head], key)
            normalizer = forget * normalizer + enter * key
            query = query / math.sqrt(size)
            outputs.append(rms(memory @ query / torch.clamp((normalizer @ query).abs(), min=1)))
    joined = torch.stack(outputs).view(-1, len(x), size).transpose(0, 1).flatten(1)
    return (torch.sigmoid(mixer.gate(x)) * mixer.norm)[:, channels] * joined


def slstm(mixer: Any, x: Tensor, channels: slice) -> Tensor:
    size, outputs = SIZE // mixer.heads, []
    for head in heads_of(mixer, channels):
        state, memory, normalizer = (torch.zeros(size, dtype=x.dtype) for _ in range(3))
        for given in mixer.gates(x).view(len(x), mixer.heads, -1)[:, head]:
            candidate, enter, forget, leave = (given + state @ mixer.recurrent[head]).chunk(4)
            memory = torch.sigmoid(forget) * memory + enter.exp() * torch.tanh(candidate)
            normalizer = torch.sigmoid(forget) * normalizer + enter.exp()
            state = torch.sigmoid(leave) * memory / normalizer
            outputs.append(rms(state))
    return mixer.norm[channels] * torch.stack(outputs).view(-1, len(x), size).transpose(0, 1).flatten(1)


STATES: dict[str, Callable[[Any, Tensor, slice], Tensor]] = dict(
    zip(NAMES, (mingru, s4d, gated_linear_attention, delta_net, mamba2, mlstm, slstm), strict=True)
)


ORDERS = [(True, "pre"), (False, "post"), (False, "pre"), (True, "post")]
LAYERS = [(*case, *order) for case in CASES for order in ORDERS]
"""Each case, in both directions or one, with each norm; the default tries each case with both of each."""
PAIRS = [layer for place, layer in enumerate(LAYERS) if place % 8 in (0, 1, 6, 7)]


@pytest.mark.parametrize(("name", "keys", "causal", "norm"), slow_but(PAIRS, LAYERS, unpack=True))
def test_a_layer_is_its_equations(name: str, keys: dict[str, Any], causal: bool, norm: str) -> None:
    encoder = built(name, moved=0.2, hidden_size=SIZE, num_layers=1, causal=causal, norm=norm, **keys)
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
        if name == "mamba2":  # of all channels together
            states = mixer.norm * rms(states)
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
    for length in (64, 128) if name == "slstm" else (512, 1024):  # a loop over the positions, of many events
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            encoder(torch.zeros(1, length, SIZE, dtype=torch.float64))
        computing = [event for event in profile.events() if event.name not in VIEWS]
        sizes = [math.prod(shape) for event in computing for shape in event.input_shapes if shape]
        counted.append(sum(sizes))
    assert 1.7 < counted[1] / counted[0] < 2.4
