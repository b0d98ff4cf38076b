"""Batches hold every row once, in an order that (seed, epoch) decides, with little padding."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from recurcli.tokens.batching import bucketed, collate, sorted_batches
from recurcli.tokens.tokenizer import Tokens

lengths_of_rows = st.lists(st.integers(0, 60), max_size=80).map(lambda values: np.array(values, dtype=np.int64))


@given(lengths=lengths_of_rows, size=st.integers(1, 9), seed=st.integers(0, 2**40), epoch=st.integers(0, 9))
def test_every_row_is_in_one_batch(lengths: np.ndarray, size: int, seed: int, epoch: int) -> None:
    for batches in (bucketed(lengths, size, seed=seed, epoch=epoch, pool=3), sorted_batches(lengths, size)):
        assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
        assert all(0 < len(batch) <= size for batch in batches)
        assert len(batches) == -(-len(lengths) // size)


def test_seed_and_epoch_alone_decide_the_batches() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 500)

    def batches(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in bucketed(lengths, 8, seed=seed, epoch=epoch)]

    assert batches(1, 2) == batches(1, 2)
    assert len({str(batches(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_rows_of_similar_length_share_a_batch() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 20_000)

    def padded(batches: list[np.ndarray]) -> int:
        return int(sum(len(batch) * lengths[batch].max() for batch in batches))

    assert lengths.sum() / padded(bucketed(lengths, 64, seed=0, epoch=0)) > 0.9
    assert lengths.sum() / padded(sorted_batches(lengths, 64)) > 0.98


def test_batches_do_not_come_sorted_by_length() -> None:
    lengths = np.arange(1000)
    first = [int(lengths[batch].min()) for batch in bucketed(lengths, 10, seed=0, epoch=0)]
    assert first != sorted(first)


def test_inference_starts_with_the_longest_rows() -> None:
    assert [batch.tolist() for batch in sorted_batches(np.array([1, 3, 3, 2]), 2)] == [[1, 2], [3, 0]]


ROWS = Tokens(np.array([5, 6, 7, 8, 9], dtype=np.int32), np.array([0, 2, 2, 5]))


def test_rows_are_padded_on_the_right_to_a_multiple() -> None:
    ids, mask = collate(ROWS, np.array([2, 0, 1]), pad_id=99, multiple=4)
    assert ids.tolist() == [[7, 8, 9, 99], [5, 6, 99, 99], [99] * 4]
    assert mask.tolist() == [[True, True, True, False], [True, True, False, False], [False] * 4]
    assert (ids.dtype, mask.dtype) == (torch.int64, torch.bool)
    assert collate(ROWS, np.array([1]), pad_id=0)[0].shape == (1, 4), "there is always a position"


@given(lengths=lengths_of_rows.filter(len), multiple=st.integers(1, 16))
def test_the_mask_shows_where_each_row_is(lengths: np.ndarray, multiple: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = Tokens(np.arange(1, offsets[-1] + 1, dtype=np.int32), offsets)
    ids, mask = collate(tokens, np.arange(len(lengths)), pad_id=0, multiple=multiple)
    assert ids.shape[1] % multiple == 0
    assert ids.shape[1] < max(1, lengths.max()) + multiple
    for index in range(len(lengths)):
        assert ids[index][mask[index]].tolist() == tokens.take(np.array([index])).ids.tolist()
    assert bool((ids[~mask] == 0).all())
