"""Which rows are equal, and which training rows become dev rows: one rule for training, `check` and `eval`."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


class DevSplitter:
    """Takes a `fraction` of the rows of a class as dev rows, in one pass over the rows (ours).

    The row is drawn by (seed, label, block), where a block is round(1 / fraction) rows of one class in their order. The first
    row of a class is always a training row, so that training knows every label. Rows with equal texts (see `text_key`) stay
    on one side, except for a class's first row that repeats the text of a dev row with another label: it is a training row.
    """

    def __init__(self, fraction: float, seed: int) -> None:
        self.every = rows_per_dev_row(fraction)
        self.seed = seed
        self._counts: Counter[str | None] = Counter()
        self._train: set[int] = set()
        self._dev: set[int] = set()

    def is_dev(self, digest: int, label: str | None) -> bool:
        """Return whether the next row, of the `row_hash` `digest`, is a dev row; call it for each row in the file's order."""
        number = self._counts[label]
        self._counts[label] += 1
        if digest in self._train or number == 0:
            self._train.add(digest)
            return False
        block, index = divmod(number, self.every)
        first = 1 if block == 0 else 0  # a class's first row is never drawn
        drawn = first + hash_of(self.seed, label, block) % (self.every - first)
        if digest in self._dev or index == drawn:
            self._dev.add(digest)
            return True
        self._train.add(digest)
        return False


def rows_per_dev_row(fraction: float) -> int:
    """Return the number of rows of a class of which one becomes a dev row, if `fraction` of them do."""
    return round(1 / fraction)


class _Folds(dict[int, str | None]):
    """Maps a code point to what `text_key` makes of it; None: nothing. Each is worked out once."""

    def __missing__(self, code: int) -> str | None:
        surrogate = 0xD800 <= code < 0xE000  # `encodable` writes a lone one as a question mark
        self[code] = "?" if surrogate else _visible(_visible(chr(code)).casefold()) or None
        return self[code]


def _visible(text: str) -> str:
    """Return `text` as NFKD without accents, white space, U+FFFD and characters that are not shown or not assigned."""
    return "".join(
        character
        for character in unicodedata.normalize("NFKD", text)
        if not (character.isspace() or character == "\ufffd" or unicodedata.combining(character))
        and unicodedata.category(character) not in _INVISIBLE
    )


_INVISIBLE = ("Mn", "Cc", "Cf", "Cn", "Co")
_FOLDS = _Folds()


def text_key(text: str) -> str:
    """Return `text` in the form in which texts are compared: NFKD and case-folded, without accents and white space.

    Control, format, private and unassigned characters are left out too, since the wordpiece tokenizer does not see them. Texts
    whose tokens are equal, whatever the tokenizer, have equal keys; texts with equal keys may have different tokens.
    """
    return text.translate(_FOLDS)


def row_hash(text: str, pair: str | None) -> int:
    """Return a 64-bit hash of the `text_key` of a row's texts, without its label, the same on every machine."""
    return hash_of(text_key(text), text_key(pair or ""))


def hashes_of(texts: Iterable[tuple[str, str | None]]) -> NDArray[np.uint64]:
    """Return the `row_hash` of each text or pair, (N,)."""
    return np.fromiter((row_hash(text, pair) for text, pair in texts), np.uint64)


def hash_of(*parts: object) -> int:
    """Return a 64-bit hash of `parts`, the same on every machine.

    Two of a hundred million different texts have the same hash with a probability of 0.03 %.
    """
    content = "\0".join(map(str, parts)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
