"""The texts of many rows in one array of bytes, in place of two Python objects a row."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

END, SECOND = b"\xff", b"\xfe"
"""What follows a row, and what comes before its second text: bytes that UTF-8 does not have."""


class PackedTexts(Sequence[tuple[str, str | None]]):
    """The texts of N rows, and their second texts or None, encoded as UTF-8 in one buffer with nine more bytes a row."""

    def __init__(self, rows: Iterable[tuple[str, str | None]] = ()) -> None:
        self._content = bytearray()
        self._starts = array("Q")
        for text, pair in rows:
            self.append(text, pair)

    def append(self, text: str, pair: str | None) -> None:
        """Add a row at the end."""
        self._starts.append(len(self._content))
        self._content += text.encode(errors="surrogatepass")
        if pair is not None:
            self._content += SECOND + pair.encode(errors="surrogatepass")
        self._content += END

    def take(self, rows: NDArray[Any] | slice) -> "PackedTexts":
        """Return some of the rows, by a mask (N,), their numbers or a slice. They share the bytes of all rows."""
        taken = PackedTexts()
        taken._content, taken._starts = self._content, array("Q", np.asarray(self._starts)[rows].tobytes())
        return taken

    def __add__(self, others: Iterable[tuple[str, str | None]]) -> "PackedTexts":
        joined = self.take(slice(None))
        for text, pair in others:
            joined.append(text, pair)  # the bytes after those of all rows are nobody's
        return joined

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(len(self))[row]]
        start = self._starts[row]
        content = self._content[start : self._content.index(END, start)]
        if SECOND not in content:
            return content.decode(errors="surrogatepass"), None
        return tuple(text.decode(errors="surrogatepass") for text in content.split(SECOND))

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # it can change
