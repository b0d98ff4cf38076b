"""Files that survive a crash: atomic writes, sha256 manifests, a lock that dies with its holder, and the cache.

A folder is *committed* by its `manifest.json`, which is written last and lists name, size and sha256 of every other
file. Reading verifies all of them, because safetensors itself carries no checksum. The cache holds files that are made once and
found again, in `$RECUR_CACHE` or else `~/.cache/recurcli`. The name of a file there is a hash of everything that its content
depends on.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import math
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from recurcli.errors import ModelError, StorageError, UsageError, escaped
from recurcli.requirements import check_packages

MANIFEST = "manifest.json"
MAX_NAME = 255
MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 10_000

_WAYS_OUT = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "choose another place",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EIO: "its disk may be failing",
    errno.ELOOP: "it is a symbolic link, which is not followed",
}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses in the block into a StorageError that names `path` and the way out."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        way_out = f"; {_WAYS_OUT[error.errno]}" if error.errno in _WAYS_OUT else ""
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}{way_out}") from None


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
    """Yield a temporary path beside `path`; it replaces `path` at the end of the block and is deleted on any error."""
    with writing(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with writing(path):
            sync_file(temporary)
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with writing(path):
        sync_directory(path.parent)


def write_atomically(path: Path, content: bytes | str | Callable[[Path], None]) -> None:
    """Write `path` so that a reader finds the old file or the new one, never a part.

    `content` is the bytes, the text (UTF-8), or a function that writes a file at the path it is given. Raises
    StorageError where the system refuses.
    """
    with replacing(path) as temporary, writing(path):
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def finite(value: Any) -> Any:
    """Return the JSON-serialisable `value` with None in place of each NaN and each infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list | tuple) else value


def to_json(value: Any) -> str:
    """Return `value` as indented JSON with a newline at the end. Raises ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def sha256_of(path: Path) -> str:
    """Return the hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, names: Iterable[str]) -> None:
    """Commit `folder`: record name, size and sha256 of `names`, read back from the disk."""
    _write_facts(folder, {name: size_and_hash(folder / name) for name in names})


def extend_manifest(folder: Path, *names: str, coming: Mapping[str, bytes] | None = None) -> None:
    """Add the files `names` to the manifest of `folder`, or replace what it says of them. No other file is read.

    `coming`: the names and the content of files that are written next. Raises ModelError if `folder` was never committed, or
    its manifest is damaged.
    """
    facts = {name: size_and_hash(folder / name) for name in names}
    facts |= {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in (coming or {}).items()}
    _write_facts(folder, read_manifest(folder) | facts)


def size_and_hash(path: Path) -> tuple[int, str]:
    """Return the size and the hex sha256 of a file, which verify its content."""
    return path.stat().st_size, sha256_of(path)


def _write_facts(folder: Path, facts: Mapping[str, tuple[int, str]]) -> None:
    files = [{"name": name, "size": size, "sha256": sha256} for name, (size, sha256) in facts.items()]
    write_atomically(folder / MANIFEST, to_json({"files": files}))


def read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the size and the sha256 of each file that the manifest of `folder` lists, without a look at the files.

    Raises ModelError if `folder` was never committed, or its manifest is damaged.
    """
    try:
        manifest = json.loads(read_limited(folder / MANIFEST, limit=1 << 20))
        return {entry["name"]: (entry["size"], entry["sha256"]) for entry in manifest["files"]}
    except FileNotFoundError:
        raise ModelError(f"{folder}: has no {MANIFEST}; it was never completed, or is not a run of recur") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(f"{folder / MANIFEST}: is damaged") from None


def verify_manifest(folder: Path, required: Iterable[str], *, may_miss: str | None = None) -> frozenset[str]:
    """Verify every file that the manifest of `folder` lists. Returns their names, which include `required`.

    The file `may_miss` may have been deleted.

    Raises ModelError if `folder` was never committed, or a file is damaged, missing or no plain file. A file that
    the manifest does not list must not be read.
    """
    listed = read_manifest(folder)
    for name in [*required, *listed]:
        if name not in listed:
            raise ModelError(f"{folder / MANIFEST}: does not list {name}")
        if name != may_miss or (folder / name).exists():
            verify_file(folder, name, listed[name])
    return frozenset(listed)


def verify_file(folder: Path, name: str, facts: tuple[int, str]) -> None:
    """Verify that the file `name` has the `facts` of its manifest. Raises ModelError as `verify_manifest` does."""
    path = folder / str(name)
    if Path(str(name)).name != name or len(name.encode(errors="replace")) > MAX_NAME or path.is_symlink():
        raise ModelError(f"{path}: is not a plain file of its folder")
    if not path.is_file():
        raise ModelError(f"{path}: is missing")
    if size_and_hash(path) != facts:
        raise ModelError(f"{path}: is damaged (its size or sha256 is not what {MANIFEST} says)")


@contextlib.contextmanager
def naming_damage(where: Path | str) -> Iterator[None]:
    """Raise ModelError, which begins with `where`, for what a JSON file of another content raises in the block."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{where}: is damaged: {escaped(error)}") from None


def read_limited(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes. Raises ModelError if it is larger or not a plain file."""
    if path.exists() and not path.is_file():
        raise ModelError(f"{path}: is not a plain file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ModelError(f"{path}: is larger than {limit:,} bytes; it is not a file of recur")
    return content


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file: dtype and shape by name. Raises ModelError if it is invalid or truncated."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if length > MAX_HEADER_BYTES or not 2 <= length <= path.stat().st_size - 8:
            raise ModelError(f"{path}: is not a safetensors file, or is truncated")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ModelError(f"{path}: its safetensors header is damaged") from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise ModelError(f"{path}: its safetensors header must be a mapping of at most {MAX_TENSORS:,} tensors")
    return header


def commit_directory(target: Path, writers: Mapping[str, Callable[[Path], object]], *, replace: bool = False) -> None:
    """Create the folder `target` with one file per writer and a manifest, atomically.

    The files are written, synced and hashed in a sibling folder, which is then renamed to `target`. With `replace`, an
    older `target` is first renamed to another sibling, which is deleted when the new one is in place. Whatever ends this
    between the two, the older one is put back: an error or a signal at once, a kill by the next call. Raises StorageError if
    the system refuses; the older `target` is then as it was.
    """
    with writing(target):
        if replace:
            _settle_older(target, target.parent.glob(f".{glob.escape(target.name)}.*.old"))
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    older = temporary.with_suffix(".old")
    try:
        for name, write in writers.items():
            with writing(target / name):
                write(temporary / name)
                sync_file(temporary / name)
        with writing(target):
            write_manifest(temporary, writers)
            temporary.chmod(0o777 & ~_umask())
            sync_directory(temporary)
            if replace and os.path.lexists(target):
                target.rename(older)
            temporary.rename(target)
            sync_directory(target.parent)
    finally:
        with writing(target):
            _settle_older(target, [older])
        shutil.rmtree(temporary, ignore_errors=True)


def _settle_older(target: Path, renamed: Iterable[Path]) -> None:
    """Delete the folders that `target` was `renamed` to, or rename one back if `target` is missing."""
    for older in renamed:
        if not os.path.lexists(older):
            continue
        if os.path.lexists(target):
            remove(older)
        else:
            older.rename(target)


def remove(path: Path) -> None:
    """Delete a file, a folder with its contents, or a symbolic link but not its target. A missing path is no error."""
    with writing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def check_utf8(output: Path, option: str = "--output") -> None:
    """Raise UsageError if the name of an output is not UTF-8, as the files that name it are. `option` gives it."""
    try:
        os.fspath(output).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option}: the name {escaped(ascii(str(output)))} is not UTF-8; choose another") from None


class OutputKind(NamedTuple):
    """A kind of output that a command writes to a file, which an option names."""

    title: str
    """The name of the output in messages."""
    endings: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Packages of the extra `report` that write it."""
    bare: bool = False
    """Whether a name without an ending is allowed, too."""


PLOT = OutputKind("a plot", (".png", ".svg", ".pdf"), ("matplotlib",))


def check_ending(output: Path, kind: OutputKind) -> None:
    """Raise UsageError if the name of `output` does not end as its `kind` does."""
    if not (output.name.endswith(kind.endings) if output.suffix else kind.bare):
        known = f"one of {', '.join(kind.endings)}" if len(kind.endings) > 1 else kind.endings[0]
        raise UsageError(f"{output}: {kind.title} ends in {known}")


def check_writable(
    output: Path,
    kind: OutputKind,
    *,
    overwrite: bool,
    option: str = "--output",
    resume: bool = False,
    inputs: Iterable[Path] = (),
) -> None:
    """Check, before anything is computed, that `option` may write the file `output`.

    An existing file is replaced only with `overwrite`, or continued with `resume`; a symbolic link is replaced, not
    followed. `inputs` are the files that the command reads. Raises UsageError if `output` ends otherwise, is a folder, a
    device or one of the inputs, lies in a missing folder, or exists, and if a package of `kind` is missing or too old. Raises
    StorageError if nothing can be written to its folder.
    """
    check_ending(output, kind)
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file with {option}")
    if is_stream(output):
        raise UsageError(f"{output}: is no plain file; choose another {option}")
    if output.exists() and any(path.exists() and path.samefile(output) for path in inputs):
        raise UsageError(f"{output}: is an input as well; choose another {option}")
    check_place(output, option)
    if os.path.lexists(output) and not overwrite and not resume:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")
    if kind.packages:
        check_packages("report", option, kind.packages)


def check_place(output: Path, option: str) -> None:
    """Raise UsageError as `check_utf8` does or if the folder of `output` is missing, StorageError if it is not writable."""
    check_utf8(output, option)
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another {option}")
    with writing(output), tempfile.NamedTemporaryFile(dir=output.parent, prefix=f".{output.name}.", suffix=".tmp"):
        pass


def is_stream(output: Path) -> bool:
    """Whether `output` is a stream: standard output, a FIFO, a device, or /dev/fd/N of a process substitution."""
    if str(output).startswith("/dev/"):  # also where it leads to a file: that was opened by somebody else
        return not str(output).startswith("/dev/shm/")
    return str(output) == "-" or (output.exists() and not output.is_file())


def refuse_links(*paths: Path) -> None:
    """Raise StorageError if one of `paths`, which a library or a function opens that follows links, is a symbolic link."""
    for path in paths:
        with writing(path):
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def open_no_follow(path: Path) -> TextIO:
    """Open a file for appending. Raises StorageError for a symbolic link or a FIFO."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    with writing(path):
        return open(path, "a", encoding="utf-8", opener=opener)


@contextlib.contextmanager
def locked(path: Path, *, busy: str = "", target: Path | None = None, wait: bool = False) -> Iterator[BinaryIO]:
    """Hold an exclusive flock on the file `path` for the length of the block; it ends with the process, too.

    Yields the file, open for reading and writing, created if missing; no symbolic link is followed. If another process
    holds the lock: waits with `wait`, else raises StorageError with the message `busy`. Raises StorageError, which names
    `target` (None: `path`), if the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        with writing(target or path), contextlib.ExitStack() as stack:
            file = stack.enter_context(open(os.open(path, flags, 0o666), "r+b", buffering=0))  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a plain file")
            stack.pop_all()
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                here = f"{path.parent}: another recur is at work here (it holds {path.name})"
                raise StorageError(busy or here) from None
            # The last holder may have renamed or deleted the file between our opening and our locking it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return


def is_locked(path: Path) -> bool:
    """Whether a process holds the file `path` by `locked`. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


FORMAT = 1
"""Version of the cached files; a part of their names, so that another version writes new ones."""


def cache_folder() -> Path:
    """Return the cache folder. Raises StorageError if the home directory that `~` stands for is unknown."""
    folder = os.environ.get("RECUR_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/recurcli"
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise StorageError(f"{folder}: there is no such home folder; set RECUR_CACHE to a folder") from None


def cached(
    depends_on: tuple[object, ...], suffix: str, write: Callable[[Path], dict[str, Any]], *, wait: bool = True
) -> tuple[Path, dict[str, Any]]:
    """Return a file of the cache and the facts about it, both from `write` if the file is missing or damaged.

    The facts and the file's sha256 are in a JSON file beside it. One process at a time writes the file; the others wait, or
    get a StorageError if `wait` is False. Raises StorageError if the cache cannot be written.
    """
    name = hashlib.sha256(repr((FORMAT, *depends_on)).encode(errors="surrogatepass")).hexdigest()[:32]
    path = cache_folder() / f"{name}{suffix}"
    sidecar = path.with_name(f"{path.name}.json")
    if facts := _verified(path, sidecar):
        return path, facts
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_name(f"{path.name}.lock"), wait=wait):
                if facts := _verified(path, sidecar):  # another process wrote it meanwhile
                    return path, facts
                with replacing(path) as temporary:
                    facts = write(temporary)
                    write_atomically(sidecar, to_json({**facts, "sha256": sha256_of(temporary)}))
                return path, facts
    except StorageError as error:
        error.add_note("this file belongs to recur's cache; set RECUR_CACHE to use another folder")
        raise


def _verified(path: Path, sidecar: Path) -> dict[str, Any] | None:
    """Return the facts about a file of the cache, or None if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts: dict[str, Any] = json.loads(sidecar.read_text(encoding="utf-8"))
        if facts["sha256"] == sha256_of(path):
            return facts
    return None
