"""The cache: a file is found again by its key alone, nobody else writes to it, and it does not grow without end."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from recurcli import cache
from recurcli.cache import cached


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def stored(key: str, content: bytes = b"content") -> tuple[bytes, bool]:
    """What the cache holds for `key`, and whether it was written now."""
    written = []

    def write(path: Path) -> dict[str, Any]:
        path.write_bytes(content)
        written.append(path)
        return {"key of its own": key}

    file, facts = cached((key,), ".arrow", write)
    assert facts == {"key of its own": key}
    return file.content.tobytes(), bool(written)


def path_of(key: str, folder: Path) -> Path:
    before = set(folder.glob("*.arrow"))
    stored(key)
    (path,) = set(folder.glob("*.arrow")) - before
    return path


def test_a_file_is_written_once_for_its_key() -> None:
    assert stored("a") == (b"content", True)
    assert stored("a", b"other") == (b"content", False)
    assert stored("b", b"other") == (b"other", True)


def test_a_file_that_was_copied_to_another_key_is_not_used(folder: Path) -> None:
    first, second = path_of("a", folder), path_of("b", folder)
    shutil.copyfile(first, second)
    assert stored("b", b"its own") == (b"its own", True)
    assert stored("a") == (b"content", False)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 8, b"short", b"content" + b"\0" * 8, b"content[]\2" + b"\0" * 7])
def test_a_damaged_file_is_written_again(damage: bytes, folder: Path) -> None:
    path_of("a", folder).write_bytes(damage)
    assert stored("a", b"again") == (b"again", True)
    assert stored("a") == (b"again", False)


def test_the_folder_and_its_files_are_the_users_alone(folder: Path) -> None:
    stored("a")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_folder_that_others_may_write_to_is_closed(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    stored("a")
    assert folder.stat().st_mode & 0o777 == 0o700
    path = next(folder.iterdir())
    path.chmod(0o666)  # somebody else may have put it there before
    assert stored("a", b"mine") == (b"mine", True)


def test_a_folder_of_another_user_or_of_all_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("a")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    held = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert stored("a", b"its own") == (b"its own", True)
    monkeypatch.undo()
    monkeypatch.setenv("RECUR_CACHE", str(folder))
    folder.chmod(0o1777)  # as /tmp, which is root's
    assert stored("b") == (b"content", True)
    assert folder.stat().st_mode & 0o1777 == 0o1777
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == held


def test_the_oldest_files_go_but_never_the_newest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [path_of(key, folder) for key in "abcd"]
    for age, path in enumerate(paths):
        os.utime(path, ns=(age, age))
    size = paths[0].stat().st_size
    monkeypatch.setattr(cache, "MAX_BYTES", 3 * size)
    (folder / "mine.arrow").write_bytes(b"foreign" * size)
    last = path_of("e", folder)
    assert {*folder.glob("*.arrow")} == {paths[2], paths[3], last, folder / "mine.arrow"}
    monkeypatch.setattr(cache, "MAX_BYTES", 1)
    alone = path_of("f", folder)
    assert {*folder.iterdir()} == {alone, folder / "mine.arrow"}, "one larger file stays"


def test_what_killed_processes_left_goes_as_the_oldest_files_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [folder / f".{'0' * 32}.arrow.0123abcd.tmp", folder / f"{'0' * 32}.arrow.lock", folder / "mine.tmp"]
    kept = path_of("a", folder)
    for path in left:
        path.write_bytes(b"\0" * 1000)
        os.utime(path, (1, 1))
    monkeypatch.setattr(cache, "MAX_BYTES", 3 * kept.stat().st_size)
    last = path_of("b", folder)
    assert {*folder.iterdir()} == {kept, last, folder / "mine.tmp"}
