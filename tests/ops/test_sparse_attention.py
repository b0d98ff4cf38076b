"""Each fast form of sparse attention is its loop, gradients too, and plain attention in its limit."""

from collections.abc import Callable

import pytest
import torch
from equations import check_same
from torch import Tensor

from recurcli.ops.block_sparse import block_sparse_attention, block_sparse_attention_loop, random_blocks
from recurcli.ops.lsh_attention import (
    angular_buckets,
    bucket_counts,
    lsh_attention,
    lsh_attention_loop,
    shared_attention,
)
from recurcli.ops.prob_sparse import (
    prob_sparse_attention,
    prob_sparse_attention_loop,
    query_count,
    query_counts,
    sampled_keys,
)

HEADS, SIZE = 2, 4
SEEDS = torch.tensor([5, 6])
Attention = Callable[..., Tensor]
"""From query, key, value and mask to mixed values."""


def inputs(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value (B, H, T, K) with large numbers at padding, and the mask (B, T)."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, len(lengths), HEADS, max(lengths), SIZE, generator=generator, dtype=torch.float64)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    query, key, value = x.masked_fill(~mask[:, None, :, None], 1e4).unbind()
    return query, key, value, mask


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    scores = query @ key.mT / SIZE**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
    return scores.softmax(dim=-1) @ value


def lsh(function: Callable[..., Tensor], chunk_size: int = 8) -> Attention:
    """`function` with the buckets of its queries, of which there are several."""
    rotations = torch.randn(HEADS, 2, SIZE, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        lengths = torch.full((len(query),), query.shape[2]) if mask is None else mask.sum(dim=1)
        buckets = angular_buckets(query, rotations, bucket_counts(lengths, chunk_size, 16))
        return function(query, key, value, buckets, mask, chunk_size)

    return attend


def blocks(function: Callable[..., Tensor], number: int = 2) -> Attention:
    """`function` with random blocks."""

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        lengths = torch.full((len(query),), query.shape[2]) if mask is None else mask.sum(dim=1)
        chosen = random_blocks(lengths, SEEDS, -(-query.shape[2] // 4), number, 4)
        return function(query, key, value, mask, chosen, 4)

    return attend


def informed(function: Callable[..., Tensor], factor: int = 2) -> Attention:
    return lambda query, key, value, mask: function(query, key, value, mask, SEEDS, factor)


FORMS: dict[str, tuple[Attention, Attention]] = {
    "reformer": (lsh(lsh_attention), lsh(lsh_attention_loop)),
    "bigbird": (blocks(block_sparse_attention), blocks(block_sparse_attention_loop)),
    "informer": (informed(prob_sparse_attention), informed(prob_sparse_attention_loop)),
}
FORM = pytest.mark.parametrize("name", FORMS)


@FORM
@pytest.mark.parametrize("masked", [True, False])
def test_is_its_definition_and_so_are_the_gradients(name: str, masked: bool) -> None:
    *parts, mask = inputs([45, 30, 9, 1] if masked else [45])
    leaves = [part.requires_grad_() for part in parts]
    real = mask[:, None, :, None].expand(parts[0].shape)
    fast, loop = (form(*leaves, mask if masked else None)[real] for form in FORMS[name])
    check_same(fast, loop, leaves, 1e-9)


@FORM
def test_a_longer_text_is_not_plain_attention(name: str) -> None:
    parts = inputs([45])[:3]
    assert (FORMS[name][0](*parts, None) - attention(*parts, None)).abs().max() > 0.1


def test_one_chunk_as_long_as_the_text_is_shared_attention_without_the_token_itself() -> None:
    query, key, value, mask = inputs([12, 7])
    itself = torch.eye(12, dtype=torch.bool)
    scores = (query @ key.mT / SIZE**0.5).masked_fill(~mask[:, None, None] | itself, -torch.inf)
    by_hand = scores.softmax(dim=-1) @ value
    real = mask[:, None, :, None].expand(value.shape)
    for found in (lsh(lsh_attention, 12)(query, key, value, mask), shared_attention(query, key, value, mask)):
        torch.testing.assert_close(found[real], by_hand[real])


def test_a_lone_token_attends_to_itself() -> None:
    query, key, value, mask = inputs([1, 1])
    for found in (lsh(lsh_attention)(query, key, value, mask), shared_attention(query, key, value, mask)):
        torch.testing.assert_close(found, value)


def test_buckets_are_the_largest_of_both_signs_and_as_many_as_the_length_asks_for() -> None:
    lengths = torch.tensor([0, 1, 31, 32, 63, 64, 127, 128, 2000, 4096, 10**6])
    assert bucket_counts(lengths, 64, 128).tolist() == [1, 1, 1, 1, 1, 2, 2, 4, 32, 128, 128]
    x = torch.randn(2, 1, 50, SIZE, dtype=torch.float64)
    rotations = torch.randn(1, 3, SIZE, 8, dtype=torch.float64)
    found = angular_buckets(x, rotations, torch.tensor([8, 1]))
    turned = x[0, 0] @ rotations[0, :, :, :4]
    assert torch.equal(found[0, 0], torch.cat([turned, -turned], dim=-1).argmax(dim=-1))
    assert (found[1] == 0).all()


@pytest.mark.parametrize(
    "attend",
    [blocks(block_sparse_attention, number=12), informed(prob_sparse_attention, factor=12)],
    ids=["full blocks", "all queries"],
)
def test_without_sparsity_it_is_plain_attention(attend: Attention) -> None:
    query, key, value, mask = inputs([45, 30, 9])
    real = mask[:, None, :, None].expand(value.shape)
    found = attend(query, key, value, mask)
    torch.testing.assert_close(found[real], attention(query, key, value, mask)[real])


def test_random_blocks_are_distinct_far_and_those_of_the_length() -> None:
    found = random_blocks(torch.tensor([160, 61, 3]), SEEDS, 40, 3, 4)
    assert found.shape == (3, HEADS, 40, 3)
    for row, last in enumerate((39, 15)):
        for head in range(HEADS):
            for block in range(1, last):
                chosen = found[row, head, block].tolist()
                assert len(set(chosen)) == 3
                assert all(0 < other < last and abs(other - block) > 1 for other in chosen)
    assert (found[2] == -1).all()
    assert torch.equal(random_blocks(torch.tensor([61]), SEEDS, 16, 3, 4)[0], found[1, :, :16])
    assert not torch.equal(found[0, 0], found[0, 1]), "each head has its own"


def test_queries_are_counted_by_the_logarithm_of_the_real_length() -> None:
    lengths = [0, 1, 2, 85, 86, 128, 1024, 2000]
    assert [query_count(length, 17) for length in lengths] == [0, 1, 2, 85, 85, 85, 119, 136]
    assert query_counts(torch.tensor(lengths), 17).tolist() == [0, 1, 2, 85, 85, 85, 119, 136]


def test_the_sample_is_of_distinct_real_keys() -> None:
    real = torch.arange(50) < torch.tensor([[50], [20]])
    found = sampled_keys(real, SEEDS, 12)
    assert all(len(set(row.tolist())) == 12 for row in found.flatten(0, 1))
    assert (found[1] < 20).all()
    assert torch.equal(sampled_keys(real[1:, :20], SEEDS, 15)[0, :, :12], found[1])
