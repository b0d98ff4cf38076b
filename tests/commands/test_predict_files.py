"""`recur predict` between files, pipes and terminals, and what goes wrong with them."""

import contextlib
import gzip
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from predicting import Recur, jsonl, texts, tsv


def test_gzip_is_read_by_its_name(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress("sentence\n鼠\n牛\n".encode()))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress('{"sentence": "鼠"}\n'.encode()))
    assert len(tsv(recur("predict", trained, tmp_path / "x.tsv.gz")[1])) == 3
    assert len(jsonl(recur("predict", trained, tmp_path / "x.jsonl.gz")[1])) == 1


@contextlib.contextmanager
def writer_to(path: Path | int, content: bytes) -> Iterator[None]:
    def write() -> None:
        descriptor = os.open(path, os.O_WRONLY) if isinstance(path, Path) else path
        os.write(descriptor, content)
        os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join(timeout=10)


def test_a_fifo_and_a_process_substitution_are_read_as_streams(recur: Recur, trained: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    with writer_to(tmp_path / "fifo.jsonl", b'{"sentence": "a"}\n'):
        code, out, err = recur("predict", trained, tmp_path / "fifo.jsonl")
    assert code == 0, err
    assert len(jsonl(out)) == 1
    reading, writing = os.pipe()
    with writer_to(writing, b"a\nb\n"):
        code, out, err = recur("predict", trained, f"/dev/fd/{reading}")
    os.close(reading)
    assert code == 0, err
    assert len(tsv(out)) == 2


def test_a_fifo_can_be_written_to(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\nb\n")
    os.mkfifo(tmp_path / "fifo")
    found = []
    thread = threading.Thread(target=lambda: found.append((tmp_path / "fifo").read_text()))
    thread.start()
    code, _, err = recur("predict", trained, tmp_path / "x.tsv", "--output", tmp_path / "fifo")
    thread.join(timeout=10)
    assert code == 0, err
    assert len(tsv(found[0])) == 2
    assert (tmp_path / "fifo").is_fifo()


def test_an_output_is_replaced_only_when_told_and_never_the_input(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "x.tsv", tmp_path / "out.tsv"
    source.write_text("a\n")
    output.write_text("precious")
    code, _, err = recur("predict", trained, source, "--output", output)
    assert code == 2
    assert "--overwrite" in err
    assert output.read_text() == "precious"
    assert recur("predict", trained, source, "--output", output, "--overwrite")[0] == 0
    assert output.read_text().startswith("a\t")
    assert output.stat().st_mode & 0o777 == 0o666 & ~_umask()
    (tmp_path / "link.tsv").symlink_to(source)
    (tmp_path / "hard.tsv").hardlink_to(source)
    for name in ("x.tsv", "link.tsv", "hard.tsv"):
        code, _, err = recur("predict", trained, source, "--output", tmp_path / name, "--overwrite")
        assert code == 2
        assert "is the input as well" in err
    with source.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        code, _, err = recur("predict", trained, "--output", source, "--overwrite")
    assert code == 2
    assert source.read_text() == "a\n"
    for output, reason in ((tmp_path, "is a folder"), (tmp_path / "no" / "x", "no such folder")):
        code, _, err = recur("predict", trained, source, "--output", output)
        assert code == 2
        assert reason in err


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_a_symlink_is_replaced_and_not_followed(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\n")
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert recur("predict", trained, tmp_path / "x.tsv", "--output", tmp_path / "link")[0] == 2
    assert recur("predict", trained, tmp_path / "x.tsv", "--output", tmp_path / "link", "--overwrite")[0] == 0
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()


def test_a_full_disk_leaves_nothing_half_written(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("".join(f"{text}\n" for text in texts(5000)))
    code, _, err = recur("predict", trained, source, "--output", "/dev/full")
    assert code == 5
    assert err == "recur: error: /dev/full: cannot be written: No space left on device\n"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, before[1]))
    try:
        code, _, err = recur("predict", trained, source, "--output", tmp_path / "out", "--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 5
    assert err == f"recur: error: {tmp_path / 'out'}: cannot be written: File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_standard_output_may_be_full_or_the_input_itself(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("a\n")
    for path, code, reason in (
        (Path("/dev/full"), 5, "recur: error: standard output: cannot be written: No space left on device\n"),
        (source, 2, "recur: error: standard output is the input file as well; name another file with --output\n"),
    ):
        with monkeypatch.context() as patch, path.open("a") as stream:
            patch.setattr(sys, "stdout", stream)
            assert recur("predict", trained, source, "--quiet")[::2] == (code, reason)
    assert source.read_text() == "a\n"


def test_a_closed_standard_output_ends_it_as_other_filters_end(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"{text}\n" for text in texts(9000)))
    script = '"$1" -m recurcli predict "$2" "$3" --quiet | head -1; echo "${PIPESTATUS[0]}"'
    command = ["bash", "-c", script, "bash", sys.executable, str(trained), str(tmp_path / "x.tsv")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.endswith("\n141\n"), "ended by SIGPIPE"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_half_file(
    number: signal.Signals, code: int, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    written: list[Path] = []

    def feed_and_stop() -> None:
        os.write(writing, b"a\n" * 4096 + b"b\n")
        deadline = time.monotonic() + 30
        while not written and time.monotonic() < deadline:
            time.sleep(0.02)
            written.extend(path for path in tmp_path.iterdir() if path.stat().st_size)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=feed_and_stop)
    with open(reading) as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", stream)
        thread.start()
        found, _, err = recur("predict", trained, "--output", tmp_path / "out", "--quiet")
        thread.join()
    os.close(writing)
    assert written, "it waits for more rows, with the first window written"
    assert (found, err) == (code, f"recur: error: stopped by {number.name}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_is_shown_escapes_and_does_not_obey_them(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.tsv").write_text("\x1b[31mred\u202e\tb\n")
    master, slave = os.openpty()
    with monkeypatch.context() as patch, os.fdopen(slave, "w") as stream:
        patch.setattr(sys, "stdout", stream)
        assert recur("predict", trained, tmp_path / "x.tsv", "--quiet")[0] == 0
        shown = os.read(master, 4096).decode()
    os.close(master)
    assert shown.startswith("\\x1b[31mred\\u202e\tb\t")
