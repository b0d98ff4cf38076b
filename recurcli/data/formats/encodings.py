"""Decodes the rows of a text file, and guesses its encoding from rows that cannot be decoded."""

import codecs
from collections.abc import Iterable, Iterator

from recurcli.errors import escaped

UTF8 = "utf-8"
UNDECODED_KEPT = 1 << 16
"""The number of bytes of undecodable rows that are kept to guess the encoding of a file."""
MANY_BYTES = 8
"""The number of bytes beyond ASCII from which an encoding is likely at fault. Fewer bytes may be a damaged character or two."""
NO_TEXT = ("punycode", "idna", "unicode_escape", "raw_unicode_escape")
"""The encodings of Python that are not for text files. They rewrite backslashes or host names."""
_INVALID = "\udc80"
_MARK_INVALID = "recur.mark-invalid"
codecs.register_error(
    _MARK_INVALID, lambda error: (_INVALID, error.end if isinstance(error, UnicodeDecodeError) else 0)
)


def canonical_encoding(name: str) -> str:
    """Return Python's name of a text encoding. It is "utf-8" for UTF-8 with and without a BOM.

    Raises ValueError if there is no such encoding.
    """
    try:
        found = codecs.lookup(name).name.removesuffix("-sig")
        if found.replace("-", "_") not in NO_TEXT and "a\n".encode(name).decode(name) == "a\n":
            return found
    except (LookupError, ValueError):
        pass
    raise ValueError(
        f"encoding {escaped(repr(name), 60)} is not known; usual ones are utf-8, utf-16, latin-1, cp1252, gb18030, big5, "
        "shift_jis, euc-kr and koi8-r"
    )


class TextDecoder:
    """Decodes the rows of one file, and remembers rows that it could not decode."""

    def __init__(self, encoding: str = UTF8) -> None:
        self.encoding = canonical_encoding(encoding)
        self.shown = "UTF-8" if self.encoding == UTF8 else escaped(encoding)
        """The name of the encoding in messages."""
        self.by_row = self.encoding == UTF8 or _extends_ascii(self.encoding)
        """Whether each row is decoded on its own. In other encodings, such as UTF-16, the bytes become UTF-8 before they are
        split."""
        self._undecoded = bytearray()
        self._decoded_some = False

    def to_utf8(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield `chunks` as UTF-8, with invalid UTF-8 for a bad byte.

        If rows are decoded one by one, the chunks are not changed.
        """
        if self.by_row:
            yield from chunks
            return
        decoder = codecs.getincrementaldecoder(self.encoding)(errors=_MARK_INVALID)
        for chunk in chunks:
            if text := decoder.decode(chunk):
                yield text.encode(UTF8, "surrogatepass")
        yield decoder.decode(b"", final=True).encode(UTF8, "surrogatepass")

    def decode(self, content: bytes) -> tuple[str, str | None]:
        """Return a row of `to_utf8` as text with U+FFFD for undecodable bytes, and its fault; None if it has no fault."""
        encoding = self.encoding if self.by_row else UTF8
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError as error:
            if len(self._undecoded) < UNDECODED_KEPT:
                self._undecoded += content[:UNDECODED_KEPT] + b"\n"
            where = f"byte {error.start + 1} (0x{content[error.start]:02x})"
            if not self.by_row:
                where = f"character {len(content[: error.start].decode()) + 1}"
            return content.decode(encoding, errors="replace"), f"is not {self.shown} at {where}"
        self._decoded_some = self._decoded_some or not text.isascii()
        return text, None

    @property
    def hint(self) -> str:
        """Return the end of a message about undecodable rows, with the likely encoding of the file and its option."""
        if not self._undecoded or self._decoded_some or self.encoding != UTF8:
            return ""
        if likely := likely_encoding(bytes(self._undecoded)):
            return f"; the file may be {likely}: --encoding {likely}"
        foreign = sum(byte >= 0x80 for byte in self._undecoded)
        return "; name the encoding of the file with --encoding" if foreign >= MANY_BYTES else ""

    def doubt(self, head: bytes) -> str:
        """Return why the first bytes of a file are likely to be in another encoding, with the way out; "" if they are not."""
        rows = [row for row in head[: head.rfind(b"\n") + 1].split(b"\n") if not row.isascii()]
        if self.encoding.startswith(("utf-16", "utf-32")):
            wrong = head and b"\0" not in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            return (
                f"is not {self.shown}, since it has no zero bytes; leave out --encoding, or name another"
                if wrong
                else ""
            )
        if len(rows) < 2 or not self.by_row:
            return ""
        valid = [_decodes(row, UTF8) for row in rows]
        if self.encoding != UTF8:
            return f"is read as {self.shown}, but is UTF-8: --encoding utf-8" if all(valid) else ""
        if any(valid) or not all(_is_chinese(row) for row in rows):
            return ""
        return (
            "is not UTF-8 but looks like GBK; name it with --encoding gb18030, or convert it: iconv -f GB18030 -t UTF-8"
        )


def likely_encoding(rows: bytes) -> str | None:
    """Return the likely encoding of rows that are not UTF-8; None if none is likely. The rules are ours.

    They tell Chinese from languages of western Europe, in whose texts most letters are ASCII. The bytes 0xfe and 0xff are
    rare letters of Icelandic, but common in damaged files.
    """
    if _is_chinese(rows):
        return "gb18030"
    foreign = [byte for byte in rows if byte >= 0x80]
    letters = sum(chr(byte).isalpha() for byte in rows if byte < 0x80)
    if len(foreign) > letters or max(foreign) >= 0xFE:
        return None
    if min(foreign) >= 0xA0:
        return "latin-1"
    return "cp1252" if _decodes(rows, "cp1252") else None


def _extends_ascii(encoding: str) -> bool:
    """Return whether `encoding` contains ASCII. Its rows then end in the byte 0x0a."""
    ascii_bytes = bytes(range(128))
    return _decodes(ascii_bytes, encoding) and ascii_bytes.decode(encoding) == ascii_bytes.decode("ascii")


def _decodes(row: bytes, encoding: str) -> bool:
    try:
        row.decode(encoding)
    except UnicodeError:
        return False
    return True


def _is_chinese(row: bytes) -> bool:
    """Return whether `row` is GB 18030 and most of its characters beyond ASCII are in GB 2312, the set of the common ones."""
    if not _decodes(row, "gb18030"):
        return False
    foreign = "".join(character for character in row.decode("gb18030") if not character.isascii())
    common = foreign.encode("gb2312", errors="ignore").decode("gb2312")
    return len(common) * 2 > len(foreign)
