"""What the bytes of a text file say before they are rows: its line ends, and byte order marks where none belongs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recurcli.data.formats.rows import BOM, CHUNK, open_file

LATER_MARK = b"\n" + BOM
"""Where a file with a byte order mark was put behind another."""


@dataclass(frozen=True, kw_only=True)
class FileBytes:
    """Counts of what ends the lines of a file."""

    lf: int
    """Lines that end in LF alone."""
    crlf: int
    marks: int
    """Lines but the first that begin with a byte order mark."""
    first_mark: int | None
    """The line of the first of them."""
    starts_with_mark: bool

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping."""
        return asdict(self)


def line_ends_of(path: Path) -> FileBytes:
    """Read the file `path` (perhaps .gz) once; raises DataError if it cannot be opened, OSError or EOFError later."""
    ends = crlf = marks = 0
    first_mark: int | None = None
    with open_file(path) as file:
        tail = head = file.read(len(BOM))
        ends, crlf = head.count(b"\n"), head.count(b"\r\n")
        for chunk in iter(lambda: file.read(16 * CHUNK), b""):
            joined = tail + chunk  # what the tail alone holds was counted before
            found = joined.count(LATER_MARK)
            if found and first_mark is None:
                first_mark = ends - tail.count(b"\n") + joined[: joined.index(LATER_MARK)].count(b"\n") + 2
            marks += found
            crlf += joined.count(b"\r\n") - tail.count(b"\r\n")
            ends += chunk.count(b"\n")
            tail = joined[-len(BOM) :]
    return FileBytes(lf=ends - crlf, crlf=crlf, marks=marks, first_mark=first_mark, starts_with_mark=head == BOM)
