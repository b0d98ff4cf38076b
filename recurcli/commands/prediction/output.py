"""The output of `recur predict`: standard output, a pipe, a device, or a file that can be resumed after any stop.

A file appears when it is complete. Until then its bytes are in `.NAME.partial` in the same folder, which is locked during
writing, and its `PredictionProgress` is in `.NAME.progress.json`. A resume truncates the bytes that the progress does not
count, and predicts those rows again. After a command with --resume the progress stays beside the complete file: it says by
which run, options and input it was written, so that the same command passes over it, and another one is refused.
"""

import contextlib
import dataclasses
import glob
import gzip
import hashlib
import json
import os
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from recurcli.data.rows import Record
from recurcli.errors import (
    DataError,
    ModelError,
    NumericError,
    StorageError,
    UsageError,
    check_not_both,
    escaped,
    pluralize,
)
from recurcli.facts import Facts, as_stored, check_same, first_difference
from recurcli.files import (
    OutputKind,
    check_ending,
    check_writable,
    is_locked,
    is_stream,
    locked,
    read_limited,
    size_and_hash,
    sync_directory,
    sync_file,
    write_atomically,
    writing,
)

MAX_BYTES = 16 << 20
GZIPPED = ".gz"
_STANDARD = ("-", "/dev/stdout", "/dev/fd/1")

SECONDS_BETWEEN_JOURNALS = 2.0
COMPLETE = "complete"
"""The fact that marks the progress of a complete file."""
REFUSALS = (UsageError, DataError, ModelError, NumericError)
"""Errors that the same command would raise again, so nothing is kept for a resume."""
_EMPTY = hashlib.sha256().hexdigest()


@dataclass
class PredictionProgress:
    """The progress of a prediction at the end of a window of rows: counts of rows, and digests of input and output."""

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
        """Return the progress stored at `path`. Return None if it is missing, damaged or from another version of recur."""
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
    """Return a path by which the file of a standard stream can be looked at, or None if it has no file descriptor."""
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


class PredictionFile(OutputStream):
    """The unfinished file `output`, opened by `open_output`."""

    resumable = True

    def __init__(self, output: Path, stream: BinaryIO) -> None:
        super().__init__(stream, str(output), gzipped=is_gzipped(output))
        self.output = output
        self._digest = hashlib.sha256()
        self._saved = time.monotonic()
        self._progress = PredictionProgress(replaces=os.path.lexists(output))
        self._earlier: PredictionProgress | None = None
        """Progress of an earlier run that is not yet resumed or replaced; an error keeps it."""
        self._resume = False
        self._keeps_progress = False

    def check_earlier(self, *, resume: bool, overwrite: bool) -> None:
        """Read the progress of an earlier run. Raises UsageError if the options allow neither to resume nor to replace it."""
        self._keeps_progress = resume
        size = os.fstat(self._stream.fileno()).st_size
        earlier = PredictionProgress.read(journal_of(self.output))
        if earlier and not size and COMPLETE in earlier.facts:  # its file was deleted
            journal_of(self.output).unlink()
            earlier = None
        if earlier and not (self._is_unchanged(earlier) if resume else size >= earlier.size):
            earlier = None
        if earlier and earlier.rows:
            self._earlier, self._resume = earlier, resume
        if self._progress.replaces and not overwrite and not (resume and earlier and earlier.replaces):
            raise UsageError(f"{self.output}: exists already; replace it with --overwrite")
        if self._earlier:
            if not resume and not overwrite:
                raise UsageError(
                    f"{self.output}: has {pluralize(self._earlier.rows, 'finished row')}; "
                    "continue with --resume, or start again with --overwrite"
                )
            return
        if resume and not earlier and (size or journal_of(self.output).exists()):
            self.notes.append(f"{self.output}: what is left of an earlier run is damaged; starting again")
        self._record()

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Resume the earlier run, or start anew. Returns a copy of the progress to continue from.

        Raises UsageError if the earlier run had different options, DataError if it had a different input.
        """
        facts = as_stored({"options": options, "input": input, "machine": machine})
        if self._earlier and self._resume:
            _check_same_run(self.output, self._earlier, options, input)
            if difference := first_difference(self._earlier.facts["machine"], machine):
                self.notes.append(f"{difference}: the run continues, but last digits of scores may differ")
            self._progress = dataclasses.replace(self._earlier, facts=facts)
        else:
            self._earlier, self._digest = None, hashlib.sha256()
            self._progress.facts = facts
            self._record()
        self._cut()
        return dataclasses.replace(self._progress)

    def _append(self, data: bytes) -> None:
        self._earlier = None
        super()._append(data)
        self._digest.update(data)

    def save(self, progress: PredictionProgress) -> None:
        """Store the progress after a window; it is written to disk every few seconds."""
        self._progress = dataclasses.replace(progress, size=self._stream.tell(), output_sha256=self._digest.hexdigest())
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_JOURNALS:
            self._record()
            self._saved = time.monotonic()

    def finish(self) -> None:
        """Rename the complete file to `output`."""
        facts = {**self._progress.facts, COMPLETE: True}
        digest = self._digest.hexdigest()
        self._progress = dataclasses.replace(
            self._progress, size=self._stream.tell(), output_sha256=digest, facts=facts
        )
        self._record()
        sync_file(partial_of(self.output))
        partial_of(self.output).replace(self.output)
        self._forget()
        sync_directory(self.output.parent)

    def leave(self) -> None:
        """Keep the finished rows for a resume."""
        if self._earlier:
            return
        if not partial_of(self.output).exists():  # it was just renamed
            self._forget()
        elif not self._progress.rows and not self._progress.replaces:
            self.drop()
        else:
            with contextlib.suppress(OSError, StorageError):  # on a full disk the previous progress remains valid
                self._cut()
                self._record()

    def _forget(self) -> None:
        if not self._keeps_progress:
            journal_of(self.output).unlink(missing_ok=True)

    def drop(self) -> None:
        """Delete the files of this run."""
        if not self._earlier:
            journal_of(self.output).unlink(missing_ok=True)
            partial_of(self.output).unlink(missing_ok=True)

    def _record(self) -> None:
        with writing(self.output):
            os.fsync(self._stream.fileno())
            self._progress.write(journal_of(self.output))

    def _cut(self) -> None:
        self._stream.truncate(self._progress.size)
        self._stream.seek(self._progress.size)

    def _is_unchanged(self, earlier: PredictionProgress) -> bool:
        """Whether the bytes of an earlier run still have their hash; `write` then continues the hash."""
        left = earlier.size
        self._stream.seek(0)
        while left and (chunk := self._stream.read(min(left, 1 << 20))):
            self._digest.update(chunk)
            left -= len(chunk)
        return not left and self._digest.hexdigest() == earlier.output_sha256


class CompleteFile(OutputStream):
    """A complete output file. A resume compares its facts, and writes nothing.

    Raises UsageError if no progress beside the file says how it was written, or if it was changed since then.
    """

    resumable = complete = True

    def __init__(self, output: Path) -> None:
        self.output, self.notes = output, []
        earlier = PredictionProgress.read(journal_of(output))
        if earlier is None or COMPLETE not in earlier.facts:
            raise UsageError(
                f"{output}: is complete, but nothing says by which run and options; --overwrite writes it again"
            )
        if not output.is_file() or size_and_hash(output) != (earlier.size, earlier.output_sha256):
            raise UsageError(f"{output}: was changed since it was written; --overwrite writes it again")
        self._earlier = earlier

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Return the progress of the run that wrote the file. Raises UsageError or DataError if it was another run."""
        _check_same_run(self.output, self._earlier, options, input)
        return dataclasses.replace(self._earlier)


def _check_same_run(output: Path, earlier: PredictionProgress, options: Facts, input: Facts) -> None:
    """Raise UsageError if the earlier run had different options, DataError if it had a different input."""
    check_same(earlier.facts["options"], options, output)
    if difference := first_difference(earlier.facts["input"], input):
        raise DataError(f"{output}: was started with another input: {difference}; start again with --overwrite")


def partial_of(output: Path) -> Path:
    """Return the path of the file that holds the rows of `output` until it is complete."""
    return output.with_name(f".{output.name}.partial")


def journal_of(output: Path) -> Path:
    """Return the path of the progress of an unfinished `output`."""
    return output.with_name(f".{output.name}.progress.json")


def is_complete(output: Path) -> bool:
    """Whether `output` is complete."""
    return os.path.lexists(output) and not os.path.lexists(partial_of(output))


def rows_kept(output: Path) -> int:
    """Return the number of rows that a resume would skip. It is 0 while another process writes them."""
    try:
        progress = None if is_locked(partial_of(output)) else PredictionProgress.read(journal_of(output))
    except OSError:
        return 0
    return progress.rows if progress else 0


@contextlib.contextmanager
def naming_the_resume(output: Path) -> Iterator[None]:
    """Add a note to an exception that leaves the block: --resume continues `output`, if it has finished rows."""
    try:
        yield
    except REFUSALS:
        raise
    except BaseException as error:
        if not is_stream(output) and (rows := rows_kept(output)):
            error.add_note(f"{pluralize(rows, 'row', 'are')} done; continue with the same command and --resume")
        raise


@contextlib.contextmanager
def open_output(output: Path, *, resume: bool, overwrite: bool) -> Iterator[OutputStream]:
    """Open `output`, a stream or a file, for the length of the block.

    A file is locked. The end of the block renames it to its final name; a stop keeps it for a resume; after one of the
    REFUSALS, the files of this run are deleted. Raises StorageError without waiting if another process holds the lock,
    UsageError if the options would destroy the rows of an earlier run.
    """
    if is_stream(output):
        with open_stream(output) as stream:
            yield stream
        return
    if resume and is_complete(output):
        yield CompleteFile(output)
        return
    busy = f"{output}: another recur predict is writing it"
    with locked(partial_of(output), busy=busy, target=output) as opened:
        for leftover in output.parent.glob(f".{glob.escape(journal_of(output).name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
        file = PredictionFile(output, opened)
        try:
            file.check_earlier(resume=resume, overwrite=overwrite)
            yield file
            file.finish()
        except REFUSALS:
            file.drop()
            raise
        except BaseException:
            file.leave()
            raise
