"""A file of predictions, which appears when all of it is written and can be gone on with after any stop.

Until it is complete its bytes are in `.NAME.partial` beside it, which is locked while a process writes it, and
`.NAME.progress.json` says how many of them count. What was written after that is cut off by a resume, and made again.
"""

import contextlib
import dataclasses
import glob
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from recurcli.commands.prediction.journal import Journal, PredictionProgress, read_journal
from recurcli.commands.prediction.output import OutputStream, is_stream, open_stream
from recurcli.errors import DataError, ModelError, NumericError, StorageError, UsageError
from recurcli.facts import as_stored, first_difference
from recurcli.files import is_locked, locked, sync_directory, sync_file, writing

SECONDS_BETWEEN_JOURNALS = 2.0
REFUSALS = (UsageError, DataError, ModelError, NumericError)
"""What the same command would end with once more: nothing is kept for a resume."""


class PredictionFile(OutputStream):
    """The file `output` in the making; `claimed` gives one."""

    resumable = True

    def __init__(self, output: Path, stream: BinaryIO) -> None:
        super().__init__(stream, str(output))
        self.output = output
        self._digest = hashlib.sha256()
        self._told = time.monotonic()
        self._journal = Journal(replaces=os.path.lexists(output))
        self._earlier: Journal | None = None
        """What another run has left and this one has not taken over yet: it must survive whatever goes wrong here."""
        self._resumes = False

    def look_back(self, *, resume: bool, overwrite: bool) -> None:
        """See what an earlier run has left; UsageError where that must neither be gone on with nor replaced."""
        journal, size = read_journal(journal_of(self.output)), os.fstat(self._stream.fileno()).st_size
        found = journal if journal and self._holds(journal.reached, size, whole=resume) else None
        if self._journal.replaces and not overwrite and not (resume and found and found.replaces):
            raise UsageError(f"{self.output}: exists already; replace it with --overwrite")
        if found and found.reached.rows:
            self._earlier, self._resumes = found, resume
            if not resume and not overwrite:
                raise UsageError(
                    f"{self.output}: {found.reached.rows:,} rows of it are done; "
                    "go on with --resume, or start anew with --overwrite"
                )
            return
        if resume and not found and (size or journal_of(self.output).exists()):
            self.notes.append(f"{self.output}: what is left of an earlier run is damaged; starting anew")
        self._record()

    def begin(
        self, options: Mapping[str, Any], input: Mapping[str, Any], machine: Mapping[str, Any]
    ) -> PredictionProgress:
        """Told of what the rows are made; returns where they go on: at the start unless there is something to resume.

        Raises UsageError or DataError if the earlier run was made of something else.
        """
        now = dataclasses.replace(
            self._journal, options=as_stored(options), input=as_stored(input), machine=as_stored(machine)
        )
        earlier = self._earlier
        if earlier and self._resumes:
            if difference := first_difference(earlier.options, now.options):
                raise UsageError(
                    f"{self.output}: cannot be resumed: {difference}; undo that, or start anew with --overwrite"
                )
            if difference := first_difference(earlier.input, now.input):
                raise DataError(
                    f"{self.output}: was begun with another input: {difference}; start anew with --overwrite"
                )
            if difference := first_difference(earlier.machine, now.machine):
                self.notes.append(f"{difference}: the run goes on, but last digits of scores may differ")
            self._journal = dataclasses.replace(now, reached=earlier.reached, replaces=earlier.replaces)
        else:
            self._earlier, self._journal, self._digest = None, now, hashlib.sha256()
            self._record()
        self._cut()
        return self._journal.reached

    def write(self, data: bytes) -> None:
        """Append `data`; StorageError if there is no room."""
        self._earlier = None
        super().write(data)
        self._digest.update(data)

    def advance(self, reached: PredictionProgress) -> None:
        """Told after each window that all is written of the rows so far; the account of the output is made here."""
        reached = dataclasses.replace(reached, size=self._stream.tell(), output_sha256=self._digest.hexdigest())
        self._journal = dataclasses.replace(self._journal, reached=reached)
        if time.monotonic() - self._told >= SECONDS_BETWEEN_JOURNALS:
            self._record()
            self._told = time.monotonic()

    def finish(self) -> None:
        """Put the file in its place."""
        sync_file(partial_of(self.output))
        partial_of(self.output).replace(self.output)
        journal_of(self.output).unlink(missing_ok=True)
        sync_directory(self.output.parent)

    def leave(self) -> None:
        """Keep what is done for a resume, if something is."""
        if self._earlier:
            return
        if not partial_of(self.output).exists():  # it was put in its place just now
            journal_of(self.output).unlink(missing_ok=True)
        elif not self._journal.reached.rows and not self._journal.replaces:
            self.drop()
        else:
            with contextlib.suppress(OSError, StorageError):  # on a full disk the journal before this one stands
                self._cut()
                self._record()

    def drop(self) -> None:
        """Take away what this run has made."""
        if not self._earlier:
            journal_of(self.output).unlink(missing_ok=True)
            partial_of(self.output).unlink(missing_ok=True)

    def _record(self) -> None:
        with writing(self.output):
            os.fsync(self._stream.fileno())
            self._journal.write(journal_of(self.output))

    def _cut(self) -> None:
        self._stream.truncate(self._journal.reached.size)
        self._stream.seek(self._journal.reached.size)

    def _holds(self, reached: PredictionProgress, size: int, *, whole: bool) -> bool:
        """Whether the bytes that `reached` tells of are there, and with `whole` unchanged: the digest goes on from them."""
        self._digest, left = hashlib.sha256(), reached.size
        if not whole:
            return size >= left
        self._stream.seek(0)
        while left and (chunk := self._stream.read(min(left, 1 << 20))):
            self._digest.update(chunk)
            left -= len(chunk)
        return not left and self._digest.hexdigest() == reached.output_sha256


def partial_of(output: Path) -> Path:
    """Where the bytes of an unfinished `output` are."""
    return output.with_name(f".{output.name}.partial")


def journal_of(output: Path) -> Path:
    """Where it stands how far an unfinished `output` has come."""
    return output.with_name(f".{output.name}.progress.json")


def is_complete(output: Path) -> bool:
    """Whether a resume has nothing to do; takes away the journal of a run that was killed in its very last moment."""
    complete = os.path.lexists(output) and not os.path.lexists(partial_of(output))
    if complete:
        journal_of(output).unlink(missing_ok=True)
    return complete


def rows_kept(output: Path) -> int:
    """Rows that a resume need not make again; 0 while a process is at work on them."""
    try:
        journal = None if is_locked(partial_of(output)) else read_journal(journal_of(output))
    except OSError:
        return 0
    return journal.reached.rows if journal else 0


@contextlib.contextmanager
def telling_the_way_out(output: Path) -> Iterator[None]:
    """Add to an error that stops the block how to go on after it, where rows of `output` are done."""
    try:
        yield
    except REFUSALS:
        raise
    except BaseException as error:
        if not is_stream(output) and (rows := rows_kept(output)):
            error.add_note(f"{rows:,} rows are done; go on with the same command and --resume")
        raise


def open_output(output: Path, stack: contextlib.ExitStack, *, resume: bool, overwrite: bool) -> OutputStream:
    """The place for the bytes of `output`, closed by `stack`."""
    if is_stream(output):
        return open_stream(output, stack)
    return stack.enter_context(claimed(output, resume=resume, overwrite=overwrite))


@contextlib.contextmanager
def claimed(output: Path, *, resume: bool, overwrite: bool) -> Iterator[PredictionFile]:
    """`output` for this process alone: put in its place at the end of the block, kept for a resume if it is stopped.

    After one of the REFUSALS what the block has made is taken away. Raises StorageError at once if another process has
    claimed it, UsageError if an earlier run has left what must not be lost.
    """
    busy = f"{output}: another recur predict is writing it"
    with locked(partial_of(output), busy=busy, target=output) as stream:
        for leftover in output.parent.glob(f".{glob.escape(journal_of(output).name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
        file = PredictionFile(output, stream)
        try:
            file.look_back(resume=resume, overwrite=overwrite)
            yield file
            file.finish()
        except REFUSALS:
            file.drop()
            raise
        except BaseException:
            file.leave()
            raise
