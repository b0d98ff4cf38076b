"""The output of `recur predict`: standard output, a pipe, a device or a file, and the progress that a resume continues from."""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from recurcli.data.formats.rows import Record
from recurcli.errors import ModelError, StorageError, UsageError, check_not_both, escaped
from recurcli.facts import Facts
from recurcli.files import OutputKind, check_ending, check_writable, is_stream, read_limited, write_atomically

MAX_BYTES = 16 << 20
GZIPPED = ".gz"
_STANDARD = ("-", "/dev/stdout", "/dev/fd/1")

_EMPTY = hashlib.sha256().hexdigest()


@dataclass
class PredictionProgress:
    """Counts and digests up to the end of a window of rows."""

    rows: int = 0
    """Rows read, without a header."""
    faults: int = 0
    """Number of rows that could not be read completely."""
    first_fault: str | None = None
    unlabelled: int = 0
    """Number of rows whose score was below the threshold."""
    hint: str = ""
    """The likely encoding of the input, if rows could not be decoded (`TextDecoder.hint`)."""
    truncated: int = 0
    """Number of rows that were truncated to the model's max_length tokens."""
    input_sha256: str = _EMPTY
    """Hash of the rows read; used only if the output can be resumed."""
    size: int = 0
    """Bytes written."""
    output_sha256: str = _EMPTY
    replaces: bool = False
    """Whether the output replaces a finished file."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that a resume compares; see `recurcli.facts`."""

    def count(self, name: str, record: Record, fault: str | None) -> None:
        """Count a row of the input `name`."""
        self.rows += 1
        if fault:
            self.faults += 1
            self.first_fault = self.first_fault or f"{escaped(name, limit=4000)}:{record.line}: {fault}"

    def write(self, path: Path) -> None:
        """Write this progress as JSON to `path`, atomically."""
        write_atomically(path, json.dumps({"sha256": self._sha256(), "progress": dataclasses.asdict(self)}, indent=2))

    @classmethod
    def read(cls, path: Path) -> "PredictionProgress | None":
        """Return the progress stored at `path`; None if it is missing, damaged or from another version of recur."""
        try:
            stored = json.loads(read_limited(path, MAX_BYTES))
            progress = cls(**stored["progress"])
            return progress if stored["sha256"] == progress._sha256() else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ModelError):
            return None

    def _sha256(self) -> str:
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()


def check_prediction_output(output: Path, source: Path, kind: OutputKind, *, overwrite: bool, resume: bool) -> None:
    """Raise UsageError if `output` is no output of this `kind`, the input, or a stream with `resume`.

    For a file: raises as `check_writable` does.
    """
    check_not_both(resume=resume, overwrite=overwrite)
    if resume and is_stream(output):
        raise UsageError("--resume needs an output file, because a stream cannot be continued; name one with --output")
    read = _path_of(sys.stdin) if str(source) == "-" else source
    if str(output) in _STANDARD:
        if read and read.is_file() and (written := _path_of(sys.stdout)) and read.samefile(written):
            raise UsageError("standard output is the input file as well; name another file with --output")
    elif is_stream(output) and not output.is_dir():
        if has_ending(output):
            check_ending(output, kind)
    else:
        check_writable(output, kind, overwrite=overwrite, resume=resume, inputs=[read] if read else [])


def has_ending(output: Path) -> bool:
    """Whether the name of `output` says what it holds. That of standard output or of /dev/fd/N does not."""
    return str(output) not in _STANDARD and not str(output).startswith("/dev/")


def is_gzipped(output: Path) -> bool:
    """Whether `output` is compressed."""
    return has_ending(output) and output.name.endswith(GZIPPED)


def is_terminal(output: Path) -> bool:
    """Whether `output` is standard output on a terminal."""
    return str(output) in _STANDARD and sys.stdout.isatty()


def _path_of(stream: object) -> Path | None:
    """Return a path by which the file of a standard stream can be looked at; None if it has no file descriptor."""
    try:
        return Path(f"/dev/fd/{stream.fileno()}")  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None


class OutputStream:
    """An unbuffered output, named in its errors; control characters are escaped for a terminal."""

    resumable = False
    """Whether the written rows are kept if the command stops early."""
    complete = False
    """Whether an earlier run has written all rows, so that nothing is to be written."""

    def __init__(self, stream: BinaryIO, name: str, *, terminal: bool = False, gzipped: bool = False) -> None:
        self._stream = stream
        self._name = name
        self._terminal = terminal
        self._gzipped = gzipped
        self.notes: list[str] = []
        """Warnings about an earlier run that cannot be resumed exactly."""

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Start writing. Returns the progress to continue from, which is zero for a stream."""
        return PredictionProgress()

    def save(self, progress: PredictionProgress) -> None:
        """Store the progress after all rows of a window are written."""

    def write(self, data: bytes) -> None:
        """Write and flush `data`, as a member of its own in a gzip file, so that a resume continues to the same bytes.

        Raises BrokenPipeError if the reader has closed the pipe, StorageError for other failures.
        """
        self._append(gzip.compress(data, mtime=0) if self._gzipped else _shown(data) if self._terminal else data)

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._stream.write(left) :]
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StorageError(f"{self._name}: cannot be written: {error.strerror or error}") from None


def make_blocking(stream: TextIO) -> None:
    """Let reads and writes of `stream` wait: a parent process may share a pipe in non-blocking mode."""
    with contextlib.suppress(OSError, ValueError):
        os.set_blocking(stream.fileno(), True)


@contextlib.contextmanager
def open_stream(output: Path) -> Iterator[OutputStream]:
    """Open standard output, a FIFO or a device for the length of the block."""
    if str(output) in _STANDARD:
        make_blocking(sys.stdout)
        yield OutputStream(sys.stdout.buffer, "standard output", terminal=is_terminal(output))
        return
    # Unbuffered: what a full disk refuses must not be tried once more when the file is closed.
    with output.open("wb", buffering=0) as stream:
        yield OutputStream(stream, str(output), gzipped=is_gzipped(output))


def _shown(data: bytes) -> bytes:
    """`data` with the control and bidi characters in it, but for TAB and LF, as escapes."""
    text = data.decode(errors="replace")
    if text.isprintable():
        return data
    return "".join(
        character
        if character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    ).encode()
