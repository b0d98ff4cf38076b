"""The Block-Recurrent Transformer is its equations, a token and a state vector at a time."""

import math
from typing import Any, cast

import pytest
import torch
from equations import batch, built, check_same
from torch import Tensor

from recurcli.encoders import build_encoder
from recurcli.encoders.block_recurrent import BlockRecurrentTransformer, RecurrentAttention, RecurrentState, StateGate
from recurcli.layers import sinusoids

SIZE, WINDOW, HEADS = 8, 4, 2
LENGTHS = [9, 4, 3]
KEYS = pytest.mark.parametrize(
    "keys",
    [{}, {"norm": "post"}, {"causal": True}, {"gate": "lstm", "state_feed_forward": True}, {"recurrent_layer": 1}],
)


def encoder_of(**keys: Any) -> BlockRecurrentTransformer:
    own = {"hidden_size": SIZE, "num_layers": 3, "num_heads": HEADS, "window": WINDOW, "num_states": 3, **keys}
    return built("block-recurrent-transformer", moved=0.2, **own)


def heads_of(x: Tensor) -> list[Tensor]:
    return list(x.split(SIZE // HEADS, dim=-1))  # type: ignore[no-untyped-call]


def mixed(scores: list[Tensor], values: list[Tensor]) -> Tensor:
    weights = torch.stack(scores).softmax(dim=0)
    return torch.stack([weight * value for weight, value in zip(weights, values, strict=True)]).sum(dim=0)


def gated(gate: StateGate, state: Tensor, attended: Tensor) -> Tensor:
    made = gate.candidate(attended)
    if gate.keep is not None:
        kept = torch.sigmoid(gate.keep)
        return kept * state + (1 - kept) * made
    candidate, enter, forget = made.split(SIZE)
    return torch.sigmoid(forget + 1) * state + torch.sigmoid(enter - 1) * torch.tanh(candidate)


def next_state(recurrent: RecurrentState, state: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """c_{n+1} (S, D) of c_n, and the keys and values (H K,) of the tokens of a block and before it."""
    own = [recurrent.project(recurrent.norm(vector) + name) for vector, name in zip(state, recurrent.ids, strict=True)]
    rows = []
    for number, vector in enumerate(state):
        to_states, to_tokens = [], []
        for head in range(HEADS):
            parts = [[heads_of(part)[head] for part in each.split(SIZE)] for each in own]
            own_query, query, *_ = parts[number]
            scale = len(query) ** 0.5
            to_states.append(mixed([own_query @ part[2] / scale for part in parts], [part[3] for part in parts]))
            own_keys, own_values = ([heads_of(each)[head] for each in part] for part in (keys, values))
            to_tokens.append(mixed([query @ key / scale for key in own_keys], own_values))
        updated = gated(recurrent.gate, vector, torch.cat([*to_states, *to_tokens]))
        if recurrent.inner is not None:
            updated = gated(recurrent.inner_gate, updated, recurrent.inner(updated))
        rows.append(updated)
    return torch.stack(rows)


def attention_by_equations(attention: Any, h: Tensor, causal: bool) -> Tensor:
    """What the attention of a layer adds to the tokens h (T, D)."""
    query, key, value = attention.query_key_value(h).split(SIZE, dim=-1)
    _, old_key, old_value = attention.query_key_value(h.detach()).split(SIZE, dim=-1)
    recurrent = attention.state if isinstance(attention, RecurrentAttention) else None
    state: Tensor | None = None if recurrent is None else recurrent.initial
    rows = []
    for start in range(0, len(h), WINDOW):
        stop, first = min(start + WINDOW, len(h)), max(0, start - WINDOW)
        keys = [old_key[j] if j < start else key[j] for j in range(first, stop)]
        values = [old_value[j] if j < start else value[j] for j in range(first, stop)]
        for i in range(start, stop):
            parts = []
            for head in range(HEADS):
                scores, seen = [], []
                u, v = (heads_of(bias)[head] for bias in (attention.u, attention.v))
                own = heads_of(query[i])[head]
                for j in range(first, stop):
                    if i - j > WINDOW or (causal and j > i):
                        continue
                    lag = torch.tensor([float(i - j)], dtype=h.dtype)
                    r = heads_of(attention.position(sinusoids(lag, SIZE))[0])[head]
                    k = heads_of(keys[j - first])[head]
                    scores.append((own @ k + own @ r + u @ k + v @ r) / len(k) ** 0.5)
                    seen.append(heads_of(values[j - first])[head])
                parts.append(mixed(scores, seen))
            if recurrent is not None and state is not None:
                own_states = [
                    recurrent.project(recurrent.norm(vector) + name).split(SIZE)
                    for vector, name in zip(state, recurrent.ids, strict=True)
                ]
                for head in range(HEADS):
                    asked = heads_of(attention.state_query(h[i]))[head]
                    scores = [asked @ heads_of(each[2])[head] / len(asked) ** 0.5 for each in own_states]
                    parts.append(mixed(scores, [heads_of(each[3])[head] for each in own_states]))
            rows.append(attention.output(torch.cat(parts)))
        if recurrent is not None and state is not None:
            state = next_state(recurrent, state, keys, values)
    return torch.stack(rows)


def by_the_equations(encoder: BlockRecurrentTransformer, h: Tensor, keys: dict[str, Any]) -> Tensor:
    """One text (T, D) without padding."""
    pre, causal = keys.get("norm", "pre") == "pre", keys.get("causal", False)
    for layer in cast(Any, encoder.layers):
        if pre:
            h = h + attention_by_equations(layer.attention, layer.attention_norm(h), causal)
            h = h + layer.feed_forward(layer.feed_forward_norm(h))
        else:
            h = layer.attention_norm(h + attention_by_equations(layer.attention, h, causal))
            h = layer.feed_forward_norm(h + layer.feed_forward(h))
    return encoder.final_norm(h)


@KEYS
def test_it_is_its_equations_with_their_gradients(keys: dict[str, Any]) -> None:
    encoder, (x, mask) = encoder_of(**keys), batch(LENGTHS, SIZE)
    x.requires_grad_()
    fast = encoder(x, mask)[mask]
    slow = torch.cat([by_the_equations(encoder, x[row, :length], keys) for row, length in enumerate(LENGTHS)])
    check_same(fast, slow, [x, *encoder.parameters()], 1e-11)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, mask)[mask], slow, atol=1e-11, rtol=0)


def test_gates_begin_open_as_documented() -> None:
    fresh: dict[str, Any] = {"name": "block-recurrent-transformer", "hidden_size": SIZE, "num_heads": HEADS}
    encoder = cast(Any, build_encoder(fresh)).eval()
    (attention,) = (
        cast(Any, layer.attention) for layer in encoder.layers if isinstance(layer.attention, RecurrentAttention)
    )
    assert attention.state.gate.keep.tolist() == [1.0] * SIZE
    x = torch.randn(2, 5, SIZE)
    assert attention.stats(x, None)["kept"] == pytest.approx(1 / (1 + math.exp(-1)))


def test_the_layer_of_the_state() -> None:
    for layers, place in ((12, 9), (4, 2), (1, 0)):
        encoder = build_encoder({"name": "block-recurrent-transformer", "hidden_size": 64, "num_layers": layers})
        states = [isinstance(cast(Any, layer).attention, RecurrentAttention) for layer in encoder.layers]
        assert states == [number == place for number in range(layers)]
    sizes = [sum(p.numel() for p in layer.parameters() if p.ndim == 2) for layer in encoder_of(num_layers=2).layers]
    assert sizes[0] - sizes[1] == 8 * SIZE**2 + 2 * 3 * SIZE
