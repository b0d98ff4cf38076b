"""Files that survive a crash: atomic writes, sha256 manifests, and a lock that dies with its holder.

A folder is *committed* by its `manifest.json`, which is written last and lists name, size and sha256 of every other
file. Reading verifies all of them, because safetensors itself carries no checksum. A file is opened once, hashed, and parsed
from the bytes that were hashed; it is replaced by a rename only, so these bytes stay as they are.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import math
import mmap
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from recurcli.errors import ModelError, StorageError, UsageError, escaped, require_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANIFEST = "manifest.json"
MAX_NAME = 255
MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 10_000
MAX_DIMENSIONS = 32
HASHED_AT_ONCE = 1 << 24
"""Bytes of a mapped file that are in memory together while it is hashed."""
ITEM_BYTES = {f"{kind}{bits}": bits // 8 for kind in "UIF" for bits in (8, 16, 32, 64) if kind + str(bits) != "F8"}
ITEM_BYTES |= {"BF16": 2, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
"""The bytes of a value of each dtype of safetensors that is read."""

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
def storage_errors(path: Path | str) -> Iterator[None]:
    """Turn what the system refuses in the block into a StorageError that names `path` and the way out."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        way_out = f"; {_WAYS_OUT[error.errno]}" if error.errno in _WAYS_OUT else ""
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}{way_out}") from None


def sync_directory(folder: Path) -> None:
    """Make renames and new names in `folder` durable, but for network mounts that cannot sync folders."""
    try:
        sync_file(folder, os.O_DIRECTORY)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def sync_file(path: Path, flag: int = os.O_NOFOLLOW) -> None:
    """Make the contents of `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | flag)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_replace(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary file beside `path`; it replaces `path` at the end of the block and is deleted on any error.

    The umask applies to `mode`. What opens the file for writing keeps it.
    """
    temporary = _beside(path)
    with storage_errors(path):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        yield temporary
        with storage_errors(path):
            sync_file(temporary)
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with storage_errors(path):
        sync_directory(path.parent)


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"


def write_atomically(path: Path, content: bytes | str | Callable[[Path], None]) -> None:
    """Write `path` so that a reader finds the old file or the new one, never a part.

    `content` is the bytes, the text (UTF-8), or a function that writes a file at the path it is given. Raises
    StorageError where the system refuses.
    """
    with atomic_replace(path) as temporary, storage_errors(path):
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


def sha256_of_all(paths: Sequence[Path]) -> str:
    """Return the hex sha256 of one file, or that of the hashes of several in their order."""
    hashes = [*map(sha256_of, paths)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def write_manifest(folder: Path, names: Iterable[str], listed: Mapping[str, tuple[int, str]] | None = None) -> None:
    """Commit `folder`: record name, size and sha256 of `names`, read back from the disk, and those of the files `listed`."""
    facts = dict(listed or {})
    for name in names:
        facts[name] = (folder / name).stat().st_size, sha256_of(folder / name)
    files = [{"name": name, "size": size, "sha256": sha256} for name, (size, sha256) in facts.items()]
    write_atomically(folder / MANIFEST, to_json({"files": files}))


def extend_manifest(folder: Path, *names: str, coming: Mapping[str, bytes] | None = None) -> None:
    """Add the files `names` to the manifest of `folder`, or replace what it says of them. No other file is read.

    `coming`: the names and the content of files that are written next. Raises ModelError if `folder` was never committed, or
    its manifest is damaged.
    """
    listed = read_manifest(folder)
    for name, content in (coming or {}).items():
        listed[name] = len(content), hashlib.sha256(content).hexdigest()
    write_manifest(folder, names, listed)


def read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    """Return what the manifest of `folder` lists, as `CommittedFolder` does."""
    return CommittedFolder(folder).listed


class OpenedFile:
    """A plain file that was opened once; its `content` is mapped into memory.

    The mapping is private and may be written to, which torch demands and which does not change the file. Raises ModelError if
    the file is missing or no plain file.
    """

    def __init__(self, path: Path, content: memoryview | None = None) -> None:
        self.path = path
        if content is not None:
            self.content = content
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a null character is in no name
            raise ModelError(f"{path}: is missing") from None
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise ModelError(f"{path}: is not a plain file")
            size = facts.st_size
            self.content = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) if size else bytearray())
        finally:
            os.close(descriptor)

    def read(self, limit: int | None = None) -> bytes:
        """Return a copy of the content. Raises ModelError if it has more than `limit` bytes."""
        if limit is not None and len(self.content) > limit:
            raise ModelError(f"{self.path}: is larger than {limit:,} bytes; it is not a file of recur")
        return self.content.tobytes()

    def sha256(self) -> str:
        """Return the hex sha256 of the content. What was written to the mapping before is lost."""
        digest = hashlib.sha256()
        for start in range(0, len(self.content), HASHED_AT_ONCE):
            digest.update(self.content[start : start + HASHED_AT_ONCE])
            if isinstance(self.content.obj, mmap.mmap):  # its pages would count as memory of the process
                self.content.obj.madvise(mmap.MADV_DONTNEED, start, HASHED_AT_ONCE)
        return digest.hexdigest()


class CommittedFolder:
    """The files of a committed folder, as its manifest lists them when this is made.

    Each file is opened and verified when it is first asked for. What replaces it later is not read: either the files are those
    of the manifest, or there is an error. Raises ModelError if the folder was never committed, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: dict[str, OpenedFile] = {}
        if not os.path.lexists(path / MANIFEST):
            raise ModelError(f"{path}: has no {MANIFEST}; it was never completed, or is not a run of recur")
        content = read_limited(path / MANIFEST, limit=1 << 20)
        try:
            self.listed = {each["name"]: (each["size"], each["sha256"]) for each in json.loads(content)["files"]}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ModelError(f"{path / MANIFEST}: is damaged") from None
        self.sha256 = hashlib.sha256(content).hexdigest()
        """The hash of the manifest, which stands for all files."""

    def __str__(self) -> str:
        return str(self.path)

    def __contains__(self, name: str) -> bool:
        return name in self.listed

    def is_open(self, name: str) -> bool:
        """Return whether the file `name` was there when it was verified or opened."""
        return name in self._opened

    def __getitem__(self, name: str) -> OpenedFile:
        """Return the verified file `name`. Raises ModelError if it is not listed, damaged, missing or no plain file."""
        if name in self._opened:
            return self._opened[name]
        if name not in self.listed:
            raise ModelError(f"{self.path / MANIFEST}: does not list {name}")
        path = self.path / str(name)
        is_name = Path(str(name)).name == name and len(name.encode(errors="replace")) <= MAX_NAME
        blobs = self.path.parent.parent / "blobs"  # where Hugging Face's cache has what its files are links to
        if not is_name or (path.is_symlink() and path.resolve().parent != blobs.resolve()):
            raise ModelError(f"{path}: is not a plain file of its folder")
        file = OpenedFile(path)
        if (len(file.content), file.sha256()) != self.listed[name]:
            raise ModelError(f"{path}: is damaged (its size or sha256 is not what {MANIFEST} says)")
        self._opened[name] = file
        return file

    def verify(self, required: Iterable[str] = (), *, may_miss: str | None = None) -> Self:
        """Verify all files, which must include `required`. The file `may_miss` may have been deleted."""
        for name in [*required, *self.listed]:
            if name != may_miss or (self.path / name).exists():
                self[name]
        return self


@contextlib.contextmanager
def naming_damage(where: Path | str) -> Iterator[None]:
    """Raise ModelError, which begins with `where`, for what a JSON file of another content raises in the block."""
    try:
        yield
    except (ValueError, LookupError, TypeError, RecursionError, zlib.error) as error:
        raise ModelError(f"{where}: is damaged: {escaped(error)}") from None


def read_limited(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes. Raises ModelError if it is missing, larger or not a plain file."""
    return OpenedFile(path).read(limit)


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file: dtype and shape by name. Raises ModelError if it is invalid or truncated."""
    return _header(OpenedFile(path))[0]


def _header(file: OpenedFile) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and where its values begin."""
    length = int.from_bytes(file.content[:8], "little")
    if length > MAX_HEADER_BYTES or not 2 <= length <= len(file.content) - 8:
        raise ModelError(f"{file.path}: is not a safetensors file, or is truncated")
    try:
        header = json.loads(file.content[8 : 8 + length].tobytes().decode())
    except (ValueError, RecursionError):
        raise ModelError(f"{file.path}: its safetensors header is damaged") from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise ModelError(f"{file.path}: its safetensors header must be a mapping of at most {MAX_TENSORS:,} tensors")
    return header, 8 + length


def stored_tensors(file: OpenedFile) -> dict[str, tuple[str, list[int], memoryview]]:
    """Return the name of the dtype, the shape and the bytes of each tensor of a safetensors file; the bytes are views of it.

    Raises ModelError for a header that safetensors refuses too: the tensors must follow each other without a hole to the end
    of the file, and each must have the size that its dtype and shape give.
    """
    header, first = _header(file)
    header.pop("__metadata__", None)
    tensors, end = {}, first
    with naming_damage(file.path):
        for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
            dtype, shape, (start, stop) = entry["dtype"], list(entry["shape"]), entry["data_offsets"]
            if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
                raise ValueError(f"the shape or place of {name} is none")
            if first + start != end or stop - start != math.prod(shape) * ITEM_BYTES[dtype]:
                raise ValueError(f"{name} overlaps another, leaves a hole, or has another size than its shape")
            end = first + stop
            tensors[name] = dtype, shape, file.content[first + start : end]
        if end != len(file.content):
            raise ValueError("it does not end with its last tensor")
    return tensors


def stored_arrays(file: OpenedFile) -> "dict[str, NDArray[Any]]":
    """Return copies of the tensors of a safetensors file as arrays. Raises ModelError for a dtype that NumPy lacks, too."""
    import numpy as np

    with naming_damage(file.path):
        return {
            name: np.array(np.frombuffer(data, f"{dtype[0].lower()}{ITEM_BYTES[dtype]}").reshape(shape))
            for name, (dtype, shape, data) in stored_tensors(file).items()
        }


def commit_directory(target: Path, writers: Mapping[str, Callable[[Path], object]], *, replace: bool = False) -> None:
    """Create the folder `target` with one file per writer and a manifest, atomically.

    The files are written, synced and hashed in a sibling folder, which is then renamed to `target`. With `replace`, an
    older `target` is first renamed to another sibling, which is deleted when the new one is in place. Whatever ends this
    between the two, the older one is put back: an error or a signal at once, a kill by the next call. Raises StorageError if
    the system refuses; the older `target` is then as it was.
    """
    with storage_errors(target):
        if replace:
            _settle_older(target, target.parent.glob(f".{glob.escape(target.name)}.*.old"))
        temporary = _beside(target)
        temporary.mkdir()
    older = temporary.with_suffix(".old")
    try:
        for name, write in writers.items():
            with storage_errors(target / name):
                write(temporary / name)
                sync_file(temporary / name)
        with storage_errors(target):
            write_manifest(temporary, writers)  # and syncs the folder
            if replace and os.path.lexists(target):
                target.rename(older)
            temporary.rename(target)
            sync_directory(target.parent)
    finally:
        with storage_errors(target):
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
    """Delete a file, a folder with its contents, or a symbolic link but not its target. A missing path is not an error."""
    with storage_errors(path):
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
REPORT = OutputKind("a report", (".html",), ("matplotlib", "jinja2"))


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
    device or one of the inputs, lies in a missing folder, or exists, and if a package of `kind` is missing. Raises
    StorageError if nothing can be written to its folder.
    """
    check_ending(output, kind)
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; name a file with {option}")
    if is_stream(output):
        raise UsageError(f"{output}: is not a plain file; choose another {option}")
    if output.exists() and any(path.exists() and path.samefile(output) for path in inputs):
        raise UsageError(f"{output}: is an input as well; choose another {option}")
    check_place(output, option)
    if os.path.lexists(output) and not overwrite and not resume:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")
    require_extra("report", option, *kind.packages)


def check_place(output: Path, option: str) -> None:
    """Raise UsageError as `check_utf8` does or if the folder of `output` is missing, StorageError if it is not writable."""
    check_utf8(output, option)
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another {option}")
    with (
        storage_errors(output),
        tempfile.NamedTemporaryFile(dir=output.parent, prefix=f".{output.name}.", suffix=".tmp"),
    ):
        pass


def is_stream(output: Path) -> bool:
    """Whether `output` is a stream: standard output, a FIFO, a device, or /dev/fd/N of a process substitution."""
    if str(output).startswith("/dev/"):  # also where it leads to a file: that was opened by somebody else
        return not str(output).startswith("/dev/shm/")
    return str(output) == "-" or (output.exists() and not output.is_file())


def refuse_links(*paths: Path) -> None:
    """Raise StorageError if one of `paths`, which a library or a function opens that follows links, is a symbolic link."""
    for path in paths:
        with storage_errors(path):
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextlib.contextmanager
def locked(path: Path, *, busy: str = "", target: Path | None = None, wait: bool = False) -> Iterator[BinaryIO]:
    """Hold an exclusive flock on the file `path` for the length of the block; it ends with the process, too.

    Yields the file, open for reading and writing, created if missing; no symbolic link is followed. If another process
    holds the lock: waits with `wait`, else raises StorageError with the message `busy`. Raises StorageError, which names
    `target` (None: `path`), if the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        with contextlib.ExitStack() as stack:
            with storage_errors(target or path):
                file = stack.enter_context(open(os.open(path, flags, 0o666), "r+b", buffering=0))  # noqa: PTH123
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "it is not a plain file")
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
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without a wait for the writer of a pipe
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
