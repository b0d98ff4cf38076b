"""The output of `recur predict`: standard output, a pipe, a device, or a file that can be resumed after any stop.

A file appears when it is complete. Until then its bytes are in `.NAME.partial` in the same folder, which is locked during
writing, and its `PredictionProgress` is in `.NAME.progress.json`. A resume truncates the bytes that the progress does not
count, and predicts those rows again.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
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
from recurcli.files import (
    OutputKind,
    check_ending,
    check_writable,
    is_stream,
    locked,
    read_limited,
    storage_errors,
    sync_directory,
    sync_file,
    write_atomically,
)
from recurcli.log import Log
from recurcli.runs.run_directory import Facts, as_stored, check_same, first_difference
from recurcli.targets.target import Cell, labels_in

MAX_BYTES = 16 << 20


def _zst(data: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": _zst,
}
"""What compresses a window of rows, by the ending of the output. The compressed windows of a file follow each other."""
PARQUET = ".parquet"
BATCHES_OF_GROUP = 64
"""Windows of rows in a row group of Parquet."""
_STANDARD = ("-", "/dev/stdout", "/dev/fd/1")

SECONDS_BETWEEN_JOURNALS = 2.0
REFUSALS = (UsageError, DataError, ModelError, NumericError)
"""Errors that the same command would raise again, so nothing is kept for a resume."""
_EMPTY = hashlib.sha256().hexdigest()


@dataclass
class PredictionProgress:
    """The progress of a prediction at the end of a window of rows: counts of rows, and digests of input and output."""

    rows: int = 0
    """Rows read, without a header."""
    faults: int = 0
    first_fault: str | None = None
    labels: dict[str, int] = field(default_factory=dict)
    """Number of rows with each label; that of "" is the number of rows without one, such as those below the threshold."""
    ends: list[float] = field(default_factory=list)
    """The smallest and the largest predicted number."""
    truncated: int = 0
    """Number of rows that were truncated to the model's max_length tokens."""
    input_sha256: str = _EMPTY
    """Hash of the rows read; used only if the output can be resumed."""
    size: int = 0
    output_sha256: str = _EMPTY
    replaces: bool = False
    """Whether the output replaces a finished file."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that a resume compares, as `OutputStream.begin` takes them."""

    def count(self, name: str, record: Record, fault: str | None) -> None:
        """Count a row of the input `name`."""
        self.rows += 1
        if fault:
            self.faults += 1
            self.first_fault = self.first_fault or f"{escaped(name, limit=4000)}:{record.line}: {fault}"

    def count_label(self, label: Cell) -> None:
        """Count the label or the labels of a row, or keep the ends of its number; "" stands for no label."""
        if isinstance(label, float):
            self.ends = [min(label, *self.ends), max(label, *self.ends)] if self.ends else [label, label]
        else:
            for each in labels_in(label) or ("",):
                self.labels[each] = self.labels.get(each, 0) + 1

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


def check_prediction_output(
    output: Path, inputs: Sequence[Path], kind: OutputKind, *, overwrite: bool, resume: bool
) -> None:
    """Raise UsageError if `output` is not an output of this `kind`, an input, or a stream with `resume` or of Parquet.

    For a file: raises as `check_writable` does.
    """
    check_not_both(resume=resume, overwrite=overwrite)
    if resume and is_stream(output):
        raise UsageError("--resume needs an output file, because a stream cannot be continued; name one with --output")
    if is_stream(output) and (kind.endings == (PARQUET,) or (has_ending(output) and output.suffix == PARQUET)):
        raise UsageError("Parquet cannot be written to a stream; name a file with --output x.parquet")
    read = [path for each in inputs if (path := _path_of(sys.stdin) if str(each) == "-" else each)]
    if str(output) in _STANDARD:
        written = _path_of(sys.stdout)
        if written and any(path.is_file() and path.samefile(written) for path in read):
            raise UsageError("standard output is the input file as well; name another file with --output")
    elif is_stream(output) and not output.is_dir():
        if has_ending(output):
            check_ending(output, kind)
    else:
        check_writable(output, kind, overwrite=overwrite, resume=resume, inputs=read)


def has_ending(output: Path) -> bool:
    """Whether the name of `output` says what it holds. That of standard output or of /dev/fd/N does not."""
    return str(output) not in _STANDARD and not str(output).startswith("/dev/")


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

    def __init__(self, stream: BinaryIO, output: Path) -> None:
        self._stream = stream
        self._terminal = is_terminal(output)
        self._compress = COMPRESS.get(output.suffix) if has_ending(output) else None
        self.output = output

    def begin(self, facts: dict[str, Facts]) -> PredictionProgress:
        """Return the progress to continue from; it is zero without an earlier run.

        `facts`: the "options" and the facts of the "input", which a resume must match, and of the "machine".
        """
        return PredictionProgress()

    def save(self, progress: PredictionProgress) -> None:
        """Store the progress after all rows of a window are written."""

    def write(self, data: bytes) -> None:
        """Write and flush `data`, compressed on its own in a compressed file, so that a resume continues to the same bytes.

        Raises BrokenPipeError if the reader has closed the pipe, StorageError for other failures.
        """
        self._append(self._compress(data) if self._compress else _shown(data) if self._terminal else data)

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        with storage_errors("standard output" if str(self.output) in _STANDARD else self.output):
            while left:
                left = left[self._stream.write(left) :]
            self._stream.flush()


def make_blocking(stream: TextIO) -> None:
    """Let reads and writes of `stream` wait: a parent process may share a pipe in non-blocking mode."""
    with contextlib.suppress(OSError, ValueError):
        os.set_blocking(stream.fileno(), True)


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
    """The unfinished file `output`, opened by `open_output`. What is written replaces the `earlier` run; an error keeps it."""

    resumable = True

    def __init__(self, output: Path, stream: BinaryIO, log: Log, *, resume: bool) -> None:
        super().__init__(stream, output)
        self.earlier: PredictionProgress | None = None
        """The progress of an earlier run, which has written a part of the file."""
        self._log, self._resume = log, resume
        self._digest = hashlib.sha256()
        self._saved = time.monotonic()
        self._progress = PredictionProgress(replaces=os.path.lexists(output))

    def check_earlier(self, *, overwrite: bool) -> None:
        """Read the progress of an earlier run. Raises UsageError if the options allow neither to resume nor to replace it."""
        size, journal = os.fstat(self._stream.fileno()).st_size, journal_of(self.output)
        earlier = PredictionProgress.read(journal)
        if earlier and not (self._is_unchanged(earlier) if self._resume else size >= earlier.size):
            earlier = None
        if earlier and earlier.rows:
            self.earlier = earlier
        if self._progress.replaces and not overwrite and not (self._resume and earlier and earlier.replaces):
            raise UsageError(f"{self.output}: exists already; replace it with --overwrite")
        if self.earlier and not self._resume and not overwrite:
            raise UsageError(
                f"{self.output}: has {pluralize(self.earlier.rows, 'finished row')}; "
                "continue with --resume, or start again with --overwrite"
            )
        if not self.earlier:
            if self._resume and not earlier and (size or journal.exists()):
                self._log.warn(f"{self.output}: what is left of an earlier run is damaged; starting again")
            self._record()

    def begin(self, facts: dict[str, Facts]) -> PredictionProgress:
        """Resume the earlier run, or start anew.

        Raises UsageError if the earlier run had other options, DataError if it had another input.
        """
        facts = as_stored(facts)
        if self.earlier and self._resume:
            check_same(self.earlier.facts["options"], facts["options"], self.output)
            if difference := first_difference(self.earlier.facts["input"], facts["input"]):
                raise DataError(f"{self.output}: was started with another input: {difference}; use --overwrite")
            self._progress = dataclasses.replace(self.earlier, facts=facts)
            if difference := first_difference(self.earlier.facts["machine"], facts["machine"]):
                self._log.warn(f"{difference}: the run continues, but last digits of scores may differ")
        else:
            self.earlier, self._digest = None, hashlib.sha256()
            self._progress.facts = dict(facts)
            self._record()
        self._cut()
        return dataclasses.replace(self._progress)

    def _append(self, data: bytes) -> None:
        self.earlier = None
        super()._append(data)
        self._digest.update(data)

    def save(self, progress: PredictionProgress) -> None:
        """Store the progress after a window; it is written to disk every few seconds."""
        self._progress = dataclasses.replace(progress, size=self._stream.tell(), output_sha256=self._digest.hexdigest())
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_JOURNALS:
            self._record()
            self._saved = time.monotonic()

    def finish(self) -> None:
        """Rename the complete file to `output`. Rows of Parquet, until now a stream of Arrow, are first written as such."""
        if self.output.suffix == PARQUET:
            write_atomically(self.output, lambda path: _to_parquet(partial_of(self.output), path))
            partial_of(self.output).unlink()
        else:
            sync_file(partial_of(self.output))
            partial_of(self.output).replace(self.output)
        journal_of(self.output).unlink(missing_ok=True)
        sync_directory(self.output.parent)

    def leave(self) -> int:
        """Keep the finished rows for a resume, and return their number."""
        partial, journal = partial_of(self.output), journal_of(self.output)
        if not self.earlier:
            if not partial.exists():  # it was just renamed
                journal.unlink(missing_ok=True)
            elif not self._progress.rows and not self._progress.replaces:
                self.drop()
            else:
                with contextlib.suppress(OSError, StorageError):  # on a full disk the previous progress remains valid
                    self._cut()
                    self._record()
        kept = PredictionProgress.read(journal) if partial.exists() else None
        return kept.rows if kept else 0

    def drop(self) -> None:
        """Delete the files of this run."""
        if not self.earlier:
            journal_of(self.output).unlink(missing_ok=True)
            partial_of(self.output).unlink(missing_ok=True)

    def _record(self) -> None:
        with storage_errors(self.output):
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


def _to_parquet(stream: Path, path: Path) -> None:
    """Write the record batches of a stream of Arrow as Parquet."""
    from pyarrow import OSFile, Table, ipc, parquet

    with (
        OSFile(str(stream)) as file,
        ipc.open_stream(file) as batches,
        parquet.ParquetWriter(path, batches.schema) as writer,
    ):
        while group := list(islice(batches, BATCHES_OF_GROUP)):
            writer.write_table(Table.from_batches(group))


def partial_of(output: Path) -> Path:
    """Return the path of the file that holds the rows of `output` until it is complete."""
    return output.with_name(f".{output.name}.partial")


def journal_of(output: Path) -> Path:
    """Return the path of the progress of an unfinished `output`."""
    return output.with_name(f".{output.name}.progress.json")


@contextlib.contextmanager
def open_output(output: Path, log: Log, *, resume: bool, overwrite: bool) -> Iterator[OutputStream]:
    """Open `output`, a stream or a file, for the length of the block.

    A file is locked. The end of the block renames it to its final name; a stop keeps it for a resume, which a note on the
    exception says; after one of the REFUSALS, the files of this run are deleted. Raises StorageError without waiting if another
    process holds the lock, UsageError if the options would destroy the rows of an earlier run.
    """
    if str(output) in _STANDARD:
        make_blocking(sys.stdout)
        yield OutputStream(sys.stdout.buffer, output)
        return
    if is_stream(output):  # unbuffered: what a full disk refuses must not be tried once more when the file is closed
        with output.open("wb", buffering=0) as stream:
            yield OutputStream(stream, output)
        return
    busy = f"{output}: another recur predict is writing it"
    with locked(partial_of(output), busy=busy, target=output) as opened:
        for name in (output.name, journal_of(output).name):
            for leftover in output.parent.glob(f".{glob.escape(name)}.*.tmp"):
                leftover.unlink(missing_ok=True)
        file = PredictionFile(output, opened, log, resume=resume)
        try:
            file.check_earlier(overwrite=overwrite)
            yield file
            file.finish()
        except REFUSALS:
            file.drop()
            raise
        except BaseException as error:
            if rows := file.leave():
                error.add_note(f"{pluralize(rows, 'row', 'are')} done; continue with the same command and --resume")
            raise
