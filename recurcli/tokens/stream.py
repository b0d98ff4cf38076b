"""A text as one stream of tokens, cut into windows, for causal language modelling.

Each text ends with <eos>, for which [SEP] stands. Every token of the stream, <eos> included, is predicted once; the first from
an <eos> that stands before the stream (as in Mikolov's RNNLM toolkit, whose counts of the Penn Treebank are the usual ones).
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.tokens.tokenizer import Tokenizer, Tokens

WINDOW = 64
"""The tokens of a window where `data.max_length` is auto; ours."""


class Windows(NamedTuple):
    """The windows of a stream: row i of `inputs` holds the token before each token of row i of `targets`."""

    inputs: Tokens
    targets: Tokens


def encode_stream(texts: Sequence[tuple[str, str | None]], tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Return the ids of all `texts` end to end, with <eos> after each text (N,); a pair is two texts."""
    tokens = tokenizer.encode(texts, sys.maxsize)  # a text is never cut
    return np.insert(tokens.ids, tokens.offsets[1:], tokenizer.separator_id)


def cut_windows(stream: NDArray[np.int32], eos_id: int, length: int) -> Windows:
    """Return the stream (N,) in windows of `length` tokens; the last one may be shorter."""
    offsets = np.append(np.arange(0, len(stream), length, dtype=np.int64), len(stream))
    before = np.concatenate([np.array([eos_id], np.int32), stream])
    return Windows(Tokens(before[:-1], offsets), Tokens(before[1:], offsets))
