"""The Temporal Latent Bottleneck is its equations, a token at a time; the slow stream is all that a chunk knows of others."""

from typing import Any, cast

import pytest
import torch
from equations import batch, built, check_same
from torch import Tensor

from recurcli.encoders import build_encoder
from recurcli.encoders.encoder import CarriedState
from recurcli.encoders.latent_bottleneck import CrossAttention, FastLayer, TemporalLatentBottleneck
from recurcli.layers import sinusoidal_positions

SIZE, CHUNK = 8, 4
LENGTHS = [9, 4, 3]
KEYS = pytest.mark.parametrize(
    "keys", [{}, {"norm": "post"}, {"causal": True}, {"rsa": True}, {"rsa": True, "causal": True, "norm": "post"}]
)


def encoder_of(**keys: Any) -> TemporalLatentBottleneck:
    own = {"hidden_size": SIZE, "num_layers": 2, "num_heads": 2, "chunk_size": CHUNK, "num_states": 3, **keys}
    return built("temporal-latent-bottleneck", moved=0.2, **own)


def attended(query: Tensor, keys: list[Tensor], values: list[Tensor], gate: list[Tensor] | None = None) -> Tensor:
    """Softmax attention of one head, one query (K,); `gate`: σ(mu) and the row of P."""
    scores = torch.stack([query @ key / len(query) ** 0.5 for key in keys])
    weights = scores.exp() / scores.exp().sum()
    if gate is not None:
        weights = (1 - gate[0]) * weights + gate[0] * gate[1]
    mixed = [weight * value for weight, value in zip(weights, values, strict=True)]
    return torch.stack(mixed).sum(dim=0)


def cross(attention: CrossAttention, x: Tensor, source: Tensor) -> Tensor:
    rows = []
    for token in x:
        heads = []
        for head in range(2):
            here = slice(head * SIZE // 2, (head + 1) * SIZE // 2)
            keys = [(attention.key_value(state)[:SIZE])[here] for state in source]
            values = [(attention.key_value(state)[SIZE:])[here] for state in source]
            heads.append(attended(attention.query(token)[here], keys, values))
        rows.append(attention.output(torch.cat(heads)))
    return torch.stack(rows)


def itself(attention: Any, x: Tensor, causal: bool) -> Tensor:
    matrices = attention.matrices(len(x)) if hasattr(attention, "mu") else None
    rows = []
    for place in range(len(x)):
        seen = range(place + 1 if causal else len(x))
        heads = []
        for head in range(2):
            here = slice(head * SIZE // 2, (head + 1) * SIZE // 2)
            query, keys, values = (
                [attention.query_key_value(each)[part * SIZE : (part + 1) * SIZE][here] for each in x]
                for part in range(3)
            )
            has_matrix = matrices is not None and head < len(attention.heads)
            gate = [torch.sigmoid(attention.mu), matrices[head, place, list(seen)]] if has_matrix else None  # type: ignore[index]
            heads.append(attended(query[place], [keys[i] for i in seen], [values[i] for i in seen], gate))
        rows.append(attention.output(torch.cat(heads)))
    return torch.stack(rows)


def by_the_equations(encoder: TemporalLatentBottleneck, x: Tensor, keys: dict[str, Any]) -> Tensor:
    """One text (T, D) without padding."""
    pre, slow, chunks = keys.get("norm", "pre") == "pre", encoder.bottleneck, []
    states: Tensor = slow.initial
    for start in range(0, len(x), CHUNK):
        h = x[start : start + CHUNK]
        h = h + sinusoidal_positions(h)
        for layer in cast(list[FastLayer], list(encoder.layers)):
            parts: list[tuple[Any, Any]] = [
                (layer.attention_norm, lambda h, layer=layer: itself(layer.attention, h, keys.get("causal", False))),
                (layer.state_norm, lambda h, layer=layer, states=states: cross(layer.state_attention, h, states)),
                (layer.feed_forward_norm, layer.feed_forward),
            ]
            for norm, sublayer in parts:
                h = h + sublayer(norm(h)) if pre else norm(h + sublayer(h))
        h = encoder.final_norm(h)
        chunks.append(h)
        states = slow.norm(states + cross(slow.attention, states + slow.initial, h))
        states = slow.feed_forward_norm(states + slow.feed_forward(states))
    return torch.cat(chunks)


@KEYS
def test_it_is_its_equations_with_their_gradients(keys: dict[str, Any]) -> None:
    encoder, (x, mask) = encoder_of(**keys), batch(LENGTHS, SIZE)
    x.requires_grad_()
    fast = encoder(x, mask)[mask]
    slow = torch.cat([by_the_equations(encoder, x[row, :length], keys) for row, length in enumerate(LENGTHS)])
    check_same(fast, slow, [x, *encoder.parameters()], 1e-11)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, mask)[mask], slow, atol=1e-11, rtol=0)


@pytest.mark.parametrize("norm", ["pre", pytest.param("post", marks=pytest.mark.slow)])
def test_the_slow_stream_neither_grows_with_the_text_nor_forgets_what_it_read(norm: str) -> None:
    torch.manual_seed(3)
    keys: dict[str, Any] = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "chunk_size": CHUNK, "norm": norm}
    encoder = build_encoder({"name": "temporal-latent-bottleneck", "causal": True, **keys}).eval()
    state: CarriedState = {}
    norms: list[float] = []
    for _ in range(30):
        x = torch.randn(2, 10 * CHUNK, 32)
        with torch.no_grad():
            _, state = encoder.carry(x, state or None)
        norms.append(state["states"].norm(dim=-1).mean().item())
    assert norms[-1] == pytest.approx(norms[0], rel=0.01)
    one, other = state["states"] / norms[-1]
    assert (one - other).norm(dim=-1).mean() > 0.05, "of two texts"
    assert torch.cdist(one, one).sum() / (16 * 15) > 0.01, "of the vectors of one text"


def test_numbers_of_parameters() -> None:
    size = 64
    encoder = build_encoder(
        {"name": "temporal-latent-bottleneck", "hidden_size": size, "num_layers": 3, "num_states": 5}
    )
    matrices = sum(p.numel() for p in encoder.parameters() if p.ndim == 2) - 5 * size
    assert matrices == 3 * 16 * size**2 + 12 * size**2
