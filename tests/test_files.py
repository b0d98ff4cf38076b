"""Files survive a crash, and what is damaged is found."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recurcli.errors import ModelError, StorageError
from recurcli.files import (
    MANIFEST,
    CommittedFolder,
    commit_directory,
    extend_manifest,
    is_locked,
    locked,
    read_manifest,
    write_atomically,
    write_manifest,
)


def test_an_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "x"
    write_atomically(target, "old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=f"{target}: cannot be written: No space left on device; make room there"):
        write_atomically(target, fail)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_no_other_thread_can_write_a_file_for_all_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask belongs to the process: who asks for it changes it for a moment, in which another thread writes here."""
    honest = os.umask

    def umask(mask: int) -> int:
        before = honest(mask)
        other = threading.Thread(target=(tmp_path / str(mask)).touch)
        other.start()
        other.join()
        return before

    before = os.umask(0o027)
    monkeypatch.setattr(os, "umask", umask)
    try:
        write_atomically(tmp_path / "x", b"1")
        commit_directory(tmp_path / "y", {"a": lambda path: path.write_bytes(b"1")})
    finally:
        honest(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"x": 0o640, "y": 0o750, "a": 0o640, "manifest.json": 0o640}


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network mounts answer EINVAL."""
    honest, answer = os.fsync, errno.EINVAL

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/dev/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(answer, os.strerror(answer))
        honest(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "x", b"1")
    assert (tmp_path / "x").read_bytes() == b"1"
    answer = errno.EIO
    with pytest.raises(StorageError, match="its disk may be failing"):
        write_atomically(tmp_path / "x", b"3")


def test_a_directory_is_committed_whole_or_not_at_all(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_text("content")

    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="bad/b: cannot be written: No space left on device; make room there"):
        commit_directory(tmp_path / "bad", {"a": write, "b": fail})
    assert not list(tmp_path.iterdir())
    commit_directory(tmp_path / "good", {"a": write, "b": write})
    CommittedFolder(tmp_path / "good").verify(["a", "b"])


def test_a_directory_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path) -> None:
        path.write_text("new")

    (tmp_path / "a").write_text("old")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="cannot be written"):
        commit_directory(Path(), {"a": write}, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    monkeypatch.chdir("/")
    commit_directory(tmp_path, {"a": write}, replace=True)
    CommittedFolder(tmp_path).verify(["a"])
    assert not [path for path in tmp_path.parent.iterdir() if path.suffix in (".tmp", ".old")]


@pytest.mark.parametrize("renames", [1, 2])
@pytest.mark.parametrize("ends", ["interrupted", "killed"])
def test_no_replaced_folder_is_lost(renames: int, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal or a kill comes just after the first or the second rename."""
    target, rename, left = tmp_path / "[a]*", Path.rename, [renames]
    commit_directory(target, {"a": lambda path: path.write_text("old")})

    def rename_and_end(path: Path, to: Path) -> None:
        if ends == "killed" and not left[0]:
            raise OSError("a process that was killed does nothing more")
        rename(path, to)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", rename_and_end)
    if ends == "killed":
        monkeypatch.setattr("recurcli.files.remove", lambda path: None)
    with pytest.raises((KeyboardInterrupt, StorageError)):
        commit_directory(target, {"a": lambda path: path.write_text("new")}, replace=True)
    monkeypatch.undo()
    if ends == "interrupted":
        assert (target / "a").read_text() == ("old" if renames == 1 else "new")
        assert [path.name for path in tmp_path.iterdir()] == [target.name]
    commit_directory(target, {"a": lambda path: path.write_text("newest")}, replace=True)
    assert (target / "a").read_text() == "newest"
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".old"]


def test_what_replaces_a_file_after_the_folder_was_opened_is_not_read(tmp_path: Path) -> None:
    for name in ("a", "b", "empty"):
        write_atomically(tmp_path / name, b"" if name == "empty" else b"old" * 9999)
    write_manifest(tmp_path, ["a", "b", "empty"])
    whole, late = CommittedFolder(tmp_path).verify(), CommittedFolder(tmp_path)
    assert late["a"].read() == b"old" * 9999
    for name in ("a", "b"):
        write_atomically(tmp_path / name, b"new" * 9999)
    write_manifest(tmp_path, ["a", "b", "empty"])
    assert [whole[name].read() for name in ("a", "b", "empty")] == [b"old" * 9999, b"old" * 9999, b""]
    assert late["a"].read() == b"old" * 9999
    with pytest.raises(ModelError, match="b: is damaged"):
        late["b"]
    assert CommittedFolder(tmp_path)["b"].read() == b"new" * 9999


def test_a_manifest_is_extended_without_reading_the_other_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1")
    write_manifest(tmp_path, ["a"])
    before = read_manifest(tmp_path)
    (tmp_path / "a").write_bytes(b"2")  # a damage that a second hash would hide
    extend_manifest(tmp_path, "b")
    assert read_manifest(tmp_path) == {**before, "b": before["a"]}
    with pytest.raises(ModelError, match="a: is damaged"):
        CommittedFolder(tmp_path).verify(["a", "b"])
    (tmp_path / "a").unlink()
    extend_manifest(tmp_path, "b")


def test_a_manifest_that_cannot_be_extended_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(ModelError, match=r"has no manifest\.json"):
        extend_manifest(tmp_path, "a")
    write_manifest(tmp_path, ["a"])
    with pytest.raises(FileNotFoundError):
        extend_manifest(tmp_path, "missing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", MANIFEST]
    CommittedFolder(tmp_path).verify(["a"])


HOLDER = """
import sys
from pathlib import Path
from recurcli.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def held(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that holds the lock `path` until its stdin is closed or it is killed."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder


def test_a_lock_is_held_by_one_process_and_dies_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock) as holder:
        assert is_locked(lock)
        with pytest.raises(StorageError, match="another recur is at work here"), locked(lock):
            pass
        with pytest.raises(StorageError, match=r"^x is being written$"), locked(lock, busy="x is being written"):
            pass
        holder.kill()
    with locked(lock) as file:
        assert file.write(b"x") == 1
    assert not is_locked(lock)


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock) as holder:
        assert holder.stdin is not None
        threading.Timer(0.05, holder.stdin.close).start()
        with locked(lock, wait=True):
            assert holder.wait(timeout=60) == 0


def test_a_lock_is_a_plain_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing/lock"):
        with (
            pytest.raises(StorageError, match="target: cannot be written: "),
            locked(tmp_path / name, target=Path("target")),
        ):
            pytest.fail("it was locked")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
