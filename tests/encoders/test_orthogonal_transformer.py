"""The Orthogonal Transformer is the Transformer with orthogonal weights, before and after training."""

from typing import Any

import pytest
import torch
from equations import batch, built
from torch import Tensor

SIZE = 12
QUERY_KEY_VALUE = "attention.query_key_value.weight"
OUTPUT = "attention.output.weight"
FEED_FORWARD = ("feed_forward.inner.weight", "feed_forward.outer.weight")


def build(name: str = "orthogonal-transformer", **keys: Any) -> Any:
    return built(name, moved=0.3, hidden_size=SIZE, num_layers=2, num_heads=3, **keys)


def error(weights: Tensor) -> float:
    """The largest entry of |Q^T Q - I| of the square blocks that stand one below the other."""
    blocks = weights.view(-1, weights.shape[-1], weights.shape[-1])
    return (blocks.mT @ blocks - torch.eye(weights.shape[-1], dtype=weights.dtype)).abs().max().item()


@pytest.mark.parametrize("kind", ["cayley", "householder"])
@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({}, {QUERY_KEY_VALUE, OUTPUT}),
        ({"orthogonal_weights": "query_key_value"}, {QUERY_KEY_VALUE}),
        ({"feed_forward_size": SIZE}, {QUERY_KEY_VALUE, OUTPUT, *FEED_FORWARD}),
        ({"feed_forward_size": SIZE, "orthogonal_weights": "query_key_value"}, {QUERY_KEY_VALUE}),
    ],
    ids=["square", "query, key, value", "square feed-forward", "query, key, value beside a square feed-forward"],
)
def test_computes_as_a_transformer_with_orthogonal_weights(kind: str, keys: dict[str, Any], names: set[str]) -> None:
    encoder, (x, mask) = build(orthogonal_map=kind, **keys), batch([7, 4, 1], SIZE)
    theirs = build("transformer", **{key: value for key, value in keys.items() if key == "feed_forward_size"})
    state = encoder.state_dict()
    for number, weights in enumerate(encoder.orthogonal_weights()):
        assert weights.keys() == names
        assert all(error(weight) < 1e-12 for weight in weights.values())
        assert all(error(state[f"layers.{number}.{name}"]) > 0.1 for name in weights)
        state.update({f"layers.{number}.{name}": weight.detach() for name, weight in weights.items()})
    theirs.load_state_dict(state)
    torch.testing.assert_close(encoder(x, mask)[mask], theirs(x, mask)[mask], rtol=0, atol=1e-12)
    assert encoder.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.slow
def test_weights_are_orthogonal_after_two_hundred_steps() -> None:
    encoder = build(feed_forward_size=SIZE).float().train()
    before = encoder.layers[0].attention.output.weight.detach().clone()
    x, mask = batch([7, 4, 1], SIZE)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        encoder(x.float(), mask)[mask].sin().sum().backward()
        optimizer.step()
    assert (encoder.layers[0].attention.output.weight - before).abs().max() > 0.3
    for weights in encoder.orthogonal_weights():
        assert len(weights) == 4
        assert all(error(weight) <= 1e-5 for weight in weights.values())
