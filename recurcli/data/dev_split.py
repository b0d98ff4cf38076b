"""Which rows are equal, and which training rows become dev rows: one rule for training, `check` and `eval`."""

import unicodedata
from collections import Counter
from hashlib import blake2b


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

    def is_dev(self, text: str, pair: str | None, label: str | None) -> bool:
        """Return whether the next row is a dev row; call it once for each row, in the order of the file."""
        number = self._counts[label]
        self._counts[label] += 1
        digest = row_hash(text, pair)
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


def text_key(text: str) -> str:
    """Return `text` in the form in which texts are compared: NFKC, without case, white space as single spaces.

    Tokenizers read texts in this form, those that keep the case excepted.
    """
    if text.isascii():
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def row_hash(text: str, pair: str | None) -> int:
    """Return a 64-bit hash of the `text_key` of a row's texts, without its label, the same on every machine."""
    return hash_of(text_key(text), text_key(pair or ""))


def hash_of(*parts: object) -> int:
    """Return a 64-bit hash of `parts`, the same on every machine.

    Two of a hundred million different texts have the same hash with a probability of 0.03 %.
    """
    content = "\0".join(map(str, parts)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")
