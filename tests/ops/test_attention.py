"""Directional attention is its loop."""

import pytest
import torch
from equations import check_same
from torch import Tensor

from recurcli.ops.attention import (
    attention_weights,
    directional_attention,
    directional_attention_,
    directional_attention_loop,
)

LENGTHS = [5, 3, 1]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def random(requires_grad: bool = False) -> list[Tensor]:
    """Query, key, past and future, (3, 5, 6) each."""
    generator = torch.Generator().manual_seed(4)
    return [
        torch.randn(3, 5, 6, dtype=torch.float64, generator=generator).requires_grad_(requires_grad) for _ in range(4)
    ]


@pytest.mark.parametrize("masked", [True, False])
def test_directional_attention_is_its_loop_and_so_are_its_gradients(masked: bool) -> None:
    query, key, past, future = operands = random(requires_grad=True)
    mask = MASK if masked else None
    results = [form(query, key, past, future, mask) for form in (directional_attention, directional_attention_loop)]
    check_same(results[0], results[1], operands)


def test_directional_attention_is_one_softmax_over_a_doubled_key_set() -> None:
    query, key, past, future = random()
    before = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    doubled = torch.nn.functional.scaled_dot_product_attention(
        query, torch.cat([key, key], dim=1), torch.cat([past, future], dim=1), torch.cat([before, ~before], dim=1)
    )
    torch.testing.assert_close(directional_attention(query, key, past, future), doubled, atol=1e-12, rtol=0)


def test_attention_adds_itself_to_what_it_is_given() -> None:
    query, key, past, future = random()
    for before in (past, future):
        expected = key + directional_attention(query, key, before, future)
        result = directional_attention_(key.clone(), query, key, before, future)
        torch.testing.assert_close(result, expected, atol=1e-12, rtol=0)


def test_attention_weights_sum_to_one_over_the_real_positions() -> None:
    query, key, *_ = random()
    weights = attention_weights(query, 30 * key, MASK)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 5, dtype=torch.float64))
    assert (weights.masked_select(~MASK[:, None, :]) == 0).all()
