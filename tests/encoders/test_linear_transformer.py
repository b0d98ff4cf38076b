"""The linear Transformer is the Transformer with another attention, linear in the length."""

from typing import Any

import pytest
import torch
from equations import built
from torch import Tensor

from recurcli.encoders import Encoder
from recurcli.ops.linear_attention import linear_attention_loop, linear_attention_step

SIZE, HEADS = 16, 4


def encoder_of(**more: Any) -> Encoder:
    return built("linear-transformer", hidden_size=SIZE, num_layers=2, num_heads=HEADS, **more)


def inputs(length: int) -> Tensor:
    return torch.randn(2, length, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def heads(layer: Any, x: Tensor) -> Tensor:
    """Queries, keys and values (3, B, H, T, K)."""
    return layer.query_key_value(x).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)


@pytest.mark.parametrize("causal", [False, True])
def test_a_layer_is_its_definition(causal: bool) -> None:
    layer: Any = encoder_of(causal=causal).layers[0].attention
    x, mask = inputs(70), torch.arange(70) < torch.tensor([70, 33])[:, None]
    query, key, value = heads(layer, x)
    mixed = linear_attention_loop(query, key, value, mask, causal=causal)
    torch.testing.assert_close(layer(x, mask), layer.output(mixed.transpose(1, 2).flatten(-2)))


def test_the_causal_form_runs_step_by_step_with_a_state_of_one_size() -> None:
    layer: Any = encoder_of(causal=True).layers[0].attention
    x = inputs(20)
    state, steps = None, []
    for t in range(20):
        query, key, value = heads(layer, x[:, t : t + 1]).squeeze(-2)
        mixed, state = linear_attention_step(query, key, value, state)
        assert state[0].shape == (2, HEADS, SIZE // HEADS, SIZE // HEADS)
        steps.append(layer.output(mixed.flatten(1)))
    torch.testing.assert_close(torch.stack(steps, dim=1), layer(x, None))
