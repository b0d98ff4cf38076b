"""Pre-training on plain text: any number of files, read from the disk batch by batch, resumed at the exact place."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases import slow_but
from logs import drop_at_step
from running import Recur
from safetensors.torch import load_file
from tiny_task import tiny
from torchrun import command, completed

from recurcli.commands.pretrain import pretrain
from recurcli.files import sha256_of
from recurcli.requests.training import PretrainRequest
from recurcli.tokens import batching


def write_texts(folder: Path, files: int = 3, lines: int = 40) -> Path:
    for number in range(files):
        (folder / f"part {number}").mkdir(parents=True)
        texts = [f"{'鼠牛虎兔龙蛇'[line % 6] * (1 + line % 5)}{number}" for line in range(lines)]
        (folder / f"part {number}" / "text.txt").write_text("\n".join(texts) + "\n\n", encoding="utf-8")
    return folder


def options(texts: Path, output: Path, *more: str) -> list[object]:
    settings = tiny("pretraining.max_steps=25", "pretraining.checkpoint_every=4", "encoder.dropout=0", *more)
    return ["--preset", "starsaber-tnews", "--data", texts, "--output", output, *settings]


@pytest.mark.parametrize(("part", "rows"), [(".", 120), ("part 0/text.txt", 40)])
def test_a_folder_of_text_files_or_one_file_is_read(part: str, rows: int, recur: Recur, tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "texts") / part
    out, err = recur.ok("pretrain", *options(texts, tmp_path / "run", "pretraining.max_steps=2"), "--json", "--verbose")
    found = json.loads(out)["data"]["text"]
    assert (found["rows"], found["path"]) == (rows, str(texts))
    assert rows == 40 or "3 text files" in err


@pytest.mark.parametrize("window", slow_but([16], [16, 1 << 22]))
def test_a_resume_goes_on_exactly(window: int, recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "WINDOW", window)
    texts, whole, stopped = write_texts(tmp_path / "texts"), tmp_path / "whole", tmp_path / "stopped"
    recur.ok("pretrain", *options(texts, whole))
    settings = [str(part) for part in options(texts, tmp_path)[7::2]]
    drop_at_step(18, pretrain, PretrainRequest(preset="starsaber-tnews", data=texts, settings=settings, output=stopped))
    line = ("pretrain", *options(texts, stopped), "--resume")
    path = texts / "part 1" / "text.txt"
    content = path.read_text()
    path.write_text("another\n")
    recur.refused(2, "text rows was 120 and is now 81", *line)
    path.write_text(content)
    assert "resumed at step 16" in recur.ok(*line)[1]
    assert sha256_of(stopped / "model.safetensors") == sha256_of(whole / "model.safetensors")


@pytest.mark.slow
def test_two_processes_share_the_text_and_train_as_one_does(recur: Recur, tmp_path: Path) -> None:
    texts = write_texts(tmp_path / "texts")
    without = "embedding.dropout=0"
    recur.ok("pretrain", *options(texts, tmp_path / "one", *without), "--quiet")
    done = completed(command("pretrain", *options(texts, tmp_path / "two", *without)))
    assert done.returncode == 0, done.stderr.decode()
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-5


PEAK = """
import sys, threading, time
from recurcli.cli import run

peak = 0
def watch():
    global peak
    while True:
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
code = run(sys.argv[1:])
print("peak", peak)
sys.exit(code)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """Pages of the mapped file are the system's to take back; what counts is memory of the process's own."""
    peaks = {}
    for lines in (20_000, 1_000_000):
        folder = tmp_path / str(lines)
        folder.mkdir()
        with (folder / "x.txt").open("w") as file:
            file.writelines(f"{number:x} {number * 7919 % 100_003:x} and some more words\n" for number in range(lines))
        settings = [*options(folder, tmp_path / f"run {lines}"), "--set", "tokenizer.kind=byte", "--quiet"]
        started = time.monotonic()
        arguments = [sys.executable, "-c", PEAK, "pretrain", *map(str, settings)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        peaks[lines] = int(done.stdout.split()[-1]) / 1024
        print(f"\n{lines:,} lines: {peaks[lines]:.0f} MB, {time.monotonic() - started:.0f} s")
    assert peaks[1_000_000] - peaks[20_000] < 100, peaks
