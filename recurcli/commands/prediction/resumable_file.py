"""An output file of `recur predict`. It appears when it is complete, and can be resumed after any stop.

Until then its bytes are in `.NAME.partial` in the same folder, which is locked during writing, and its `PredictionProgress`
is in `.NAME.progress.json`. A resume truncates the bytes that the progress does not count, and predicts those rows again.
After a command with --resume the progress stays beside the complete file: it says by which run, options and input it was
written, so that the same command passes over it, and another one is refused.
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

from recurcli.commands.prediction.output import OutputStream, PredictionProgress, is_gzipped, open_stream
from recurcli.errors import DataError, ModelError, NumericError, StorageError, UsageError, pluralize
from recurcli.facts import Facts, as_stored, check_same, first_difference
from recurcli.files import is_locked, is_stream, locked, sha256_of, sync_directory, sync_file, writing

SECONDS_BETWEEN_JOURNALS = 2.0
COMPLETE = "complete"
"""The fact that marks the progress of a complete file."""
REFUSALS = (UsageError, DataError, ModelError, NumericError)
"""Errors that the same command would raise again, so nothing is kept for a resume."""


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
        if not output.is_file() or (output.stat().st_size, sha256_of(output)) != (earlier.size, earlier.output_sha256):
            raise UsageError(f"{output}: was changed since it was written; --overwrite writes it again")
        self._earlier = earlier

    def begin(self, *, options: Facts, input: Facts, machine: Facts) -> PredictionProgress:
        """Return the progress of the run that wrote the file; raises UsageError or DataError if it was another run."""
        _check_same_run(self.output, self._earlier, options, input)
        return dataclasses.replace(self._earlier)


def _check_same_run(output: Path, earlier: PredictionProgress, options: Facts, input: Facts) -> None:
    """Raise UsageError if the earlier run had different options, DataError if it had a different input."""
    check_same(earlier.facts["options"], options, output)
    if difference := first_difference(earlier.facts["input"], input):
        raise DataError(f"{output}: was started with another input: {difference}; start again with --overwrite")


def partial_of(output: Path) -> Path:
    """Return the path of the bytes of an unfinished `output`."""
    return output.with_name(f".{output.name}.partial")


def journal_of(output: Path) -> Path:
    """Return the path of the progress of an unfinished `output`."""
    return output.with_name(f".{output.name}.progress.json")


def is_complete(output: Path) -> bool:
    """Whether `output` is complete."""
    return os.path.lexists(output) and not os.path.lexists(partial_of(output))


def rows_kept(output: Path) -> int:
    """Return the number of rows that a resume would skip; 0 while another process writes them."""
    try:
        progress = None if is_locked(partial_of(output)) else PredictionProgress.read(journal_of(output))
    except OSError:
        return 0
    return progress.rows if progress else 0


@contextlib.contextmanager
def naming_the_resume(output: Path) -> Iterator[None]:
    """Add a note on --resume to an exception of the block, if rows of `output` are finished."""
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
