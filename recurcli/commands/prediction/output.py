"""Where the rows of `recur predict` go, and what must not be written to: standard output, a pipe, a device, a file."""

import contextlib
import os
import stat
import sys
import unicodedata
from pathlib import Path
from typing import BinaryIO

from recurcli.commands.prediction.progress import PredictionProgress
from recurcli.errors import StorageError, UsageError
from recurcli.facts import Facts

_STANDARD = ("-", "/dev/stdout", "/dev/fd/1")


def refuse_output(output: Path, source: Path, *, overwrite: bool, resume: bool) -> None:
    """Raise UsageError if writing to `output` would destroy something: the input, or what nobody said to replace."""
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if resume and is_stream(output):
        raise UsageError("--resume goes on with a file, and what is sent to a stream is gone; name one with --output")
    if str(output) in _STANDARD:
        if _is_input(source, _descriptor_stat(sys.stdout)):
            raise UsageError("standard output is the input file as well; name another file with --output")
        return
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file with --output")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another --output")
    if is_stream(output) or not os.path.lexists(output):
        return
    if output.exists() and _is_input(source, output.stat()):
        raise UsageError(f"{output}: is the input as well; choose another --output")
    if not overwrite and not resume:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")


def is_stream(output: Path) -> bool:
    """Whether bytes can only be sent there: standard output, a FIFO, a device, /dev/fd/N of a process substitution."""
    if str(output).startswith("/dev/"):  # also where it leads to a file: that was opened by somebody else
        return not str(output).startswith("/dev/shm/")
    return str(output) == "-" or (output.exists() and not output.is_file())


def is_terminal(output: Path) -> bool:
    """Whether somebody watches the rows as they come."""
    return str(output) in _STANDARD and sys.stdout.isatty()


def _is_input(source: Path, target: os.stat_result | None) -> bool:
    """Whether the regular file `target` is where the input comes from."""
    try:
        own = _descriptor_stat(sys.stdin) if str(source) == "-" else source.stat()
    except (OSError, ValueError):
        return False
    return own is not None and target is not None and os.path.samestat(own, target) and stat.S_ISREG(own.st_mode)


def _descriptor_stat(stream: object) -> os.stat_result | None:
    """What a standard stream is connected to; None where it is no file of the system."""
    try:
        return os.fstat(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None


class OutputStream:
    """An unbuffered output, named in its errors; control characters are escaped for a terminal."""

    resumable = False
    """Whether what is written is kept when the run is stopped."""

    def __init__(self, stream: BinaryIO, name: str, *, terminal: bool = False) -> None:
        self._stream = stream
        self._name = name
        self._terminal = terminal
        self.notes: list[str] = []
        """Warnings about an earlier run that cannot be resumed as it was left."""

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Start writing. Returns the progress to go on from; always the start for a stream."""
        return PredictionProgress()

    def save(self, progress: PredictionProgress) -> None:
        """Take over the progress at the end of a window, whose rows are all written."""

    def write(self, data: bytes) -> None:
        """Write and flush all of `data`; BrokenPipeError where nobody reads any more, StorageError for the rest."""
        left = memoryview(_shown(data) if self._terminal else data)
        try:
            while left:
                left = left[self._stream.write(left) :]
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StorageError(f"{self._name}: cannot be written: {error.strerror or error}") from None


def open_stream(output: Path, stack: contextlib.ExitStack) -> OutputStream:
    """Open standard output, a FIFO or a device until `stack` closes it."""
    if str(output) in _STANDARD:
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(
                sys.stdout.fileno(), True
            )  # a parent may share a pipe that says "not now" instead of waiting
        return OutputStream(sys.stdout.buffer, "standard output", terminal=is_terminal(output))
    # Unbuffered: what a full disk refuses must not be tried once more when the file is closed.
    return OutputStream(stack.enter_context(output.open("wb", buffering=0)), str(output))


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
