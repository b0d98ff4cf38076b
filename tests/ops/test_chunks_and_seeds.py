"""Pieces of a text, and numbers from seeds and indices."""

import torch

from recurcli.ops.chunks import joined, split, split_rows
from recurcli.ops.seeded import PRIME, draw_seeds, hash_indices


def test_pieces_are_the_text_with_zeros_behind_it() -> None:
    x = torch.randn(2, 7, 3)
    pieces = split(x, 4)
    assert pieces.shape == (2, 2, 4, 3)
    assert torch.equal(pieces[:, 1, :3], x[:, 4:])
    assert (pieces[:, 1, 3] == 0).all()
    assert torch.equal(joined(pieces, 7), x)
    assert split_rows(torch.ones(1, 8, dtype=torch.bool), 4).tolist() == [[[True] * 4] * 2]


def test_scrambled_numbers_are_distinct_spread_and_differ_by_seed_and_index() -> None:
    index = torch.arange(4096)
    numbers = hash_indices(torch.tensor([[3], [4]]), index)
    assert numbers.shape == (2, 4096)
    assert all(len(row.unique()) == 4096 for row in numbers)
    assert ((numbers >= 0) & (numbers < PRIME)).all()
    tenths = torch.bincount(numbers.flatten() * 10 // PRIME, minlength=10)
    assert (tenths - 819).abs().max() < 5 * 27, "819 in each, with a standard deviation of 27"
    ranks = numbers.double().argsort(dim=1).argsort(dim=1).double()
    assert torch.corrcoef(torch.cat([ranks, index.double()[None]])).triu(1).abs().max() < 0.06
    assert not torch.equal(
        hash_indices(torch.tensor(3), index, index[:1]), hash_indices(torch.tensor(3), index, index[1:2])
    )


def test_seeds_come_from_torchs_generator() -> None:
    torch.manual_seed(1)
    first = draw_seeds(4)
    assert not torch.equal(first, draw_seeds(4))
    torch.manual_seed(1)
    assert torch.equal(first, draw_seeds(4))
