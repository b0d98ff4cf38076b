"""Corruption touches real tokens alone, in the published proportions, and draws from its own generator."""

import numpy as np
import pytest
import torch

from recurcli.tokens.batching import collate
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.masking import MaskingScheme, drop_tokens, mask_tokens
from recurcli.tokens.tokenizer import Tokenizer

WORDS = np.arange(4, 104)
MASK_ID = 3
SCHEMES: list[MaskingScheme] = ["random", "bert"]


def sample(batch: int = 200, positions: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one word; the last fifth is padding."""
    ids = torch.full((batch, positions), 4)
    mask = (torch.arange(positions) < positions * 4 // 5).expand(batch, positions)
    return ids.masked_fill(~mask, 0), mask


def corrupted(
    scheme: MaskingScheme, probability: float = 0.3, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    ids, mask = sample()
    inputs, selected = mask_tokens(
        ids,
        mask,
        probability=probability,
        scheme=scheme,
        word_ids=WORDS,
        mask_id=MASK_ID,
        generator=torch.Generator().manual_seed(seed),
    )
    return ids, mask, inputs, selected


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
    inputs, selected = mask_tokens(
        ids,
        mask,
        probability=1.0,
        scheme=scheme,
        word_ids=tokenizer.word_ids,
        mask_id=tokenizer.mask_id,
        generator=torch.Generator().manual_seed(0),
    )
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


def test_token_dropout_replaces_words_alone_and_in_its_proportion() -> None:
    ids, mask = sample()
    ids[:, 0] = 2  # a separator
    inputs = drop_tokens(
        ids, mask, probability=0.4, word_ids=WORDS, mask_id=MASK_ID, generator=torch.Generator().manual_seed(1)
    )
    dropped = inputs != ids
    assert bool((inputs[dropped] == MASK_ID).all())
    assert not bool(dropped[:, 0].any() or dropped[~mask].any())
    assert float(dropped[:, 1:][mask[:, 1:]].float().mean()) == pytest.approx(0.4, abs=0.02)
