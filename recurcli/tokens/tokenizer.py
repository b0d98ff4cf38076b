"""Texts to token ids: `a` alone, or `a [SEP] b` for a pair (a separator between the two, as in Xu et al., StarSaber)."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from recurcli.errors import ModelError, escaped
from recurcli.files import read_limited
from recurcli.tokens import vocabulary
from recurcli.tokens.config import TokenizerConfig

CHARACTERS_PER_TOKEN = 64
"""A text is cut to this many characters a token of `max_length` before it is tokenised: what follows cannot count."""
ROWS_AT_ONCE = 8192
LARGEST_FILE = 64 << 20
LONGEST_COUNTED = 1 << 20
"""Characters of a text that `Tokenizer.lengths` looks at."""
SEPARATOR_HERE = -1

_NO_WORD = re.compile(r"\[(PAD|UNK|SEP|MASK|CLS|unused\d+)\]")


@dataclass(frozen=True)
class Tokens:
    """Rows of token ids end to end: row i is `ids[offsets[i]:offsets[i + 1]]`, and may be empty."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Which rows were cut, (rows,); empty where nobody asked."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens a row, (rows,)."""
        return np.diff(self.offsets)

    @property
    def truncated(self) -> int:
        """How many rows were cut."""
        return int(np.count_nonzero(self.cut))

    def take(self, rows: NDArray[np.int64]) -> "Tokens":
        """Some of the rows, in the order of `rows`."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) + np.repeat(self.offsets[rows] - (ends - lengths), lengths)
        return Tokens(self.ids[places], np.concatenate([np.zeros(1, np.int64), ends]))


def joined(blocks: Iterable[Tokens]) -> Tokens:
    """The rows of all `blocks`, one block after the other."""
    parts = list(blocks)
    lengths = np.concatenate([np.zeros(1, np.int64), *(part.lengths for part in parts)])
    return Tokens(
        ids=np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)]),
        offsets=np.cumsum(lengths),
        cut=np.concatenate([np.zeros(0, np.bool_), *(part.cut for part in parts)]),
    )


class Tokenizer:
    """A vocabulary and the way to split texts into it; `backend` is the `tokenizers.Tokenizer` that does the work.

    A text in which nothing is left after normalisation gives an empty row. What looks like a special token in a text
    is text: it becomes characters, pieces or [UNK], never the special token.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True
        self.backend = backend
        vocab = backend.get_vocab()
        self.tokens: list[str] = sorted(vocab, key=vocab.__getitem__)
        """Every token, at its id."""
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise ModelError("its ids do not run from 0 without a gap; it is not a tokenizer of recur")
        self.pad_id = self._id_of(vocabulary.PAD)
        self.separator_id = self._id_of(vocabulary.SEPARATOR)
        self.mask_id = self._id_of(vocabulary.MASK)
        self.unknown_id = backend.token_to_id(vocabulary.UNKNOWN)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """A tokenizer whose vocabulary comes from `texts` (the same texts give the same bytes), or from `config.vocabulary`.

        Raises DataError if no token occurs often enough, or if the vocabulary file cannot be read.
        """
        return cls(vocabulary.trained((encodable(text) for text in texts), config))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer that `to_json` wrote to `path`; ModelError if the file is anything else."""
        try:
            content = read_limited(path, LARGEST_FILE).decode()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ModelError(f"{path}: is damaged (it is not UTF-8)") from None
        try:
            tokenizer = cls(tokenizers.Tokenizer.from_str(content))
            tokenizer.encode([("\U0002a6a5", "a")], max_length=3)  # a broken model shows itself at an unknown character
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        except BaseException as error:  # the library raises Exception itself, and panics as a BaseException
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ModelError(f"{path}: is damaged or no tokenizer: {escaped(error)}") from None
        return tokenizer

    def to_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json, which `load` and the tokenizers library read."""
        return self.backend.to_str(pretty=True) + "\n"

    def _id_of(self, token: str) -> int:
        found = self.backend.token_to_id(token)
        if found is None:
            raise ModelError(f"its vocabulary has no {token}; it is not a tokenizer of recur")
        return found

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, special tokens included: ids are below it."""
        return len(self.tokens)

    @functools.cached_property
    def word_ids(self) -> NDArray[np.int64]:
        """The ids that stand for text: all but the special tokens, BERT's [CLS] and [unused1] … among them."""
        return np.array([i for i, token in enumerate(self.tokens) if not _NO_WORD.fullmatch(token)], dtype=np.int64)

    def encode(self, texts: Sequence[tuple[str, str | None]], max_length: int) -> Tokens:
        """Ids of (text, None) rows and (text, second text) rows, each at most `max_length` long.

        The longer text of a pair is cut first; the separator stays.
        """
        return joined(
            self._encode_block(texts[start : start + ROWS_AT_ONCE], max_length)
            for start in range(0, len(texts), ROWS_AT_ONCE)
        )

    def lengths(self, texts: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
        """Tokens of each row before any cut, a pair's separator included, (rows,); of a text LONGEST_COUNTED characters."""
        pieces = [encodable(text[:LONGEST_COUNTED]) for row in texts for text in row if text is not None]
        counts = map(len, self.backend.encode_batch_fast(pieces, add_special_tokens=False))
        found = [next(counts) + (0 if pair is None else 1 + next(counts)) for _, pair in texts]
        return np.array(found, dtype=np.int64)

    def _encode_block(self, texts: Sequence[tuple[str, str | None]], max_length: int) -> Tokens:
        limit = max_length * CHARACTERS_PER_TOKEN
        pieces = [encodable(text[:limit]) for row in texts for text in row if text is not None]
        encodings = iter(self.backend.encode_batch_fast(pieces, add_special_tokens=False))
        ids: list[int] = []
        offsets, cuts = [0], np.zeros(len(texts), np.bool_)
        for row, (text, pair) in enumerate(texts):
            first = next(encodings).ids
            cut = len(text) > limit
            if pair is None:
                ids += first[:max_length]
                cut |= len(first) > max_length
            else:
                second = next(encodings).ids
                room = _room(len(first), len(second), max_length - 1)
                ids += [*first[: room[0]], SEPARATOR_HERE, *second[: room[1]]]
                cut |= len(pair) > limit or room != (len(first), len(second))
            offsets.append(len(ids))
            cuts[row] = cut
        return Tokens(
            self._text_apart_from_special(np.array(ids, dtype=np.int32)), np.array(offsets, dtype=np.int64), cuts
        )

    def _text_apart_from_special(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """`ids` with every special id that came from a text turned into [UNK], and the separators set."""
        if self.unknown_id is not None:
            ids[np.isin(ids, (self.pad_id, self.separator_id, self.mask_id))] = self.unknown_id
        ids[ids == SEPARATOR_HERE] = self.separator_id
        return ids


def _room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text stay when together they may have `room`: the longer one is cut first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def encodable(text: str) -> str:
    """`text` with each lone surrogate, which no UTF-8 can hold, as a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()
