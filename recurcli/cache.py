"""The cache: files that are made once and found again, in `$RECUR_CACHE` or else `~/.cache/recurcli`.

A file ends in what it depends on and the sha256 of its content, as JSON and its length in eight bytes, so that a copy of it
under another name is not taken for another file. Nobody but its owner writes to the folder.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recurcli.errors import ModelError, StorageError
from recurcli.files import OpenedFile, atomic_replace, locked, storage_errors, to_json

FORMAT = 3
"""Format version of the cached files. It is part of their keys, so files of another version are not read."""
MAX_BYTES = 2 << 30
"""The size of the cache: the oldest files above it are deleted when one is written."""
_OURS = re.compile(r"\.?[0-9a-f]{32}\.[a-z.]+?(\.lock|\.[0-9a-f]{8}\.tmp)?")


def cache_folder() -> Path:
    """Return the cache folder. Raises StorageError if the home directory that `~` stands for is unknown."""
    folder = os.environ.get("RECUR_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/recurcli"
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise StorageError(f"{folder}: there is no such home folder; set RECUR_CACHE to a folder") from None


def cached(
    depends_on: tuple[object, ...], suffix: str, write: Callable[[Path], dict[str, Any]], *, wait: bool = True
) -> tuple[OpenedFile, dict[str, Any]]:
    """Return a file of the cache and the facts about it, both from `write` if the file is missing, damaged or another's.

    One process at a time writes the file; the others wait, or get a StorageError if `wait` is False. Where the folder of the
    cache belongs to somebody else, nothing is kept. Raises StorageError if the cache cannot be written.
    """
    key = hashlib.sha256(repr((FORMAT, *depends_on)).encode(errors="surrogatepass")).hexdigest()
    path = cache_folder() / f"{key[:32]}{suffix}"
    try:
        with storage_errors(path), contextlib.ExitStack() as stack:
            if not _own(path.parent):  # what was mapped stays readable
                path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
            elif found := _read(path, key):
                return found
            else:
                lock = path.with_name(f"{path.name}.lock")
                stack.enter_context(locked(lock, wait=wait))
                stack.callback(lock.unlink, missing_ok=True)
                if found := _read(path, key):  # another process has written it meanwhile
                    return found
            with atomic_replace(path, 0o600) as temporary:
                facts = write(temporary)
                made = OpenedFile(temporary)
                end = to_json({"key": key, "sha256": made.sha256(), "facts": facts}).encode()
                with temporary.open("ab") as file:
                    file.write(end + len(end).to_bytes(8, "little"))
            _shrink(path)
            return OpenedFile(path, made.content), facts
    except StorageError as error:
        error.add_note("this file belongs to recur's cache; set RECUR_CACHE to use another folder")
        raise


def _own(folder: Path) -> bool:
    """Make the cache `folder`, or close it to others. Return whether it is one's own."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.stat()
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_ISVTX:  # /tmp is everybody's, root's too
        return False
    if facts.st_mode & 0o022:
        folder.chmod(0o700)
    return True


def _read(path: Path, key: str) -> tuple[OpenedFile, dict[str, Any]] | None:
    """Return a file of the cache and its facts, or None if it is missing, damaged, another's, or has another key."""
    with contextlib.suppress(OSError, ModelError, ValueError, KeyError, TypeError, RecursionError):
        facts = path.lstat()
        content = OpenedFile(path).content
        end = len(content) - 8 - int.from_bytes(content[-8:], "little")
        if facts.st_uid == os.geteuid() and not facts.st_mode & 0o022 and end >= 0:
            file, stored = OpenedFile(path, content[:end]), json.loads(content[end:-8].tobytes())
            if stored["key"] == key and stored["sha256"] == file.sha256():
                return file, dict(stored["facts"])
    return None


def _shrink(newest: Path) -> None:
    """Delete the oldest files but `newest`, with those that killed processes left, while all take more than MAX_BYTES."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # another process deletes them
        for path in newest.parent.iterdir():
            if _OURS.fullmatch(path.name):
                found.append((path.lstat().st_mtime, path.lstat().st_size, path))
    excess = sum(size for _, size, _ in found) - MAX_BYTES
    for _, size, path in sorted(found):
        if excess > 0 and path != newest:
            path.unlink(missing_ok=True)
            excess -= size
