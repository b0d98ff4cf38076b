"""Rows end at LF alone, and files that are not text are refused with their kind; see dirty_files.py for more cases."""

import gc
import io
import os
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing import PACK, zipped

from recurcli.data import rows
from recurcli.data.rows import COMPRESSED, chunks_of, open_file, rows_of
from recurcli.errors import DataError


def contents(data: bytes) -> list[bytes]:
    return [row.content for row in rows_of(io.BytesIO(data), "x")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a", [b"a"]),
        (b"a\rb\nc\r\r\n", [b"a\rb", b"c\r"]),
        (b"a\n\r", [b"a", b""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_only_lf_ends_a_row_and_one_cr_before_it_goes(data: bytes, expected: list[bytes]) -> None:
    assert contents(data) == expected


class Dripping(io.RawIOBase):
    """A pipe that hands out a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data, self.step = data, step

    def read(self, size: int = -1) -> bytes:
        piece, self.data = self.data[: self.step], self.data[self.step :]
        return piece


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=20), max_size=20),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    step=st.integers(1, 50),
)
def test_no_row_is_lost_however_the_bytes_arrive(lines: list[str], end: str, last: bool, step: int) -> None:
    text = end.join(lines) + end * (last and bool(lines))
    data = text.encode()
    expected = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not expected[-1]:
        expected.pop()
    expected = [row.removesuffix(b"\r") for row in expected]
    assert [row.content for row in rows_of(Dripping(data, step), "x")] == expected  # type: ignore[arg-type]


def test_a_row_without_end_is_cut_and_the_next_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROW", 100_000)
    found = list(rows_of(io.BytesIO(b"a\n" + b"x" * 1_000_000 + b"\nb\n"), "x"))
    assert [row.whole for row in found] == [True, False, True]
    assert len(found[1].content) <= 100_000
    assert found[2].content == b"b"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("a\tb\nc\td\n".encode("utf-16-le"), "UTF-16 without a byte order mark"),
        (b"BZh91AY", "a bzip2 file"),
        (b"\xfd7zXZ\x00\x00", "an xz file"),
    ],
)
def test_what_is_no_text_is_named(data: bytes, kind: str) -> None:
    with pytest.raises(DataError, match=f"^x.tsv: .*{kind}"):
        list(rows_of(io.BytesIO(data), "x.tsv"))


@pytest.mark.parametrize("data", [b"caf\xe9\tb\n", b"a\tb\nc\xff\td\n", "好的\n".encode() + b"\xe5\xa5x\n"])
def test_a_bad_byte_among_good_rows_is_left_to_its_row(data: bytes) -> None:
    assert len(contents(data)) == data.count(b"\n")


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (ending, damage)
        for ending in COMPRESSED
        for damage in ("cut", "foreign", "flipped")[: 2 if ending == ".zst" else 3]
    ],
)  # a zstd file need not have a checksum
def test_a_damaged_compressed_file_is_no_traceback(tmp_path: Path, ending: str, damage: str) -> None:
    path = tmp_path / f"x.tsv{ending}"
    whole = PACK[ending](b"".join(b"%d\n" % number for number in range(5000)))
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    path.write_bytes({"cut": whole[: len(whole) // 2], "foreign": b"a\nb\n", "flipped": bytes(flipped)}[damage])
    message = rf"x\.tsv\{ending}: (is not a complete compressed file|cannot be read: (Invalid data|ZSTD|Truncated))"
    with pytest.raises(DataError, match=message), open_file(path) as file:
        list(rows_of(file, str(path)))


@pytest.mark.parametrize("ending", COMPRESSED)
def test_a_compressed_file_that_is_very_large_unpacked_is_read_in_constant_memory(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{ending}"
    path.write_bytes(PACK[ending](b"\n" * (32 << 20)))
    gc.collect()
    tracemalloc.start()
    with open_file(path) as file:
        assert sum(len(chunk) for chunk in chunks_of(file, "x")) == 32 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_zip_of_several_files_or_a_password_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(b"a", "train.csv", "test.csv"))
    with pytest.raises(
        DataError, match=r"x.zip: holds 2 files, not one; unpack it and name a file: train.csv, test.csv$"
    ):
        open_file(path)
    path.write_bytes(zipped(b"a"))
    with pytest.raises(DataError, match="holds 0 files, not one"):
        open_file(path)
    with_flag = re.sub(rb"(PK\x01\x02.{4}).", b"\\1\x01", zipped(b"a", "x.csv"), flags=re.DOTALL)  # of each member
    path.write_bytes(with_flag)
    with pytest.raises(DataError, match=r"x.zip: is encrypted; unpack it"):
        open_file(path)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    reasons = {"": "is a folder", "fifo": "is a FIFO", "missing": "does not exist"}
    for name, reason in (reasons | dict.fromkeys(("loop", "x" * 300, "a\0b"), "cannot be read")).items():
        with pytest.raises(DataError, match=reason):
            open_file(tmp_path / name)
    with pytest.raises(DataError, match="is a FIFO, device or socket"):
        open_file(Path("/dev/null"))


def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("a\n")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(DataError, match="cannot be read: Permission denied"):
            open_file(path)
    finally:
        os.seteuid(user)


def test_a_stream_that_fails_in_the_middle_is_bad_data() -> None:
    class Failing(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match="x: cannot be read: Input/output error"):
        list(rows_of(Failing(), "x"))  # type: ignore[arg-type]
