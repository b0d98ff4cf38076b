"""A file of predictions, which appears when all of it is written and can be resumed after any stop.

Until it is complete its bytes are in `.NAME.partial` beside it, which is locked while a process writes it, and its
`PredictionProgress` is in `.NAME.progress.json`. A resume cuts off what was written after that, and makes it again.
"""

import contextlib
import dataclasses
import glob
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from recurcli.commands.prediction.output import OutputStream, is_stream, open_stream
from recurcli.commands.prediction.progress import PredictionProgress
from recurcli.errors import DataError, ModelError, NumericError, StorageError, UsageError
from recurcli.facts import Facts, as_stored, first_difference, require_same
from recurcli.files import is_locked, locked, sync_directory, sync_file, writing

SECONDS_BETWEEN_JOURNALS = 2.0
REFUSALS = (UsageError, DataError, ModelError, NumericError)
"""Errors that the same command would end with again: nothing is kept for a resume."""


class PredictionFile(OutputStream):
    """The unfinished file `output`; `claimed` opens one."""

    resumable = True

    def __init__(self, output: Path, stream: BinaryIO) -> None:
        super().__init__(stream, str(output))
        self.output = output
        self._digest = hashlib.sha256()
        self._saved = time.monotonic()
        self._progress = PredictionProgress(replaces=os.path.lexists(output))
        self._earlier: PredictionProgress | None = None
        """Rows of another run that this one has neither resumed nor replaced yet: they survive an error."""
        self._resume = False

    def check_earlier(self, *, resume: bool, overwrite: bool) -> None:
        """Read what an earlier run has left; UsageError if it may be neither resumed nor replaced."""
        size = os.fstat(self._stream.fileno()).st_size
        earlier = PredictionProgress.read(journal_of(self.output))
        if earlier and not (self._is_unchanged(earlier) if resume else size >= earlier.size):
            earlier = None
        if earlier and earlier.rows:
            self._earlier, self._resume = earlier, resume
        if self._progress.replaces and not overwrite and not (resume and earlier and earlier.replaces):
            raise UsageError(f"{self.output}: exists already; replace it with --overwrite")
        if self._earlier:
            if not resume and not overwrite:
                raise UsageError(
                    f"{self.output}: {self._earlier.rows:,} rows of it are done; "
                    "go on with --resume, or start anew with --overwrite"
                )
            return
        if resume and not earlier and (size or journal_of(self.output).exists()):
            self.notes.append(f"{self.output}: what is left of an earlier run is damaged; starting anew")
        self._record()

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Resume the earlier run, or start anew; returns the progress to go on from, a copy.

        Raises UsageError or DataError if the earlier run had other options or another input.
        """
        facts = as_stored({"options": options, "input": input, "machine": machine})
        if self._earlier and self._resume:
            earlier = self._earlier.facts
            require_same(earlier["options"], options, self.output)
            if difference := first_difference(earlier["input"], input):
                raise DataError(
                    f"{self.output}: was begun with another input: {difference}; start anew with --overwrite"
                )
            if difference := first_difference(earlier["machine"], machine):
                self.notes.append(f"{difference}: the run goes on, but last digits of scores may differ")
            self._progress = dataclasses.replace(self._earlier, facts=facts)
        else:
            self._earlier, self._digest = None, hashlib.sha256()
            self._progress.facts = facts
            self._record()
        self._cut()
        return dataclasses.replace(self._progress)

    def write(self, data: bytes) -> None:
        """Append `data`; StorageError if there is no room."""
        self._earlier = None
        super().write(data)
        self._digest.update(data)

    def save(self, progress: PredictionProgress) -> None:
        """Take over the progress at the end of a window; the journal is written every few seconds."""
        self._progress = dataclasses.replace(progress, size=self._stream.tell(), output_sha256=self._digest.hexdigest())
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_JOURNALS:
            self._record()
            self._saved = time.monotonic()

    def finish(self) -> None:
        """Rename the complete file to `output`."""
        sync_file(partial_of(self.output))
        partial_of(self.output).replace(self.output)
        journal_of(self.output).unlink(missing_ok=True)
        sync_directory(self.output.parent)

    def leave(self) -> None:
        """Keep for a resume what is done."""
        if self._earlier:
            return
        if not partial_of(self.output).exists():  # it was renamed just now
            journal_of(self.output).unlink(missing_ok=True)
        elif not self._progress.rows and not self._progress.replaces:
            self.drop()
        else:
            with contextlib.suppress(OSError, StorageError):  # on a full disk the last journal holds
                self._cut()
                self._record()

    def drop(self) -> None:
        """Delete what this run has made."""
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
        """Whether the bytes of an earlier run have their digest, which `write` then continues."""
        left = earlier.size
        self._stream.seek(0)
        while left and (chunk := self._stream.read(min(left, 1 << 20))):
            self._digest.update(chunk)
            left -= len(chunk)
        return not left and self._digest.hexdigest() == earlier.output_sha256


def partial_of(output: Path) -> Path:
    """The path of the bytes of an unfinished `output`."""
    return output.with_name(f".{output.name}.partial")


def journal_of(output: Path) -> Path:
    """The path of the progress of an unfinished `output`."""
    return output.with_name(f".{output.name}.progress.json")


def is_complete(output: Path) -> bool:
    """Whether a resume has nothing to do; deletes the journal of a run that was killed after its last byte."""
    complete = os.path.lexists(output) and not os.path.lexists(partial_of(output))
    if complete:
        journal_of(output).unlink(missing_ok=True)
    return complete


def rows_kept(output: Path) -> int:
    """The number of rows that a resume need not make again; 0 while a process works on them."""
    try:
        progress = None if is_locked(partial_of(output)) else PredictionProgress.read(journal_of(output))
    except OSError:
        return 0
    return progress.rows if progress else 0


@contextlib.contextmanager
def naming_the_resume(output: Path) -> Iterator[None]:
    """Add to an error that ends the block how to resume `output`, if rows of it are done."""
    try:
        yield
    except REFUSALS:
        raise
    except BaseException as error:
        if not is_stream(output) and (rows := rows_kept(output)):
            error.add_note(f"{rows:,} rows are done; go on with the same command and --resume")
        raise


def open_output(output: Path, stack: contextlib.ExitStack, *, resume: bool, overwrite: bool) -> OutputStream:
    """Open `output`, a file or a stream, until `stack` closes it."""
    if is_stream(output):
        return open_stream(output, stack)
    return stack.enter_context(claimed(output, resume=resume, overwrite=overwrite))


@contextlib.contextmanager
def claimed(output: Path, *, resume: bool, overwrite: bool) -> Iterator[PredictionFile]:
    """Lock the file `output`: renamed to its name at the end of the block, kept for a resume after a stop.

    After one of the REFUSALS what the block has made is deleted. Raises StorageError at once if another process holds
    the lock, UsageError if an earlier run has left what must not be lost.
    """
    busy = f"{output}: another recur predict is writing it"
    with locked(partial_of(output), busy=busy, target=output) as stream:
        for leftover in output.parent.glob(f".{glob.escape(journal_of(output).name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
        file = PredictionFile(output, stream)
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
