"""Reads a stream of bytes as decoded rows in constant memory: the encoding of a file, its rows split at LF, and the records of
all formats."""

import bz2
import codecs
import contextlib
import gzip
import lzma
import math
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal, NamedTuple, Self, cast

from recurcli.config import UTF8, canonical_encoding
from recurcli.errors import DataError, escaped, pluralize
from recurcli.log import Note

UNDECODED_KEPT = 1 << 16
"""The number of bytes of undecodable rows that are kept to guess the encoding of a file."""
MANY_BYTES = 8
"""The number of bytes beyond ASCII from which an encoding is likely at fault. Fewer bytes may be a damaged character or two."""
CHANCE_ROWS = 10
"""Rows that are not UTF-8 for each one that is so by chance, in a file of another encoding. Ours."""
ENCODINGS = (
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "gb18030", "big5", "cp932", "euc_jp", "cp949"),
    *("cp1253", "cp1254", "cp1255", "cp1256"),
)
"""Encodings that a file which is not UTF-8 may have, the likelier first."""
LATIN = ("cp1252", "cp1250", "iso8859_2", "cp1254")
SHOWN_WORDS = 3
_BETWEEN_WORDS = re.compile(r"[\s,;|.:!?()\"]+")
_INVALID = "\udc80"
_MARK_INVALID = "recur.mark-invalid"
codecs.register_error(
    _MARK_INVALID, lambda error: (_INVALID, error.end if isinstance(error, UnicodeDecodeError) else 0)
)


class TextDecoder:
    """Decodes the rows of one file, and remembers rows that it could not decode."""

    def __init__(self, encoding: str = UTF8, *, checks: bool = True) -> None:
        """`checks`: whether a file that begins in another encoding is refused."""
        self.encoding, self._checks = canonical_encoding(encoding), checks
        self.shown = "UTF-8" if self.encoding == UTF8 else escaped(encoding)
        """The name of the encoding in messages."""
        self.by_row = self.encoding == UTF8 or _extends_ascii(self.encoding)
        """Whether each row is decoded on its own. In other encodings, such as UTF-16, the bytes become UTF-8 before they are
        split."""
        self.row_encoding = self.encoding if self.by_row else UTF8
        """The encoding of the rows that are decoded."""
        self._undecoded = bytearray()
        self._decoded_rows = self._undecoded_rows = 0
        """The rows beyond ASCII that could be decoded, and those that could not."""

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
        """Return a row of `to_utf8` as text with U+FFFD for undecodable bytes, and its fault, or None if it has no fault."""
        encoding = self.row_encoding
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError as error:
            self._undecoded_rows += 1
            if len(self._undecoded) < UNDECODED_KEPT:
                self._undecoded += content[:UNDECODED_KEPT] + b"\n"
            where = f"byte {error.start + 1} (0x{content[error.start]:02x})"
            if not self.by_row:
                where = f"character {len(content[: error.start].decode()) + 1}"
            return content.decode(encoding, errors="replace"), f"is not {self.shown} at {where}"
        self._decoded_rows += not text.isascii()
        return text, None

    @property
    def guess(self) -> "Guess | None":
        """The likely encoding of the file, which is not UTF-8: of its rows beyond ASCII, at most a tenth is so by chance."""
        if self.encoding != UTF8 or self._undecoded_rows < max(CHANCE_ROWS * self._decoded_rows, 1):
            return None
        return likely_encoding(bytes(self._undecoded))

    @property
    def hint(self) -> str:
        """Return the end of a message about undecodable rows, with the likely encoding of the file and its option."""
        if guess := self.guess:
            return f"; the file may be {guess}: --encoding {guess.encoding}"
        if self.encoding != UTF8 or self._undecoded_rows < CHANCE_ROWS * self._decoded_rows:
            return ""
        foreign = sum(byte >= 0x80 for byte in self._undecoded)
        return "; name the encoding of the file with --encoding" if foreign >= MANY_BYTES else ""

    def doubt(self, head: bytes) -> str:
        """Return why the first bytes of a file are likely to be in another encoding, with the way out; "" if they are not."""
        rows = [row for row in head[: head.rfind(b"\n") + 1].split(b"\n") if not row.isascii()]
        wide = self.encoding.startswith(("utf-16", "utf-32"))
        if wide and head and b"\0" not in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return f"is not {self.shown}, since it has no zero bytes; leave out --encoding, or name another"
        if len(rows) < 2 or not self.by_row or not self._checks:
            return ""
        valid = [_decodes(row, UTF8) for row in rows]
        if self.encoding != UTF8:
            return f"is read as {self.shown}, but is UTF-8: --encoding utf-8" if all(valid) else ""
        if any(valid) or not all(_is_chinese(row) for row in rows):
            return ""
        return "is not UTF-8 but looks like GBK; name it with --encoding gb18030"


class Guess(NamedTuple):
    """The likely encoding of rows that are not UTF-8."""

    encoding: str
    words: tuple[str, ...]
    """Some words of the rows in this encoding, in quotes, which are not ASCII."""
    is_clear: bool
    """Whether no other encoding is as likely, and the bytes beyond ASCII are not those of a damaged character or two."""

    def __str__(self) -> str:
        """Return it with its words, as messages show it."""
        return f"{self.encoding} ({', '.join(self.words)})"


def likely_encoding(rows: bytes) -> Guess | None:
    """Return the likely encoding of rows that are not UTF-8, or None if none is likely.

    It is what charset-normalizer finds most readable, the likelier of ENCODINGS if several are nearly so, else latin-1. Texts
    of western Europe are often nearly as readable in LATIN encodings of other countries, where a £ is a letter, which are not
    counted as rivals. The bytes 0xfe and 0xff are rare letters of Icelandic, but common in damaged files. The margins are ours.
    """
    from charset_normalizer import from_bytes

    replaced = rows.decode(UTF8, errors="replace")
    if 2 * replaced.count("\ufffd") <= sum(not character.isascii() for character in replaced):
        return None
    order = [*["gb18030"] * _is_chinese(rows), *ENCODINGS]
    matches = [*from_bytes(rows, cp_isolation=[*ENCODINGS])]
    text, rivals = rows.decode("latin-1"), ["latin-1"]
    if matches:
        best = min(matches, key=lambda match: (match.chaos, -match.coherence))
        near = [match for match in matches if match.chaos <= best.chaos + (0.1 if match.encoding in LATIN else 0.02)]
        names = [
            name for match in near if match.coherence >= best.coherence - 0.03 for name in match.could_be_from_charset
        ]
        text = rows.decode(min(names, key=lambda name: order.index(name) if name in order else len(order)))
        rivals = [match.encoding for match in near if match.coherence >= best.coherence - 0.15 and str(match) != text]
    encoding = next((name for name in order if _decodes(rows, name) and rows.decode(name) == text), "latin-1")
    foreign = [byte for byte in rows if byte >= 0x80]
    letters = sum(chr(byte).isalpha() for byte in rows if byte < 0x80)
    if encoding in ("cp1252", "latin-1") and (len(foreign) > letters or max(foreign) >= 0xFE):
        return None
    is_clear = len(foreign) >= MANY_BYTES and (not rivals or (encoding == "cp1252" and {*rivals} <= {*LATIN}))
    words = dict.fromkeys(word for word in _BETWEEN_WORDS.split(text) if not word.isascii())
    shown = tuple(f"'{escaped(word, 20)}'" for word in islice(words, SHOWN_WORDS))
    return Guess(encoding, shown, is_clear and (encoding not in LATIN or _decodes(rows, "cp1252")))


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


Format = Literal["tsv", "csv", "excel", "jsonl", "fasttext", "parquet", "folders"]
"""`excel`: a sheet of a workbook; `fasttext`: lines `__label__x text`; `folders`: a folder of folders that are named by label
and hold a text file for each row."""

CHUNK = 1 << 16
MAX_ROW = 96 << 20
PEEKED_CHARACTERS = 8 << 20
"""`Records.peek` ends at about so many characters, so that very long rows do not fill the memory."""
BOM = b"\xef\xbb\xbf"
NUL = "\0"

_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file; end its name in .gz, or unpack it"),
    (b"PAR1", "a Parquet file; end its name in .parquet, or write it as TSV"),
    (b"PK\x03\x04", "an Excel workbook or a zip archive; end its name in .xlsx or .zip"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file; end the name of a workbook in .xls"),
    (b"\xfd7zXZ\x00", "an xz file; end its name in .xz, or unpack it"),
    (b"BZh", "a bzip2 file; end its name in .bz2, or unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; end its name in .zst, or unpack it"),
    (b"%PDF-", "a PDF file"),
)


class Row(NamedTuple):
    """One row of a file without its line end; `whole` is False if it was cut because it was longer than MAX_ROW."""

    content: bytes
    whole: bool
    decoder: TextDecoder
    end: str = "\n"
    """Its line end, LF or CR LF. A quoted field of a CSV that goes on in the next line keeps it."""


class Record(NamedTuple):
    """One row: its number in the file from 1 (a header counts), its fields, and the reason why it cannot be used."""

    line: int
    fields: dict[str, Any]
    """TSV, CSV and Excel: column to string, as far as the row could be read. Other formats: key to value."""
    fault: str | None = None


@dataclass
class Records(Iterator[Record]):
    """The records of an open file, which can be read once; a context manager that closes the file."""

    name: str
    format: Format
    columns: tuple[str, ...]
    """The keys of its records: the header's names ("1", "2", … before `take_header`), Parquet's columns, or the keys of the
    first JSON row."""
    rows: Iterator[Record]
    close: Callable[[], object] | None = None
    """Closes the file. None if the caller closes it."""
    decoder: TextDecoder | None = None
    """The decoder of its rows. None for Parquet and the Hub."""
    doubts: list[int] = field(default_factory=list)
    """The first line of each row of a CSV whose lines each look like a row: a quote that opens it may be text."""
    delimiter: str | None = None
    """The separator of the fields of a TSV or CSV. None: it is another format."""
    quote: str | None = None
    """The quote around fields of a TSV or CSV. None if it has none."""
    types: Mapping[str, Any] = field(default_factory=dict)
    """The Arrow type of each column of Parquet."""
    names: tuple[str, ...] = ()
    """The names of the `columns` of an input of `recur predict`, whose header may have a name twice."""
    remarks: list[str] = field(default_factory=list)
    """What was decided about how the file is read, which becomes a note."""
    notes: list[Note] = field(default_factory=list)
    """What was decided about the file without a setting (see `find_source`)."""
    counts: Counter[str] = field(default_factory=Counter)
    """What is to be known of some of the rows that were read, and the number of these."""

    def peek(self, count: int) -> list[Record]:
        """Return the next rows, `count` at most. They stay unread."""
        rows: list[Record] = []
        characters = 0
        for record in islice(self.rows, count):
            rows.append(record)
            characters += sum(len(value) for value in record.fields.values() if isinstance(value, Sized))
            if characters > PEEKED_CHARACTERS:
                break
        self.rows = chain(rows, self.rows)
        return rows

    def take_header(self) -> None:
        """Name the columns of a table by its first row. Raises DataError if that row cannot name them."""
        if (first := next(self.rows, None)) is None:
            raise DataError(f"{self.name}: is empty; expected a header")
        names = tuple(first.fields.values())
        if first.fault or not any(name.strip() for name in names):
            raise DataError(f"{self.name}:1: {first.fault or 'is blank; expected a header'}")
        if (twice := first_repeated(filter(None, names))) is not None:
            way_out = "rename one, or add --no-header if line 1 is a row"
            raise DataError(f"{self.name}:1: has the column '{escaped(twice)}' twice; {way_out}")
        self.columns = names
        self.rows = (Record(line, dict(zip(names, row.values(), strict=True)), fault) for line, row, fault in self.rows)

    @property
    def hint(self) -> str:
        """The end of a message about rows that could not be read: the likely encoding of the file."""
        return "" if self.decoder is None else self.decoder.hint

    @property
    def doubt(self) -> str:
        """A warning about the rows read so far that may be several rows. It is empty if there are none."""
        if not self.doubts:
            return ""
        what = "lines in quotes are read as one row, though each looks like a row"
        many = pluralize(len(self.doubts), "case")
        return f"{self.name}:{self.doubts[0]}: {what} ({many}); a quote that is text must be doubled ({self.quote}{self.quote})"

    def __next__(self) -> Record:
        return next(self.rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.close is not None:
            self.close()


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first of the `names` that stands there more than once, or None if all are different."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def kind_of(value: Any) -> str:
    """Return the type of a JSON or Parquet value in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return words.get(type(value), "an object" if isinstance(value, dict) else f"a {type(value).__name__}")


def _open_zst(path: Path) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(path.open("rb"), "zstd")


def _open_zip(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return archive.open(_only_member(archive, path))


def _only_member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    """Return the only file in a zip, beside those that macOS adds. Raises DataError if there are more, or it is encrypted."""
    members = [each for each in archive.infolist() if not each.is_dir() and not each.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        shown = ", ".join([*(escaped(each.filename, 60) for each in members[:8]), *["…"][: len(members) > 8]])
        raise DataError(f"{path}: holds {pluralize(len(members), 'file')}, not one; unpack it and name a file: {shown}")
    if members[0].flag_bits & 1:
        raise DataError(f"{path}: is encrypted; unpack it")
    return members[0]


COMPRESSED: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zst,
    ".zip": _open_zip,
}
"""What opens a compressed file, by the ending of its name. `chunks_of` names the errors of a damaged one."""
_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)


def uncompressed(name: str) -> str:
    """Return the name of a file without the ending of its compression."""
    path = PurePath(name)
    return name.removesuffix(path.suffix) if path.suffix.lower() in COMPRESSED else name


def name_inside(path: Path) -> str:
    """Return the name of a file without the ending of its compression, such as rows.csv for rows.csv.gz: its ending tells the
    format. A zip without a second ending has the name of the file in it.
    """
    path, _ = file_and_part(path)
    name = uncompressed(path.name)
    if path.suffix.lower() == ".zip" and not PurePath(name).suffix:
        with contextlib.suppress(OSError, *_DAMAGE), zipfile.ZipFile(path) as archive:
            return _only_member(archive, path).filename
    return name


def file_and_part(path: Path) -> tuple[Path, str | None]:
    """Split a path such as book.xlsx#Sheet2 into the file and its part, which is None if a file has the whole name."""
    name, mark, part = path.name.rpartition("#")
    return (path.with_name(name), part) if mark and name and not path.exists() else (path, None)


def path_shown(path: Path) -> str:
    """Return the path of a file as messages name it: from the working directory, if it is inside."""
    with contextlib.suppress(OSError, ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, decompressed if its name ends as in COMPRESSED; the caller closes it. `path` may name a part of it.

    Raises DataError if `path` is missing, not a regular file, or cannot be read.
    """
    path, _ = file_and_part(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path}: is a folder, not a file")
        if not stat.S_ISREG(mode):
            raise DataError(f"{path}: is a FIFO, device or socket; write its contents to a file, or use standard input")
        if (opener := COMPRESSED.get(path.suffix.lower())) is not None:
            return cast(BinaryIO, opener(path))
        return path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist") from None
    except _DAMAGE as error:
        raise DataError(f"{path}: is not a complete compressed file: {error}") from None
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
    yield from rows_in(text_chunks(stream, name, decoder), decoder)


def text_chunks(stream: BinaryIO, name: str, decoder: TextDecoder) -> Iterator[bytes]:
    """Yield the bytes of a stream of text in the `row_encoding` of its decoder, the first line or CHUNK bytes together.

    Raises DataError as `rows_of` does.
    """
    chunks, head = chunks_of(stream, name), b""
    while len(head) < CHUNK and b"\n" not in head and (chunk := next(chunks, b"")):
        head += chunk
    _check_text_file(head, name, decoder)
    chunks = decoder.to_utf8(chain([head], chunks))
    first = next(chunks, b"").removeprefix(BOM)
    if b"\n" not in first and b"\r" in first.rstrip(b"\r"):
        raise DataError(f"{name}: its lines end in CR alone; convert them to LF: tr '\\r' '\\n'")
    yield first
    yield from chunks


def rows_in(chunks: Iterable[bytes], decoder: TextDecoder) -> Iterator[Row]:
    """Yield the rows of `text_chunks`."""
    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
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


def labels_beside(path: Path) -> Path | None:
    """Return the file beside a text file, with "label" in its name and as many lines, that seems to have its labels."""
    with contextlib.suppress(DataError, OSError):
        rows = sum(1 for _ in rows_of_file(path))
        for other in sorted(path.parent.glob(f"*[Ll]abel*{path.suffix}")):
            if "label" not in path.name.casefold() and sum(1 for _ in rows_of_file(other)) == rows:
                return other
    return None


def chunks_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes of the stream as they arrive. Returns a pipe's first bytes without waiting for more."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    try:
        while chunk := read(CHUNK):
            yield chunk
    except _DAMAGE as error:
        raise DataError(f"{name}: is not a complete compressed file: {error}") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}") from None


def encoding_of(path: Path, likely: str) -> tuple[str, str]:
    """Return the encoding of a file or folder, and a remark on it if it is neither UTF-8 nor the `likely` one.

    It is `likely` if a file has fewer rows with a fault in it and most of the file's characters beyond ASCII are not UTF-8. A
    folder is as likely. Else it is another one if every row decodes in it, and no other is as likely.
    """
    likely = canonical_encoding(likely)
    if path.is_dir():
        return likely, ""
    if likely != UTF8:
        (faults, foreign), (others, _) = _faults_in(path, UTF8), _faults_in(path, likely)
        if others < faults and foreign > 0:
            return likely, ""
    guess = None if _is_utf8(path) else _guess(path)
    if guess is None or not guess.is_clear or _faults_in(path, guess.encoding)[0]:
        return UTF8, ""
    return canonical_encoding(guess.encoding), f"not UTF-8, read as {guess}; --encoding names another"


def _is_utf8(path: Path) -> bool:
    """Return whether all bytes of a file are UTF-8, or it cannot be read."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    try:
        with open_file(path) as file:
            for chunk in chunks_of(file, str(path)):
                decoder.decode(chunk)
    except UnicodeDecodeError:
        return False
    except DataError:  # reading the file says what is wrong with it
        pass
    return True


def _guess(path: Path) -> Guess | None:
    """Return the likely encoding of a file that is not UTF-8, or None if none is likely."""
    decoder = TextDecoder(checks=False)
    with contextlib.suppress(DataError):
        for content, *_ in rows_of_file(path, decoder):
            decoder.decode(content)
    return decoder.guess


def _faults_in(path: Path, encoding: str) -> tuple[float, float]:
    """Return how many rows of a file cannot be decoded, and how many more characters beyond ASCII cannot be than can.

    Both are infinite for a file that cannot be read, or is not text in this encoding.
    """
    decoder, faults, foreign = TextDecoder(encoding), 0, 0
    try:
        for content, *_ in rows_of_file(path, decoder):
            text, fault = decoder.decode(content)
            faults += fault is not None
            foreign += 2 * text.count("\ufffd") - (len(text) - len(text.encode("ascii", "ignore")))
    except DataError:
        return math.inf, math.inf
    return faults, foreign


def _check_text_file(head: bytes, name: str, decoder: TextDecoder) -> None:
    """Raise DataError with the kind of a file whose first bytes are not text in the encoding of `decoder`."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            raise DataError(f"{name}: is {kind}")
    if decoder.by_row and head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name}: is UTF-16; name it with --encoding utf-16", options=("--encoding", "utf-16"))
    if decoder.by_row and len(head) >= 8 and head.count(0) * 3 >= len(head):
        what = "UTF-16 without a byte order mark (--encoding utf-16-le or utf-16-be), or a binary file"
        raise DataError(f"{name}: is {what}; expected UTF-8 text")
    if doubt := decoder.doubt(head):
        raise DataError(f"{name}: {doubt}")
