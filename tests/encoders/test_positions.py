"""Rotary positions of the Transformer, and none."""

import math

import pytest
import torch
from equations import batch, built

from recurcli.encoders import build_encoder
from recurcli.encoders.transformer import rotated
from recurcli.errors import UsageError


def test_rotary_positions_turn_pairs_by_complex_numbers() -> None:
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    turned = torch.complex(x[..., :4], x[..., 4:])
    for position in range(7):
        for pair in range(4):
            angle = position * 10_000 ** (-2 * pair / 8)
            turned[:, :, position, pair] *= complex(math.cos(angle), math.sin(angle))
    torch.testing.assert_close(rotated(x), [torch.cat([turned.real, turned.imag], dim=-1)], atol=1e-12, rtol=0)


def test_scores_of_rotated_queries_and_keys_depend_on_their_distance_alone() -> None:
    query, key = rotated(*(torch.randn(8).expand(1, 1, 40, 8) for _ in range(2)))
    scores = query @ key.mT
    for lag in (-7, 0, 12):
        diagonal = scores[0, 0].diagonal(lag)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "none"])
@pytest.mark.parametrize("name", ["transformer", "orthogonal-transformer"])
def test_only_a_transformer_without_positions_takes_a_text_for_a_bag_of_tokens(name: str, position: str) -> None:
    encoder = built(name, moved=0.1, hidden_size=16, num_heads=2, num_layers=2, position=position)
    x, _ = batch([9], 16)
    order = torch.tensor([3, 1, 0, 2, 8, 7, 6, 5, 4])
    same = torch.allclose(encoder(x)[:, order], encoder(x[:, order]), atol=1e-9)
    assert same == (position == "none")
    assert encoder.adds_positions == (position == "sinusoidal")


def test_rotary_positions_need_an_even_head_size() -> None:
    for own in (None, 5):
        with pytest.raises(UsageError, match="rotary with an odd head size, 5; change num_heads or head_size"):
            build_encoder(
                {"name": "transformer", "hidden_size": 10, "num_heads": 2, "head_size": own, "position": "rotary"}
            )
