"""The peak memory of a training grows less than tenfold from 100,000 to 1,000,000 rows."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CODE = """
import resource, sys
from recurcli.cli import run

code = run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_maxrss * 1024 / 1e9, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def write_rows(path: Path, count: int) -> None:
    """Write rows of about 80 characters in ten classes. Words are drawn by Zipf's law, in an order that the class decides."""
    draw = np.random.default_rng(0)
    letters = draw.integers(97, 123, (30_000, 9), np.uint8)
    words = np.array([bytes(word[: 3 + number % 7]).decode() for number, word in enumerate(letters)])
    shares = 1 / np.arange(1, len(words) + 1)
    with path.open("w") as file:
        file.write("text,label\n")
        for _ in range(0, count, 10_000):
            labels = draw.integers(0, 10, 10_000)
            places = draw.choice(len(words), (10_000, 12), p=shares / shares.sum()) + 300 * labels[:, None]
            texts = (" ".join(row) for row in words[places % len(words)])
            file.writelines(f"{text},class {label}\n" for text, label in zip(texts, labels.tolist(), strict=True))


@pytest.mark.slow
def test_a_million_rows_take_less_than_tenfold_what_a_hundred_thousand_do(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RECUR_CACHE": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    used = []
    for count in (100_000, 1_000_000):
        write_rows(tmp_path / "rows.csv", count)
        line = ["finetune", "rows.csv", "--preset", "linear-custom", "--output", f"{count}", "--quiet", "--json"]
        command = [sys.executable, "-c", CODE, *line, "--set", "linear.vectors=null"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=True)
        used.append(tuple(map(float, done.stdout.split()[-2:])))
        print(f"\n{count:,} rows: {used[-1][0]:.2f} GB, {used[-1][1]:.0f} CPU-s")
    assert used[1][0] < 1.5
    assert used[1][1] < 10 * used[0][1]
