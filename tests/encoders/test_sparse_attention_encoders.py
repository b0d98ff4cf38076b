"""Reformer, BigBird and Informer on texts of several chunks, blocks and samples, and where they are the Transformer."""

from typing import Any, cast

import pytest
import torch
from equations import batch, built

from recurcli.encoders import Encoder
from recurcli.encoders.config import InformerConfig
from recurcli.encoders.efficient.bigbird import BlockSparseAttention
from recurcli.encoders.efficient.informer import ProbSparseAttention
from recurcli.encoders.efficient.reformer import LSHAttention
from recurcli.layers import SelfAttention
from recurcli.ops.block_sparse import block_sparse_attention_loop
from recurcli.ops.lsh_attention import lsh_attention_loop
from recurcli.ops.prob_sparse import prob_sparse_attention_loop, query_count

SIZE = 16
SMALL: dict[str, dict[str, Any]] = {
    "reformer": {"chunk_size": 8, "max_buckets": 16},
    "bigbird": {"block_size": 4, "num_random_blocks": 1},  # full attention below 28 tokens
    "informer": {"sampling_factor": 4},  # and below 13
}
NAME = pytest.mark.parametrize("name", SMALL)
LENGTHS = [61, 35, 27, 9, 1, 0]


def encoder_of(name: str, seed: int = 0, **keys: Any) -> Encoder:
    keys = {"hidden_size": SIZE, "num_layers": 2, "num_heads": 2, **SMALL.get(name, {}), **keys}
    return built(name, moved=0.1, seed=seed, **keys)


@NAME
@torch.no_grad()
def test_the_seed_decides_the_plan_and_the_state_dict_carries_it(name: str) -> None:
    x, mask = batch([61, 35, 9], SIZE)
    first, other = encoder_of(name), encoder_of(name, seed=7)
    parameters = dict(first.named_parameters())
    other.load_state_dict(other.state_dict() | parameters)
    assert torch.equal(first(x, mask), encoder_of(name)(x, mask))
    assert (first(x, mask) - other(x, mask))[0].abs().max() > 1e-3, "the same weights, another plan"
    other.load_state_dict(first.state_dict())
    assert torch.equal(first(x, mask), other(x, mask))
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(first.train()(x, mask))
    assert torch.equal(*draws), "in training too"


@pytest.mark.parametrize(("name", "length"), [("bigbird", 27), ("informer", 12)])
def test_a_short_text_has_the_states_of_the_transformer(name: str, length: int) -> None:
    encoder = encoder_of(name)
    transformer = encoder_of("transformer", norm="pre")
    transformer.load_state_dict({key: value for key, value in encoder.state_dict().items() if "seeds" not in key})
    x, mask = batch([length, 5], SIZE)
    torch.testing.assert_close(encoder(x, mask)[mask], transformer(x, mask)[mask])
    x, mask = batch([length + 1, length], SIZE)
    found, expected = encoder(x, mask), transformer(x, mask)
    torch.testing.assert_close(found[1, :length], expected[1, :length])
    assert name == "informer" or torch.equal(found[0].isclose(expected[0]).all(), torch.tensor(False))


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 17])
def test_the_informer_asks_all_queries_of_a_text_only_if_it_does_so_of_every_shorter_one(factor: int) -> None:
    config = InformerConfig(hidden_size=8, num_layers=1, num_heads=1, sampling_factor=factor)
    below = ProbSparseAttention(config).min_effective_length
    assert all(query_count(length, factor) == length for length in range(below))
    assert query_count(below, factor) < below


@NAME
@torch.no_grad()
def test_the_weights_of_a_diagnosis_are_those_of_the_definition(name: str) -> None:
    encoder = encoder_of(name)
    x, mask = batch([61, 35, 9], SIZE)
    attention = cast(SelfAttention, encoder.layers[0].attention)
    weights = attention.stats(x, mask)["attention"]
    query, key, _ = attention.project(x)
    units = torch.eye(61, dtype=torch.float64).expand(3, query.shape[1], -1, -1)
    if isinstance(attention, LSHAttention):
        slow = lsh_attention_loop(query, key, units, attention.buckets(query, mask), mask, attention.chunk_size)
    elif isinstance(attention, BlockSparseAttention):
        slow = block_sparse_attention_loop(query, key, units, mask, attention.plan(query, mask), attention.block_size)
    else:
        assert isinstance(attention, ProbSparseAttention)
        slow = prob_sparse_attention_loop(query, key, units, mask, attention.seeds, attention.factor)
    for row in (0, 1):  # the last is too short for pieces
        torch.testing.assert_close(weights[row][:, mask[row]], slow[row][:, mask[row]], atol=1e-10, rtol=0)
    real = mask[:, None].expand(weights.shape[:3])
    torch.testing.assert_close(weights.sum(dim=-1)[real], torch.ones_like(weights[..., 0][real]))
    assert (weights.masked_select(~mask[:, None, None, :] & real[..., None]) == 0).all()
