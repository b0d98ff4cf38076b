"""Chooses the tokenizer's kind and the largest length from the training texts, where a preset says `auto`."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recurcli.data.script import separates_words
from recurcli.tokens.config import TokenizerConfig

COVERED = 0.99
"""Fraction of the training rows that `data.max_length: auto` does not cut."""
LONGEST_AUTO = 512
"""Largest `max_length` that auto chooses; time and memory of attention grow with it."""


def settled_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> TokenizerConfig:
    """Return `config` with a kind for `auto`: char where words are not separated by spaces, else wordpiece [ours]."""
    if config.kind != "auto":
        return config
    return replace(config, kind="wordpiece" if separates_words(texts) else "char")


def choose_max_length(lengths: NDArray[np.int64]) -> int:
    """Return the length in tokens that covers 99 % of the rows, a multiple of 8 and at most LONGEST_AUTO [ours]."""
    covered = int(np.ceil(np.quantile(lengths, COVERED))) if len(lengths) else 1
    return min(LONGEST_AUTO, -(-max(covered, 3) // 8) * 8)
