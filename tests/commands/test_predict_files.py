"""`recur predict` between files, pipes and terminals, and what goes wrong with them."""

import contextlib
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
from forked import ForkServer
from predicting import Recur, jsonl, texts, tsv

HIDDEN = {".out.partial", ".out.progress.json"}
"""What a resume needs of an output that is not complete."""


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
        assert len(jsonl(recur.ok("predict", trained, tmp_path / "fifo.jsonl")[0])) == 1
    reading, writing = os.pipe()
    with writer_to(writing, b"a\nb\n"):
        assert len(tsv(recur.ok("predict", trained, f"/dev/fd/{reading}")[0])) == 2
    os.close(reading)


def test_a_fifo_can_be_written_to(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\nb\n")
    os.mkfifo(tmp_path / "fifo")
    found = []
    thread = threading.Thread(target=lambda: found.append((tmp_path / "fifo").read_text()))
    thread.start()
    recur.ok("predict", trained, tmp_path / "x.tsv", "--output", tmp_path / "fifo")
    thread.join(timeout=10)
    assert len(tsv(found[0])) == 2
    assert (tmp_path / "fifo").is_fifo()


def test_an_output_has_the_mode_of_the_umask_and_is_never_standard_input(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("a\n")
    recur.ok("predict", trained, source, "--output", tmp_path / "new.tsv")
    current = os.umask(0)
    os.umask(current)
    assert (tmp_path / "new.tsv").stat().st_mode & 0o777 == 0o666 & ~current
    with source.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        recur.refused(2, "is an input as well", "predict", trained, "--output", source, "--overwrite")
    assert source.read_text() == "a\n"


def test_a_symlink_is_replaced_and_not_followed(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\n")
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    recur.ok("predict", trained, tmp_path / "x.tsv", "--output", tmp_path / "link", "--overwrite")
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()


def test_a_full_disk_leaves_no_half_file(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("".join(f"{text}\n" for text in texts(5000)))
    recur.refused(5, "/dev/full: cannot be written", "predict", trained, source, "--output", "/dev/full")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit, way_out, left in (
        (100_000, "", {"x.tsv"}),
        (150_000, "; 4,096 rows are done; continue with the same command and --resume", {"x.tsv", *HIDDEN}),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            code, _, err = recur("predict", trained, source, "--output", tmp_path / "out", "--quiet")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert code == 5
        reason = "cannot be written: File too large; raise the limit on the size of files (ulimit -f)"
        assert err == f"recur: error: {tmp_path / 'out'}: {reason}{way_out}\n"
        assert {path.name for path in tmp_path.iterdir()} == left
    recur.ok("predict", trained, source, "--output", tmp_path / "out", "--resume")
    recur.ok("predict", trained, source, "--output", tmp_path / "whole")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_standard_output_may_be_full_or_the_input_itself(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x.tsv"
    source.write_text("a\n")
    for path, code, reason in (
        (
            Path("/dev/full"),
            5,
            "recur: error: standard output: cannot be written: No space left on device; make room there\n",
        ),
        (source, 2, "recur: error: standard output is the input file as well; name another file with --output\n"),
    ):
        with monkeypatch.context() as patch, path.open("a") as stream:
            patch.setattr(sys, "stdout", stream)
            assert recur("predict", trained, source, "--quiet")[::2] == (code, reason)
    assert source.read_text() == "a\n"


@pytest.mark.slow
def test_a_closed_standard_output_ends_it_as_any_filter(forks: ForkServer, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"{text}\n" for text in texts(9000)))
    os.mkfifo(tmp_path / "pipe")
    shims = (("print_to", {"path": str(tmp_path / "pipe")}),)
    child = forks.start("predict", trained, tmp_path / "x.tsv", "--quiet", shims=shims)
    with (tmp_path / "pipe").open() as pipe:
        assert pipe.readline()
    ended = child.end()
    assert (ended.code, ended.err) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_half_file(
    number: signal.Signals, code: int, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    written: list[Path] = []
    ended = threading.Event()

    def feed_and_stop() -> None:
        os.write(writing, b"a\n" * 4096 + b"b\n")
        deadline = time.monotonic() + 30
        while not written and time.monotonic() < deadline:
            time.sleep(0.02)
            written.extend(path for path in tmp_path.glob(".out.partial") if path.stat().st_size)
        time.sleep(0.1)  # until it has taken note of what it wrote
        os.kill(os.getpid(), number)
        ended.wait(30)  # a signal between the last look and the read that waits is seen by no one: the input ends then
        os.close(writing)

    thread = threading.Thread(target=feed_and_stop)
    with open(reading) as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdin", stream)
        thread.start()
        found, _, err = recur("predict", trained, "--output", tmp_path / "out", "--quiet")
        ended.set()
        thread.join()
    assert written, "it waits for more rows, with the first window written"
    way_out = "4,096 rows are done; continue with the same command and --resume"
    assert (found, err) == (code, f"recur: stopped by {number.name}; {way_out}\n")
    assert {path.name for path in tmp_path.iterdir()} == HIDDEN


def test_a_terminal_shows_escapes(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tsv").write_text("\x1b[31mred\u202e\tb\n")
    master, slave = os.openpty()
    with monkeypatch.context() as patch, os.fdopen(slave, "w") as stream:
        patch.setattr(sys, "stdout", stream)
        recur.ok("predict", trained, tmp_path / "x.tsv", "--quiet")
        shown = os.read(master, 4096).decode()
    os.close(master)
    assert shown.startswith("\\x1b[31mred\\u202e\tb\t")


@pytest.mark.parametrize("to", ["a pipe that asks for it", "a terminal"])
def test_rows_are_answered_one_by_one(to: str, recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (reading, writing), (master, slave) = os.pipe(), os.openpty() if to == "a terminal" else os.pipe()
    answers: list[bytes] = []

    def talk() -> None:
        for text in (b"\xe9\xbc\xa0\n", b"\xe7\x89\x9b\n", b"\xe8\x99\x8e"):
            os.write(writing, text)
            if text.endswith(b"\n"):
                answers.append(os.read(master, 4096))  # would wait for ever if more rows were wanted first
        os.close(writing)

    thread = threading.Thread(target=talk, daemon=True)
    with open(reading) as stdin, open(slave, "w") as stdout, monkeypatch.context() as patch:  # noqa: PTH123
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        thread.start()
        options = [] if to == "a terminal" else ["--unbuffered"]
        recur.ok("predict", trained, "--quiet", *options)
        thread.join(timeout=10)
        answers.append(os.read(master, 4096))
    os.close(master)
    assert [answer.decode().split("\t")[0] for answer in answers] == ["鼠", "牛", "虎"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tsv", "jsonl", "pipe"])
def test_a_million_rows_take_the_memory_of_fifty_thousand(form: str, trained: Path, tmp_path: Path) -> None:
    code = (
        "import re, sys; from recurcli.cli import run; code = run(sys.argv[1:]); "
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]); sys.exit(code)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    line = '{{"id": {0}, "text": "{1}"}}\n' if form == "jsonl" else "{0}\t{1}\n"
    peaks = []
    for count in (50_000, 1_000_000):
        ending = "jsonl" if form == "jsonl" else "tsv"
        source, output = tmp_path / f"{count}.{form}", tmp_path / f"{count}.out.{ending}"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(line.format(number, text) for number, text in enumerate(texts(count)))
        given = ["-", "--text", "2"] if form == "pipe" else [str(source), "--text", "2" if form == "tsv" else "text"]
        command = [sys.executable, "-c", code, "predict", str(trained), *given, "--output", str(output), "--quiet"]
        with source.open("rb") as stdin:
            done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, env=environment, check=True)
        assert output.read_bytes().count(b"\n") == count
        peaks.append(int(done.stdout) / 1024)
    print(f"\n{form}: {peaks[0]:.0f} MB at 50,000 rows, {peaks[1]:.0f} MB at 1,000,000")
    assert peaks[1] - peaks[0] < 50
