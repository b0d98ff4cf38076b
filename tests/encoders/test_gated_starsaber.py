"""Gated StarSaber reduces to what it generalises, and is what its equations say."""

from typing import cast

import pytest
import torch
from equations import built, check_same
from torch import Tensor

from recurcli.encoders.config import Gate
from recurcli.encoders.gated_starsaber import GATES, GatedStarSaber, GatedStarSaberLayer
from recurcli.ops.attention import directional_attention_loop

KINDS = pytest.mark.parametrize("kind", GATES)
SIZE = 6


def encoder_of(kind: Gate, layers: int = 1) -> GatedStarSaber:
    return built("gated-starsaber", hidden_size=SIZE, num_layers=layers, gate=kind)


def inputs(count: int = 2, length: int = 5) -> Tensor:
    return torch.randn(count, length, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def slow_layer(layer: GatedStarSaberLayer, h: Tensor, s: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The module's equations, a matrix and a position at a time."""
    past, future, direct = (w.chunk(len(w) // SIZE) for w in (layer.past, layer.future, layer.input))

    def attended(number: int) -> Tensor:
        return directional_attention_loop(h, h @ layer.relation.T, h @ past[number].T, h @ future[number].T, mask)

    content, own = attended(0), x @ direct[0].T
    if layer.kind == "gru_light":
        assert layer.gate is not None
        raw = [h @ weight.T for weight in layer.gate.chunk(2)]
    else:
        raw = [attended(number) for number in range(1, len(past))]
    gates = [torch.sigmoid(value + x @ weight.T) for value, weight in zip(raw, direct[1:], strict=True)]
    if layer.kind == "lstm":
        s = gates[0] * s + gates[1] * torch.tanh(content + own)
        return gates[2] * torch.tanh(s), s
    update, reset = gates
    return (1 - update) * h + update * torch.tanh(reset * content + own), s


@KINDS
def test_a_layer_is_its_equations_and_so_are_its_gradients(kind: Gate) -> None:
    encoder = encoder_of(kind, layers=2)
    x = inputs().requires_grad_()
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    fast = encoder(x, mask)
    h = s = x * mask[..., None]
    for layer in encoder.layers:
        h, s = slow_layer(cast(GatedStarSaberLayer, layer), h, s, x * mask[..., None], mask)
    check_same(fast[mask], h[mask], [x, *encoder.parameters()])
