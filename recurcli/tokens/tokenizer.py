"""Encodes texts as token ids: `a` alone, or `a [SEP] b` for a pair (separator between the texts: Xu et al., StarSaber)."""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from recurcli.data.values import separates_words
from recurcli.errors import ModelError, escaped
from recurcli.files import read_limited
from recurcli.tokens import vocabulary
from recurcli.tokens.config import TokenizerConfig

CHARACTERS_PER_TOKEN = 64
"""A text is cut to `max_length` times this many characters before it is tokenised, which bounds the time."""
ROWS_AT_ONCE = 8192
"""Rows that are tokenised together, which bounds the memory of their tokens."""
MAX_FILE = 64 << 20
MAX_COUNTED = 1 << 20
"""Characters of a text that `Tokenizer.lengths` counts."""
SEPARATOR_HERE = -1  # marks a pair's separator until special ids from texts are replaced

_NO_WORD = re.compile(r"\[(PAD|UNK|SEP|MASK|CLS|unused\d+)\]")

COVERED = 0.99
"""Fraction of the training rows that `data.max_length: auto` does not cut."""
MAX_AUTO = 512
"""Largest `max_length` that auto chooses; time and memory of attention grow with it."""


@dataclass(frozen=True)
class Tokens:
    """Rows of token ids end to end: row i is `ids[offsets[i]:offsets[i + 1]]`, and may be empty."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Whether each row was cut, (rows,); empty if unknown."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens a row, (rows,)."""
        return np.diff(self.offsets)

    @property
    def truncated(self) -> int:
        """Number of rows that were cut."""
        return int(np.count_nonzero(self.cut))

    def take(self, rows: NDArray[np.int64]) -> "Tokens":
        """Return the given rows, in the order of `rows`."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        indexes = np.arange(int(lengths.sum())) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Tokens(self.ids[indexes], offsets)


def offsets_of(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the offsets of rows with these `lengths`, (rows + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def joined(blocks: Iterable[Tokens]) -> Tokens:
    """Concatenate the rows of all `blocks`."""
    parts = list(blocks)
    return Tokens(
        ids=np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)]),
        offsets=offsets_of(np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)])),
        cut=np.concatenate([np.zeros(0, np.bool_), *(part.cut for part in parts)]),
    )


class Tokenizer:
    """Encodes texts with a vocabulary; `backend` is the `tokenizers.Tokenizer` that splits them.

    A text that normalisation leaves empty gives an empty row. A special token's name in a text becomes characters, pieces
    or [UNK], never the special token.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = True
        self.backend = backend
        vocab = backend.get_vocab()
        self.tokens: list[str] = sorted(vocab, key=vocab.__getitem__)
        """The tokens in the order of their ids."""
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise ModelError("its ids do not run from 0 without a gap; it is not a tokenizer of recur")
        self.pad_id = self._id_of(vocabulary.PAD)
        self.separator_id = self._id_of(vocabulary.SEPARATOR)
        self.mask_id = self._id_of(vocabulary.MASK)
        self.unknown_id = backend.token_to_id(vocabulary.UNKNOWN)

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """Train a tokenizer on `texts`, or take its vocabulary from the file `config.vocabulary`.

        The same texts give the same bytes. Raises DataError if no token occurs often enough or the file cannot be read.
        """
        return cls(vocabulary.trained((encodable(text) for text in texts), config))

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Load the tokenizer that `to_json` wrote to `path`; raises ModelError for another file."""
        try:
            content = read_limited(path, MAX_FILE).decode()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ModelError(f"{path}: is damaged (it is not UTF-8)") from None
        try:
            document = json.loads(content)
            if part := vocabulary.foreign_part(document):
                raise ModelError(f"its {part} is none that recur writes; it is not a tokenizer of recur")
            tokenizer = cls(tokenizers.Tokenizer.from_str(json.dumps(document)))
            tokenizer.encode([("\U0002a6a5", "a")], max_length=3)  # an unknown character reveals a broken model
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        except BaseException as error:  # the library raises Exception itself, and panics as a BaseException
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise ModelError(f"{path}: is damaged or no tokenizer: {escaped(error)}") from None
        return tokenizer

    def to_json(self) -> str:
        """Return the content of a tokenizer.json, which `load` and the tokenizers library read."""
        return self.backend.to_str(pretty=True) + "\n"

    def _id_of(self, token: str) -> int:
        token_id = self.backend.token_to_id(token)
        if token_id is None:
            raise ModelError(f"its vocabulary has no {token}; it is not a tokenizer of recur")
        return token_id

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.tokens)

    @functools.cached_property
    def word_ids(self) -> NDArray[np.int64]:
        """Ids of all tokens but the special ones, which include BERT's [CLS], [unused1], …"""
        return np.array([i for i, token in enumerate(self.tokens) if not _NO_WORD.fullmatch(token)], dtype=np.int64)

    def encode(self, texts: Sequence[tuple[str, str | None]], max_length: int) -> Tokens:
        """Encode (text, None) and (text, second text) rows as at most `max_length` ids each.

        The longer text of a pair is cut first; the separator stays.
        """
        return joined(
            self._encode_block(texts[start : start + ROWS_AT_ONCE], max_length)
            for start in range(0, len(texts), ROWS_AT_ONCE)
        )

    def lengths(self, texts: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
        """Count the tokens of each uncut row, a pair's separator included, (rows,).

        The first MAX_COUNTED characters of a text count.
        """
        counts = map(len, self._encodings(texts, MAX_COUNTED))
        lengths = [next(counts) + (0 if pair is None else 1 + next(counts)) for _, pair in texts]
        return np.array(lengths, dtype=np.int64)

    def _encodings(self, texts: Sequence[tuple[str, str | None]], limit: int) -> Iterator[tokenizers.Encoding]:
        """Encode each text, and each second text after its first, cut to `limit` characters."""
        pieces = [encodable(text[:limit]) for row in texts for text in row if text is not None]
        return iter(self.backend.encode_batch_fast(pieces, add_special_tokens=False))

    def _encode_block(self, texts: Sequence[tuple[str, str | None]], max_length: int) -> Tokens:
        limit = max_length * CHARACTERS_PER_TOKEN
        encodings = self._encodings(texts, limit)
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
        row_ids = np.array(ids, dtype=np.int32)
        if self.unknown_id is not None:  # a special id here comes from a text
            row_ids[np.isin(row_ids, (self.pad_id, self.separator_id, self.mask_id))] = self.unknown_id
        row_ids[row_ids == SEPARATOR_HERE] = self.separator_id
        return Tokens(row_ids, np.array(offsets, dtype=np.int64), cuts)


def _room(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the number of tokens kept of each text where both may have `room`; the longer text is cut first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def encodable(text: str) -> str:
    """Replace each lone surrogate, which UTF-8 cannot encode, by a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def resolved_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> TokenizerConfig:
    """Return `config` with a kind for `auto`: char where words are not separated by spaces, else wordpiece [ours]."""
    if config.kind != "auto":
        return config
    return replace(config, kind="wordpiece" if separates_words(texts) else "char")


def choose_max_length(lengths: NDArray[np.int64]) -> int:
    """Return the length in tokens that covers 99 % of the rows, a multiple of 8 and at most MAX_AUTO [ours]."""
    covered = int(np.ceil(np.quantile(lengths, COVERED))) if len(lengths) else 1
    return min(MAX_AUTO, -(-max(covered, 3) // 8) * 8)
