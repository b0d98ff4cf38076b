"""Reformer, BigBird and Informer on texts of several chunks, blocks and samples, and where they are the Transformer."""

from typing import Any, cast

import pytest
import torch
from allocations import elements_made
from torch import Tensor

from recurcli.encoders import Encoder, build_encoder
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


def encoder_of(name: str, dtype: torch.dtype = torch.float32, seed: int = 0, **keys: Any) -> Encoder:
    torch.manual_seed(seed)
    config = {"name": name, "hidden_size": SIZE, "num_layers": 2, "num_heads": 2, **SMALL.get(name, {}), **keys}
    encoder = build_encoder(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder


def batch(lengths: list[int], filler: float = 1e4, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(len(lengths), max(lengths), SIZE, generator=generator, dtype=dtype)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return x.masked_fill(~mask[..., None], filler), mask


@NAME
@torch.no_grad()
def test_a_row_of_many_pieces_is_the_same_alone_and_among_others_and_whatever_is_behind_it(name: str) -> None:
    encoder = encoder_of(name)
    x, mask = batch(LENGTHS)
    together = encoder(x, mask)
    assert torch.isfinite(together).all()
    for row, length in enumerate(LENGTHS[:-1]):
        alone = encoder(x[row : row + 1, :length])
        torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-5, rtol=0)
    other = encoder(
        torch.nn.functional.pad(batch(LENGTHS, -50.0)[0], (0, 0, 0, 30)), torch.nn.functional.pad(mask, (0, 30))
    )
    torch.testing.assert_close(other[:, :61][mask], together[mask], atol=1e-5, rtol=0)


@NAME
def test_gradients_of_many_pieces_are_those_of_the_rows_alone(name: str) -> None:
    encoder = encoder_of(name, torch.float64)
    x, mask = batch(LENGTHS, dtype=torch.float64)
    slopes = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x.requires_grad_()
    together = torch.autograd.grad((encoder(x, mask) * slopes)[mask].sum(), [x, *encoder.parameters()])
    alone = [
        (encoder(x[row : row + 1, :length]) * slopes[row : row + 1, :length]).sum()
        for row, length in enumerate(LENGTHS[:-1])
    ]
    apart = torch.autograd.grad(torch.stack(alone).sum(), [x, *encoder.parameters()])
    for one, other in zip(together, apart, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-7)
    assert (together[0][~mask] == 0).all()


@NAME
@torch.no_grad()
def test_the_seed_decides_the_plan_and_the_state_dict_carries_it(name: str) -> None:
    x, mask = batch(LENGTHS)
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
    encoder = encoder_of(name, torch.float64)
    transformer = encoder_of("transformer", torch.float64, norm="pre")
    transformer.load_state_dict({key: value for key, value in encoder.state_dict().items() if "seeds" not in key})
    x, mask = batch([length, 5], dtype=torch.float64)
    torch.testing.assert_close(encoder(x, mask)[mask], transformer(x, mask)[mask])
    x, mask = batch([length + 1, length], dtype=torch.float64)
    found, expected = encoder(x, mask), transformer(x, mask)
    torch.testing.assert_close(found[1, :length], expected[1, :length])
    assert name == "informer" or torch.equal(found[0].isclose(expected[0]).all(), torch.tensor(False))


@NAME
def test_a_text_twice_as_long_makes_at_most_two_point_two_times_the_elements(name: str) -> None:
    encoder = encoder_of(name, chunk_size=8) if name == "reformer" else encoder_of(name)

    def elements(length: int) -> int:
        generator = torch.Generator().manual_seed(1)
        return elements_made(lambda size: encoder(torch.randn(1, size, SIZE, generator=generator)), length)

    assert elements(2048) < 2.2 * elements(1024)


def test_the_reformer_has_a_matrix_less_a_layer_than_the_transformer() -> None:
    counts = [sum(p.numel() for p in encoder_of(name, norm="pre").parameters()) for name in ("transformer", "reformer")]
    assert counts[0] - counts[1] == 2 * (SIZE**2 + SIZE)


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 17])
def test_the_informer_asks_all_queries_of_a_text_only_if_it_does_so_of_every_shorter_one(factor: int) -> None:
    config = InformerConfig(hidden_size=8, num_layers=1, num_heads=1, sampling_factor=factor)
    below = ProbSparseAttention(config).min_effective_length
    assert all(query_count(length, factor) == length for length in range(below))
    assert query_count(below, factor) < below


@NAME
@torch.no_grad()
def test_the_weights_of_a_diagnosis_are_those_of_the_definition(name: str) -> None:
    encoder = encoder_of(name, torch.float64)
    x, mask = batch([61, 35, 9], dtype=torch.float64)
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
