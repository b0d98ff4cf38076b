"""Corruption touches real tokens alone, in the published proportions, and draws from its own generator."""

from typing import Any

import numpy as np
import pytest
import torch

from recurcli.config import TokenizerConfig
from recurcli.tokens.batching import MaskingScheme, collate, drop_words, mask_tokens
from recurcli.tokens.tokenizer import Tokenizer

WORDS = np.arange(4, 104)
MASK_ID = 3
SCHEMES: list[MaskingScheme] = ["random", "bert"]


def sample(batch: int = 200, positions: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one word; the last fifth is padding."""
    ids = torch.full((batch, positions), 4)
    mask = (torch.arange(positions) < positions * 4 // 5).expand(batch, positions)
    return ids.masked_fill(~mask, 0), mask


def masked(
    ids: torch.Tensor, mask: torch.Tensor, scheme: MaskingScheme, probability: float, seed: int = 0, words: Any = WORDS
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    keys = {"word_ids": words, "mask_id": MASK_ID, "generator": generator}
    return mask_tokens(ids, mask, probability=probability, scheme=scheme, **keys)


def corrupted(
    scheme: MaskingScheme, probability: float = 0.3, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    ids, mask = sample()
    return ids, mask, *masked(ids, mask, scheme, probability, seed)


def dropped(ids: torch.Tensor, mask: torch.Tensor, probability: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return drop_words(ids, mask, probability=probability, word_ids=WORDS, pad_id=0, generator=generator)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_selected_real_positions_change(scheme: MaskingScheme) -> None:
    ids, mask, inputs, selected = corrupted(scheme)
    assert not bool(selected[~mask].any())
    assert torch.equal(inputs[~selected], ids[~selected])
    assert float(selected[mask].float().mean()) == pytest.approx(0.3, abs=0.02)
    assert (inputs.shape, inputs.dtype, selected.dtype) == (ids.shape, ids.dtype, torch.bool)


def test_random_puts_uniform_words_and_never_the_mask_token() -> None:
    _, _, inputs, selected = corrupted("random")
    words = inputs[selected]
    assert set(words.tolist()) == set(WORDS.tolist())
    counts = torch.bincount(words, minlength=104)[4:]
    assert float(counts.float().std() / counts.float().mean()) < 0.2


def test_bert_masks_four_fifths_and_leaves_a_tenth() -> None:
    ids, _, inputs, selected = corrupted("bert")
    found = inputs[selected]
    assert float((found == MASK_ID).float().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((found == ids[selected]).float().mean()) == pytest.approx(0.1, abs=0.02)
    words = set(found.tolist()) - {MASK_ID}
    assert words == set(WORDS.tolist())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_special_tokens_are_never_selected(scheme: MaskingScheme) -> None:
    tokenizer = Tokenizer.train(["a b c"], TokenizerConfig(min_frequency=1))
    tokens = tokenizer.encode([("a b", "c a"), ("x", "b")], 16)
    ids, mask = collate(tokens, np.arange(2), pad_id=tokenizer.pad_id)
    inputs, selected = masked(ids, mask, scheme, 1.0, words=tokenizer.word_ids)
    special = (ids == tokenizer.separator_id) | (ids == tokenizer.unknown_id)
    assert int(special.sum()) == 3, "two separators and an unknown character"
    assert torch.equal(selected, mask & ~special)
    assert torch.equal(inputs[special], ids[special])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("probability", "share"), [(0.0, 0), (1.0, 1)])
def test_the_bounds_of_the_probability_are_none_and_all(scheme: MaskingScheme, probability: float, share: int) -> None:
    ids, mask, inputs, selected = corrupted(scheme, probability)
    assert torch.equal(selected, mask if share else torch.zeros_like(mask))
    assert share or torch.equal(inputs, ids)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_generator_alone_decides(scheme: MaskingScheme) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = corrupted(scheme)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first[2], corrupted(scheme)[2])
    assert not torch.equal(first[2], corrupted(scheme, seed=1)[2])


def test_word_dropout_removes_words_alone_and_keeps_their_order() -> None:
    _, mask = sample()
    ids = torch.arange(4, 104).expand(200, 100).masked_fill(~mask, 0).clone()
    ids[:, 5] = separator = 2
    ids[0, 1:], mask = 0, mask.clone()
    mask[0, 1:] = False  # a row of one word
    left, real = dropped(ids, mask, 0.4)
    assert left.shape == real.shape
    assert 0 <= left.shape[1] - int(real.sum(dim=1).max()) < 8, "few distinct shapes"
    assert left.shape[1] < 80
    assert bool((left[~real] == 0).all())
    assert float(real[1:].sum()) == pytest.approx(199 * (79 * 0.6 + 1), rel=0.02)
    for row, its in zip(left[1:], real[1:], strict=True):
        words = row[its]
        assert int((words == separator).sum()) == 1
        assert bool((words[words != separator].diff() > 0).all())
        assert not bool((its[1:] & ~its[:-1]).any()), "padding stays on the right"
    assert left[0, 0] == 4, "a row keeps a token"


def test_word_dropout_of_almost_everything_leaves_rows_with_tokens() -> None:
    ids, mask = sample()
    ids, mask = ids[:, :5].clone(), mask[:, :5]
    ids[:, 2] = 2  # a separator is no word
    left, real = dropped(ids, mask, 0.99)
    assert bool(((left == 4) & real).any(dim=1).all()), "a row keeps a word"
    assert bool((left == 2).any(dim=1).all())
