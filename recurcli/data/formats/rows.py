"""Reads a stream of bytes as rows split at LF, in constant memory, and defines the records that all formats return."""

import gzip
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Self, cast

from recurcli.data.formats.encodings import TextDecoder
from recurcli.errors import DataError, escaped, pluralize

Format = Literal["tsv", "csv", "jsonl", "fasttext", "parquet", "folders"]
"""`fasttext`: lines `__label__x text`; `folders`: a folder of folders that are named by label and hold a text file for each
row."""

CHUNK = 1 << 16
MAX_ROW = 64 << 20
BOM = b"\xef\xbb\xbf"
NUL = "\0"

_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file; end its name in .gz, or unpack it"),
    (b"PAR1", "a Parquet file; end its name in .parquet, or write it as TSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file; save it as TSV in UTF-8"),
    (b"\xfd7zXZ\x00", "an xz file; unpack it"),
    (b"BZh", "a bzip2 file; unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; unpack it"),
    (b"%PDF-", "a PDF file"),
)
_UTF16 = "UTF-16; name it with --encoding utf-16, or convert it: iconv -f UTF-16 -t UTF-8"


class Row(NamedTuple):
    """One row of a file without its line end; `whole` is False if it was cut because it was longer than MAX_ROW."""

    content: bytes
    whole: bool
    decoder: TextDecoder
    """The decoder of its file."""
    end: str = "\n"
    """Its line end, LF or CR LF. A quoted field of a CSV that goes on in the next line keeps it."""


class Record(NamedTuple):
    """One row: its number in the file from 1 (a header counts), its fields, and the reason why it cannot be used."""

    line: int
    fields: dict[str, Any]
    """TSV and CSV: column to string, as far as the row could be read. Other formats: key to value."""
    fault: str | None = None


@dataclass
class Doubts:
    """Rows of a CSV file whose lines each look like a row: a quote that opens the first may be text."""

    rows: int = 0
    line: int = 0
    """The first line of the first of them."""
    lines: int = 0
    """The number of lines of the first of them."""

    def add(self, line: int, lines: int) -> None:
        """Count a row of `lines` lines that begins in `line`."""
        self.rows += 1
        if self.rows == 1:
            self.line, self.lines = line, lines


@dataclass
class Records(Iterator[Record]):
    """The records of an open file, which can be read once; a context manager that closes the file."""

    name: str
    """Name of the file in messages."""
    format: Format
    columns: tuple[str, ...]
    """The header's names ("1", "2", … without a header), Parquet's columns, or the keys of the first JSON row."""
    rows: Iterator[Record]
    close: Callable[[], object] | None = None
    """Closes the file; None if the caller closes it."""
    decoder: TextDecoder | None = None
    """The decoder of its rows; None for Parquet and the Hub."""
    doubts: Doubts = field(default_factory=Doubts)
    delimiter: str | None = None
    """The separator of fields if it is not the usual one: TAB in a TSV, a comma in a CSV."""
    recognised: bool = False
    """Whether nobody named the delimiter (see `recognised_delimiter`)."""

    @property
    def named(self) -> bool:
        """Whether each row has keys of its own, as in JSON."""
        return self.format in ("jsonl", "parquet", "fasttext")

    @property
    def hint(self) -> str:
        """The end of a message about rows that could not be read: the likely encoding of the file (see TextDecoder)."""
        return "" if self.decoder is None else self.decoder.hint

    @property
    def doubt(self) -> str:
        """A warning about the rows read so far that may be several rows; empty if there are none."""
        if not self.doubts.rows:
            return ""
        others = f", and {pluralize(self.doubts.rows - 1, 'other row')} so" if self.doubts.rows > 1 else ""
        return (
            f"{self.name}:{self.doubts.line}: {self.doubts.lines} lines in quotes are read as one row, though each looks like "
            f'a row{others}; a quote that is text must be doubled ("")'
        )

    def __next__(self) -> Record:
        return next(self.rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.close is not None:
            self.close()


def kind_of(value: Any) -> str:
    """Return the type of a JSON or Parquet value in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return words.get(type(value), "an object" if isinstance(value, dict) else f"a {type(value).__name__}")


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, decompressed if its name ends in .gz or .xz; the caller closes it.

    Raises DataError if `path` is missing, not a regular file, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path}: is a folder, not a file")
        if not stat.S_ISREG(mode):
            kind = "a FIFO" if stat.S_ISFIFO(mode) else "a device or socket"
            raise DataError(f"{path}: is {kind}, not a file; write its contents to a file, or use standard input")
        if path.suffix.lower() == ".gz":
            return cast(BinaryIO, gzip.open(path))
        return cast(BinaryIO, lzma.open(path)) if path.suffix.lower() == ".xz" else path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise DataError(f"{escaped(path)}: cannot be read: {error}") from None


def decoded(row: Row) -> tuple[str, str | None]:
    """Return the row as text, undecodable bytes as U+FFFD, and its fault."""
    if not row.whole:
        return "", f"is longer than {MAX_ROW >> 20} MiB"
    text, fault = row.decoder.decode(row.content)
    if fault is None and NUL in text:
        fault = f"holds a NUL at character {text.index(NUL) + 1}"
    return text, fault


def rows_of_file(path: Path, decoder: TextDecoder | None = None) -> Iterator[Row]:
    """Yield the rows of a file (see `open_file` and `rows_of`)."""
    with open_file(path) as file:
        yield from rows_of(file, str(path), decoder)


def rows_of(stream: BinaryIO, name: str, decoder: TextDecoder | None = None) -> Iterator[Row]:
    """Yield the rows of a stream as bytes, without line ends (LF or CR LF) and without a BOM at the start.

    `decoder` has the encoding of the file; None means UTF-8. The number of rows is the number of LFs, plus one if bytes
    follow the last LF. Raises DataError if the file is not text in this encoding (compressed, Parquet, Excel, UTF-16, GBK, CR
    line ends) or cannot be read to its end. The message begins with `name`.
    """
    decoder = decoder or TextDecoder()
    chunks = chunks_of(stream, name)
    head = _head(chunks)
    _check_text_file(head, name, decoder)
    chunks = decoder.to_utf8(chain([head], chunks))
    first = next(chunks, b"").removeprefix(BOM)
    if b"\n" not in first and b"\r" in first.rstrip(b"\r"):
        raise DataError(f"{name}: its lines end in CR alone; convert them to LF: tr '\\r' '\\n'")
    pieces: list[bytes] = []
    size = 0
    for chunk in chain([first], chunks):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield _row([*pieces, piece], size + len(piece), decoder)
            pieces, size = [], 0
        size += len(rest)
        if rest and size <= MAX_ROW:
            pieces.append(rest)
    if size:
        yield _row(pieces, size, decoder)


def _row(pieces: list[bytes], size: int, decoder: TextDecoder) -> Row:
    whole = size <= MAX_ROW
    content = b"".join(pieces if whole else pieces[:-1])
    return Row(content.removesuffix(b"\r"), whole, decoder, "\r\n" if content.endswith(b"\r") else "\n")


def chunks_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes of the stream as they arrive; returns a pipe's first bytes without waiting for more."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    try:
        while chunk := read(CHUNK):
            yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: is not a complete compressed file: {error}") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None


def _head(chunks: Iterator[bytes]) -> bytes:
    """Return the first chunk, and more until it has a line end, to recognise the kind of file."""
    head = b""
    while len(head) < CHUNK and b"\n" not in head and (chunk := next(chunks, b"")):
        head += chunk
    return head


def _check_text_file(head: bytes, name: str, decoder: TextDecoder) -> None:
    """Raise DataError with the kind of a file whose first bytes are not text in the encoding of `decoder`."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            raise DataError(f"{name}: is {kind}")
    if head.startswith(b"PK\x03\x04"):
        workbook = b"[Content_Types].xml" in head or b"xl/" in head
        kind = "an Excel workbook (xlsx); save it as TSV in UTF-8" if workbook else "a zip archive; unpack it"
        raise DataError(f"{name}: is {kind}")
    if decoder.by_row and head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name}: is {_UTF16}")
    if decoder.by_row and len(head) >= 8 and head.count(0) * 3 >= len(head):
        raise DataError(
            f"{name}: is UTF-16 without a byte order mark (--encoding utf-16-le or utf-16-be), or a binary file; "
            "expected UTF-8 text"
        )
    if doubt := decoder.doubt(head):
        raise DataError(f"{name}: {doubt}")
