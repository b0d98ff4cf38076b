"""What `auto` stands for in a preset, given the training texts."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recurcli.data.script import separates_words
from recurcli.tokens.config import TokenizerConfig

COVERED = 0.99
"""Share of the training rows that `data.max_length: auto` leaves whole."""
LONGEST_AUTO = 512
"""Largest `max_length` that auto chooses: attention takes time and memory that grow with it."""


def settled_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> TokenizerConfig:
    """`config` with `kind: auto` replaced: char where words are not separated by spaces, else wordpiece. Ours."""
    if config.kind != "auto":
        return config
    return replace(config, kind="wordpiece" if separates_words(texts) else "char")


def choose_max_length(lengths: NDArray[np.int64]) -> int:
    """The length in tokens that covers 99 % of the rows, a multiple of 8, LONGEST_AUTO at most. Ours."""
    covered = int(np.ceil(np.quantile(lengths, COVERED))) if len(lengths) else 1
    return min(LONGEST_AUTO, -(-max(covered, 3) // 8) * 8)
