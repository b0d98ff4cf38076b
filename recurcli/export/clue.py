"""Writes, recognises and checks CLUE submissions: flat zips of prediction files; the same labels give the same bytes.

The format is that of CLUE's submission guide (CLUEbenchmark/CLUE, update of 2021-09-04): one file for each task of any
subset. A zip is read member by member into memory, never extracted.
"""

import copy
import io
import json
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from recurcli.data.formats.rows import BOM
from recurcli.errors import DataError, StorageError, UsageError, escaped
from recurcli.export.clue_file import MAX_BYTES, OTHER_NAMES, name_fault, targets, validate_file
from recurcli.files import write_atomically
from recurcli.findings import Finding, Findings, sort_by_severity

MAX_ZIP_BYTES = 16 << 20
HEAD = 1 << 16
"""Bytes of a file from which `is_submission` recognises it."""
MAX_MEMBERS = 32
"""Members that are checked; CLUE reads about 15 names."""

_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_JUNK = ("__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini")
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError),
    *(OSError, OverflowError),  # a seek to before the file's start, or beyond what an offset can be
)
"""Errors that zipfile raises for damaged bytes."""


def is_submission(path: Path) -> bool:
    """Return whether the file is named like CLUE predictions or a zip, or its rows have only `id` and `label`."""
    name = path.name.lower()
    if name.endswith(".zip") or re.search(r"_predict\.jsonl?$", name):
        return True
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
    because builds of zlib differ. Raises UsageError for a name that CLUE does not read, DataError for wrong labels.
    """
    if path.suffix != ".zip":
        raise UsageError(f"{escaped(path)}: a CLUE submission is a zip; name it {escaped(path.name)}.zip")
    if not predictions:
        raise UsageError(f"{escaped(path)}: has no predictions to submit")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(predictions):
            if name not in targets():
                raise UsageError(name_fault(name))
            content = submission_bytes(predictions[name])
            for finding in validate_file(name, content):
                if finding.level == "error":
                    raise DataError(finding.message)
            archive.writestr(_member(name), content)
    write_atomically(path, buffer.getvalue())


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member's header that does not depend on the time or the machine."""
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.compress_type = zipfile.ZIP_STORED
    member.create_system = 3  # Unix, whatever this is written on
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    return member


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
        _check_names(members, found)
        checked: set[str] = set()
        for member in members[:MAX_MEMBERS]:
            base = _base_name(member)
            if base in checked or not base.lower().endswith(".json") or _is_junk(member):
                continue
            checked.add(base)
            content = b"" if base in OTHER_NAMES and base not in targets() else _content(archive, member, found)
            if content is not None:
                inside += validate_file(base, content)
    tasks = {name: target.task.name for name, target in targets().items()}
    if missing := {*tasks.values()} - {tasks[name] for name in checked & tasks.keys()}:
        what = f"has no predictions for {', '.join(sorted(missing))}: allowed, but a full score needs every task"
        found.add("information", "missing", what)
    return sort_by_severity(found.ordered() + inside)


def _check_names(members: list[zipfile.ZipInfo], found: Findings) -> None:
    """Check that the zip is flat and holds prediction files only, each once."""
    if not members:
        found.add("error", "empty", "is empty")
    if len(members) > MAX_MEMBERS:
        found.add("error", "members", f"has {len(members):,} members; only the first {MAX_MEMBERS} were looked at")
    members = members[:MAX_MEMBERS]
    for member in members:
        shown = escaped(member.orig_filename)
        base = _base_name(member)
        if _is_junk(member):
            what = f"holds '{shown}', left by a file manager; zip the prediction files alone: zip -X"
            found.add("error", "junk", what)
        elif not base:
            found.add("error", "folder", f"holds the folder '{shown}'; zip the files and not their folder: zip -j")
        elif not base.lower().endswith(".json"):
            found.add("error", "foreign", f"holds '{shown}', which is not a prediction file; leave it out")
        elif base != member.orig_filename:
            found.add("error", "flat", f"holds '{shown}' in a folder, where CLUE does not look: zip -j")
    for name, count in Counter(member.orig_filename for member in members).items():
        if count > 1:
            found.add("error", "twice", f"holds '{escaped(name)}' {count} times; keep one of them")


def _base_name(member: zipfile.ZipInfo) -> str:
    """Return a member's name without its folders, "" for a folder; not from `filename`, which ends at a NUL."""
    return member.orig_filename.replace("\\", "/").rpartition("/")[2]


def _is_junk(member: zipfile.ZipInfo) -> bool:
    parts = member.orig_filename.replace("\\", "/").split("/")
    return any(part in _JUNK or part.startswith("._") for part in parts)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, found: Findings) -> bytes | None:
    """Return the bytes of a member; None, with a finding, if it cannot be read.

    Neither the declared size nor the real one may pass MAX_BYTES.
    """
    content, fault = None, None
    too_large = f"is larger than {MAX_BYTES:,} bytes; predictions need a few dozen bytes a row"
    if member.flag_bits & 1:
        fault = "is encrypted; make the zip without a password"
    elif stat.S_ISLNK(member.external_attr >> 16):
        fault = "is a symbolic link; zip the file that it leads to"
    elif member.compress_type not in _READABLE:
        fault = "is compressed in a way that not every reader knows; use zip's default, deflate"
    elif member.file_size > MAX_BYTES:
        fault = too_large
    else:
        unbounded = copy.copy(member)
        unbounded.file_size = 2 * MAX_BYTES  # zipfile stops at the declared size, which may be too small
        try:
            with archive.open(unbounded) as stream:
                content = stream.read(MAX_BYTES + 1)
        except _DAMAGE as error:
            fault = f"is damaged: {escaped(error)}"
    if content is not None and len(content) > MAX_BYTES:
        content, fault = None, too_large
    elif content is not None and len(content) != member.file_size:
        fault = f"holds {len(content):,} bytes but declares {member.file_size:,}; make the zip again"
    if fault is not None:
        shown = escaped(member.orig_filename)
        found.add("error", f"member {shown}", f"'{shown}' {fault}")
    return content
