"""Files that survive a crash: atomic writes, sha256 manifests, a lock that dies with its holder.

A folder is *committed* by its `manifest.json`, which is written last and lists name, size and sha256 of every other
file. Reading verifies all of them, because safetensors itself carries no checksum.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from recurcli.errors import ModelError, StorageError

MANIFEST = "manifest.json"


def sync_directory(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the contents of `path` durable, and give it the mode that the umask asks for (safetensors writes 0600)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o666 & ~_umask())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` for the block to write: put in its place at the end, or taken away on any error."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_atomically(path: Path, content: bytes | str | Callable[[Path], None]) -> None:
    """Write `path` so that a reader finds the old file or the new one, never a part.

    `content` is the bytes, the text (UTF-8), or a function that writes a file at the path it is given.
    """
    with replacing(path) as temporary:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def to_json(value: Any) -> str:
    """JSON as all our files have it: readable, UTF-8, stable order, a newline at the end; NaN is refused."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, names: Iterable[str]) -> None:
    """Commit `folder`: record name, size and sha256 of `names`, read back from the disk."""
    files = [
        {"name": name, "size": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)} for name in names
    ]
    write_atomically(folder / MANIFEST, to_json({"files": files}))


def verify_manifest(folder: Path, required: Iterable[str]) -> None:
    """Raise ModelError unless `folder` is committed, and all that its manifest lists – `required` at least – is unchanged."""
    try:
        manifest = json.loads(read_limited(folder / MANIFEST, limit=1 << 20))
        listed = {entry["name"]: (entry["size"], entry["sha256"]) for entry in manifest["files"]}
    except FileNotFoundError:
        raise ModelError(f"{folder}: has no {MANIFEST}; it was never completed, or is not a run of recur") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(f"{folder / MANIFEST}: is damaged") from None
    for name in [*required, *listed]:
        if name not in listed:
            raise ModelError(f"{folder / MANIFEST}: does not list {name}")
        path = folder / str(name)
        if Path(str(name)).name != name or path.is_symlink():
            raise ModelError(f"{path}: is not a plain file of its folder")
        if not path.is_file():
            raise ModelError(f"{path}: is missing")
        if (path.stat().st_size, sha256_of(path)) != listed[name]:
            raise ModelError(f"{path}: is damaged (its size or sha256 is not what {MANIFEST} says)")


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a small file; one larger than `limit` bytes is a ModelError."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ModelError(f"{path}: is larger than {limit:,} bytes; it is not a file of recur")
    return content


def commit_directory(target: Path, writers: dict[str, Callable[[Path], None]]) -> None:
    """Make the folder `target` with one file for each writer and a manifest, all of it or nothing.

    Everything is written, synced and hashed in a sibling folder that a rename then puts in place.
    """
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        for name, write in writers.items():
            write(temporary / name)
            sync_file(temporary / name)
        write_manifest(temporary, writers)
        temporary.chmod(0o777 & ~_umask())
        sync_directory(temporary)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(target.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; StorageError at once if another process holds it."""
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageError(f"{path.parent}: another recur is at work here (it holds {path.name})") from None
            # The last holder may have deleted the file between our opening and our locking it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
