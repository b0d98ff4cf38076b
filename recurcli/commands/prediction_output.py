"""Where the rows of `recur predict` go: standard output, a pipe, or a file that appears when all of it is written."""

import contextlib
import os
import stat
import sys
import unicodedata
from pathlib import Path
from typing import BinaryIO

from recurcli.errors import StorageError, UsageError
from recurcli.files import replacing

_STANDARD = ("-", "/dev/stdout", "/dev/fd/1")


def refuse_output(output: Path, source: Path, *, overwrite: bool) -> None:
    """Raise UsageError if writing to `output` would destroy something: the input, or what nobody said to replace."""
    if str(output) in _STANDARD:
        if _is_input(source, _descriptor_stat(sys.stdout)):
            raise UsageError("standard output is the input file as well; name another file with --output")
        return
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file with --output")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another --output")
    if _is_stream(output) or not os.path.lexists(output):
        return
    if output.exists() and _is_input(source, output.stat()):
        raise UsageError(f"{output}: is the input as well; choose another --output")
    if not overwrite:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")


def _is_stream(output: Path) -> bool:
    """Whether bytes can only be sent there: a FIFO, a device, /dev/fd/N of a process substitution."""
    return str(output).startswith("/dev/") or (output.exists() and not output.is_file())


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


class Sink:
    """A place for bytes that names itself when it is full; control characters do not reach a terminal."""

    def __init__(self, stream: BinaryIO, name: str, *, terminal: bool = False) -> None:
        self._stream = stream
        self._name = name
        self._terminal = terminal

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


def open_output(output: Path, stack: contextlib.ExitStack) -> Sink:
    """The sink for `output`, closed by `stack`; a file is put in its place then, or taken away if something failed."""
    if str(output) in _STANDARD:
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(
                sys.stdout.fileno(), True
            )  # a parent may share a pipe that says "not now" instead of waiting
        return Sink(sys.stdout.buffer, "standard output", terminal=sys.stdout.isatty())
    # Unbuffered: what a full disk refuses must not be tried once more when the file is closed.
    target = output if _is_stream(output) else stack.enter_context(replacing(output))
    return Sink(stack.enter_context(target.open("wb", buffering=0)), str(output))


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
