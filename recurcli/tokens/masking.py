"""Masks tokens for masked-language-model pre-training, and drops words in fine-tuning, with new draws for each batch.

Shapes: B batch, T positions.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MaskingScheme = Literal["random", "bert"]


def mask_tokens(
    ids: Tensor,
    mask: Tensor,
    *,
    probability: float,
    scheme: MaskingScheme,
    word_ids: NDArray[np.int64],
    mask_id: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return inputs (B, T) with some tokens of `ids` (B, T) replaced, and the selected positions (B, T) bool.

    Each real position (`mask` True) that holds one of `word_ids` is selected independently with `probability`. Special
    tokens ([SEP], [UNK]) are never selected, in either scheme (ours; neither paper names [SEP]).
    random  a selected token becomes one drawn uniformly from `word_ids` (Xu et al., StarSaber, section 4: no [MASK])
    bert    80 % become `mask_id`, 10 % such a token, 10 % stay (Devlin et al. 2019, section 3.1)

    All draws are from `generator`, on its device; their number depends on the shape of `ids` alone.
    """
    device = generator.device
    selected = mask & _is_word(ids, word_ids) & (_uniform(ids, generator) < probability)
    drawn = torch.randint(len(word_ids), ids.shape, generator=generator, device=device).to(ids.device)
    words = torch.as_tensor(word_ids, dtype=ids.dtype, device=ids.device)
    words = words[drawn]
    if scheme == "random":
        return torch.where(selected, words, ids), selected
    fate = torch.rand(ids.shape, generator=generator, device=device).to(ids.device)
    replaced = torch.where(fate < 0.8, torch.full_like(ids, mask_id), torch.where(fate < 0.9, words, ids))
    return torch.where(selected, replaced, ids), selected


def drop_words(
    ids: Tensor,
    mask: Tensor,
    *,
    probability: float,
    word_ids: NDArray[np.int64],
    pad_id: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return ids and mask (B, T') without the tokens that word dropout removed; the rest of a row moves up, so T' <= T.

    Each token of `word_ids` is removed with `probability` (Iyyer et al., 2015, section 3.1, remove words; tokens are ours).
    Special tokens stay. A row that would lose all its words keeps them.
    """
    words = mask & _is_word(ids, word_ids)
    kept = words & (_uniform(ids, generator) >= probability)
    kept = torch.where(kept.any(dim=1, keepdim=True), kept, words) | (mask & ~words)
    length = min(ids.shape[1], -(-max(1, int(kept.sum(dim=1).max())) // 8) * 8)  # few distinct shapes
    order = torch.argsort((~kept).to(torch.uint8), dim=1, stable=True)[:, :length]
    mask = kept.gather(1, order)
    return ids.gather(1, order).masked_fill(~mask, pad_id), mask


def _uniform(ids: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a number in [0, 1) for each position (B, T)."""
    return torch.rand(ids.shape, generator=generator, device=generator.device).to(ids.device)


def _is_word(ids: Tensor, word_ids: NDArray[np.int64]) -> Tensor:
    """Return whether each position (B, T) holds one of `word_ids`."""
    words = torch.as_tensor(word_ids, dtype=ids.dtype, device=ids.device)
    is_word = torch.zeros(int(max(ids.max(), words.max())) + 1, dtype=torch.bool, device=ids.device)
    is_word[words] = True
    return is_word[ids]
