"""Writes, recognises and checks CLUE submissions: prediction files, and flat zips of them; the same labels give the same bytes.

CLUE's submission guide (CLUEbenchmark/CLUE, update of 2021-09-04): a file is named `<task><version>_predict.json`, each
line is one JSON object, and the scorer reads only `label`, line by line, in the order of the task's test file. Names, counts
and labels are those of `recurcli.data.tasks.TASKS`. A zip is read member by member into memory, never extracted.
"""

import io
import json
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal, NamedTuple, get_args

from recurcli.data.documents import BadJson, json_object
from recurcli.data.readers import ENDINGS
from recurcli.data.rows import BOM, name_inside, uncompressed
from recurcli.data.tasks import TASKS, Task
from recurcli.errors import DataError, StorageError, did_you_mean, escaped
from recurcli.files import write_atomically

MAX_BYTES = 8 << 20
"""The longest test file makes 0.6 MB of predictions (ours: leaves room for keys that CLUE does not read)."""

_TOO_LARGE = f"is larger than {MAX_BYTES:,} bytes; predictions need a few dozen bytes a row"
OTHER_NAMES = tuple(f"{name}_predict.json" for name in ("c311", "c310", "chid11", "chid10", "cmrc2018"))
"""Names that CLUE reads and that have no row in TASKS: their contents are not checked."""

Level = Literal["error", "warning", "information"]
CSL = "csl_predict.json"
"""The file whose ids may begin at 1, as those of CSL's test file do: CLUE reads its labels alone."""
Rows = list[tuple[int, dict[str, Any] | None]]
"""The lines that are not blank: the number of each, and its object, or None if it is not one JSON object."""


class Finding(NamedTuple):
    """One finding; an `error` means that a file would score 0, that a training would stop or that rows would be lost."""

    level: Level
    message: str
    """One line of printable text: the file, the line if there is one, and the fault."""


class Findings:
    """Collects the findings about one file; `name` is its name in messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: dict[str, tuple[Level, str]] = {}
        self._count: Counter[str] = Counter()

    def add(self, level: Level, cause: str, message: str, *, line: int | None = None) -> None:
        """Add a finding. A `cause` that was added before is only counted."""
        where = self._name if line is None else f"{self._name} line {line}"
        self._first.setdefault(cause, (level, f"{where}: {message}"))
        self._count[cause] += 1

    def ordered(self) -> list[Finding]:
        """Return errors, then warnings, then information; within a level in the order in which they were added."""
        findings = [
            Finding(level, message if self._count[cause] == 1 else f"{message} (and {self._count[cause] - 1:,} more)")
            for cause, (level, message) in self._first.items()
        ]
        return sort_by_severity(findings)


def sort_by_severity(findings: list[Finding]) -> list[Finding]:
    """Return the findings with errors before warnings before information."""
    return sorted(findings, key=lambda finding: get_args(Level).index(finding.level))


class Submission(NamedTuple):
    """The test rows that a file of predictions answers line by line."""

    task: Task
    split: str

    @property
    def name(self) -> str:
        """Name of the file of predictions."""
        return self.task.submissions[self.split]

    @property
    def test_file(self) -> str:
        """Name of the task's file with the rows."""
        return self.task.files[self.split]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.task.rows[self.split]


def submissions() -> dict[str, Submission]:
    """Return every file name that can be checked, with its task."""
    return {name: Submission(task, split) for task in TASKS.values() for split, name in task.submissions.items()}


def validate_file(name: str, content: BinaryIO | bytes) -> list[Finding]:
    """Return the faults of the file `name`, errors first; [] if it has none.

    Reads at most MAX_BYTES of `content`; no content raises an error.
    """
    found = Findings(escaped(name))
    known = submissions()
    if name in OTHER_NAMES:
        found.add("information", "unchecked", "CLUE reads this name, but recur does not know its test set; not checked")
        return found.ordered()
    data = content if isinstance(content, bytes) else content.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        found.add("error", "size", _TOO_LARGE)
        return found.ordered()
    rows = _read_rows(data, found)
    if submission := known.get(name):
        if len(rows) != submission.rows:
            what = f"has {len(rows):,} rows; {submission.test_file} has {submission.rows:,}, and each needs its line"
            found.add("error", "count", what)
    else:
        what, meant = f"CLUE reads no file named '{escaped(name)}': it would score 0", name.lower()
        of_task = [other for other in known if meant.startswith(known[other].task.name.removeprefix("clue"))]
        found.add("error", "name", what + did_you_mean(meant, of_task or {*known, *OTHER_NAMES}))
    _check_labels(submission and submission.task, rows, found)
    _check_ids(rows, found, counted_from_1=name == CSL)
    return found.ordered()


def _read_rows(data: bytes, found: Findings) -> Rows:
    """Return the rows of a file, and add the faults of its lines to `found`."""
    if data and not data.endswith(b"\n"):
        found.add("warning", "end", "the last line has no newline at its end")
    rows: Rows = []
    for line, content in enumerate(io.BytesIO(data), start=1):
        if content.endswith(b"\r\n"):
            what = "ends in CR LF; CLUE's files end their lines in LF (dos2unix mends it)"
            found.add("error", "crlf", what, line=line)
        if not content.strip():
            found.add("error", "blank", "is blank; remove it, as CLUE pairs lines by their order", line=line)
            continue
        fields = None
        try:
            fields = json_object(content.decode().strip())
        except UnicodeDecodeError:
            found.add("error", "form", "is not UTF-8; save the file as UTF-8", line=line)
        except BadJson as fault:
            shown = escaped(content.decode().strip(), limit=60)
            found.add("error", "form", f"{fault}; expected one JSON object a line: {shown}", line=line)
        rows.append((line, fields))
    return rows


def _check_labels(task: Task | None, rows: Rows, found: Findings) -> None:
    """Check that each `label` is a string and one of the task's; `task` None: unknown."""
    written = set()
    for line, fields in rows:
        if fields is None:
            continue
        if others := fields.keys() - {"id", "label"}:
            what = f"has the key '{escaped(min(others))}'; CLUE reads label alone"
            found.add("information", "keys", what, line=line)
        if "label" not in fields:
            found.add("error", "no label", "has no 'label', the one key that CLUE reads", line=line)
            continue
        if not isinstance(label := fields["label"], str):
            found.add("error", "label type", "label is not a string", line=line)
            continue
        written.add(label)
        if task is not None and label not in task.labels:
            known = f"labels of {task.name.upper()}: {', '.join(task.labels[:20])}"
            what = f"label '{escaped(label)}' is not one of the {len(task.labels)} {known}"
            found.add("error", "label", what, line=line)
    if len(rows) > 1 and len(written) == 1:
        found.add("warning", "one class", f"every row has the label '{escaped(written.pop())}'; is the model trained?")


def _check_ids(rows: Rows, found: Findings, *, counted_from_1: bool) -> None:
    """Check that the ids are 0 … n-1; a line that is not an object matches any id.

    `counted_from_1`: 1 … n is right too.
    """
    ids = [row if fields is None else fields.get("id") for row, (_, fields) in enumerate(rows)]
    if counted_from_1 and ids == list(range(1, len(ids) + 1)):
        return
    for row, (number, (line, _)) in enumerate(zip(ids, rows, strict=True)):
        if number != row or type(number) is not int:
            found.add("error", "ids", f"the id is not the row number {row}; ids count the rows from 0", line=line)
            return


MAX_ZIP_BYTES = 16 << 20
HEAD = 1 << 16
"""Bytes of a file from which `is_submission` recognises it."""
MAX_MEMBERS = 32
"""Members that are checked; CLUE reads about 15 names."""

_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError),
    *(OSError, OverflowError),  # a seek to before the file's start, or beyond what an offset can be
)
"""Errors that zipfile raises for damaged bytes."""


def is_submission(path: Path) -> bool:
    """Return whether the file is named like CLUE predictions or a zip that may hold them, or has only `id` and `label`."""
    name = path.name.lower()
    if re.search(r"_predict\.jsonl?(\.zip)?$", name):
        return True
    if name.endswith(".zip"):  # not that of a file with rows
        try:
            inside = name_inside(path).lower()
        except DataError:  # it holds several files
            return True
        format = ENDINGS.get(PurePath(inside).suffix)
        return format is None or (format == "jsonl" and inside != uncompressed(name))
    if not name.endswith((".json", ".jsonl", ".ndjson")) or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD).removeprefix(BOM).decode(errors="replace")
        value, _ = json.JSONDecoder().raw_decode(head.lstrip(" \t\r\n["))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) in ({"label"}, {"id", "label"})


def submission_bytes(labels: Sequence[str]) -> bytes:
    """Return the prediction file for `labels` in the order of the test file: one JSON object a line."""
    return "".join(json.dumps({"id": row, "label": label}) + "\n" for row, label in enumerate(labels)).encode()


def write_submission(path: Path, predictions: Mapping[str, Sequence[str]]) -> None:
    """Check {file name: labels in the order of the test file}, then write the zip `path`.

    The same predictions give the same bytes on any machine: members are sorted, dated 1980-01-01 and not compressed,
    because builds of zlib differ. Raises DataError for a name that CLUE does not read, and for wrong labels.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(predictions):
            content = submission_bytes(predictions[name])
            for finding in validate_file(name, content):
                if finding.level == "error":
                    raise DataError(finding.message)
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_STORED
            member.create_system = 3  # Unix, whatever this is written on
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, content)
    write_atomically(path, buffer.getvalue())


def validate(path: Path) -> list[Finding]:
    """Return the findings about a prediction file or a zip of them (by its name or first bytes), errors first.

    Raises DataError if the file does not exist, StorageError if it cannot be read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{escaped(path)}: {'is not a plain file' if path.exists() else 'does not exist'}")
        with path.open("rb") as file:
            if path.suffix.lower() == ".zip" or file.read(4) in (b"PK\x03\x04", b"PK\x05\x06"):
                return _validate_zip(path.name, file)
            file.seek(0)
            return validate_file(path.name, file)
    except OSError as error:
        raise StorageError(f"{escaped(path)}: cannot be read: {error.strerror}") from None


def _validate_zip(name: str, file: BinaryIO) -> list[Finding]:
    found = Findings(escaped(name))
    if file.seek(0, io.SEEK_END) > MAX_ZIP_BYTES:
        found.add("error", "size", f"is larger than {MAX_ZIP_BYTES:,} bytes; a full submission is below 2 million")
        return found.ordered()
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        found.add("error", "zip", f"is not a zip that can be read: {escaped(error)}")
        return found.ordered()
    inside: list[Finding] = []
    with archive:
        members = archive.infolist()
        if not members:
            found.add("error", "empty", "is empty")
        if len(members) > MAX_MEMBERS:
            found.add("error", "members", f"has {len(members):,} members; only the first {MAX_MEMBERS} were looked at")
        names: set[str] = set()
        for member in members[:MAX_MEMBERS]:
            name = member.orig_filename  # not `filename`, which ends at a NUL
            if name in names:
                found.add("error", "twice", f"holds '{escaped(name)}' more than once; keep one of them")
            elif name.startswith(".") or not name.lower().endswith(".json") or re.search(r"[/\\]", name):
                way_out = "zip the prediction files alone, without folders: zip -jX"
                found.add("error", "foreign", f"holds '{escaped(name)}', where CLUE reads nothing; {way_out}")
            else:
                content = b"" if name in OTHER_NAMES else _content(archive, member, found)
                inside += [] if content is None else validate_file(name, content)
            names.add(name)
    tasks = {name: submission.task.name for name, submission in submissions().items()}
    if missing := {*tasks.values()} - {tasks[name] for name in names & tasks.keys()}:
        what = f"has no predictions for {', '.join(sorted(missing))}: allowed, but a full score needs every task"
        found.add("information", "missing", what)
    return sort_by_severity(found.ordered() + inside)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, found: Findings) -> bytes | None:
    """Return the bytes of a member; None, with a finding, if it cannot be read.

    No more than the declared size is read, which may not pass MAX_BYTES. A wrong one is found by the checksum.
    """
    is_link, is_encrypted = stat.S_ISLNK(member.external_attr >> 16), member.flag_bits & 1
    if is_link or is_encrypted or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        fault = "is a link, encrypted, or compressed in a rare way; zip the files themselves with zip's defaults"
    elif member.file_size > MAX_BYTES:
        fault = _TOO_LARGE
    else:
        try:
            with archive.open(member) as stream:
                return stream.read(MAX_BYTES)
        except _DAMAGE as error:
            fault = f"is damaged: {escaped(error)}"
    shown = escaped(member.orig_filename)
    found.add("error", f"member {shown}", f"'{shown}' {fault}")
    return None
