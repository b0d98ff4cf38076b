"""`recur predict --shard`: the outputs of the parts of a file, joined, are that of the file."""

import gzip
import json
import os
from pathlib import Path

import pytest
from logs import drop
from running import Recur

from recurcli.commands.predict import predict
from recurcli.commands.prediction import output as prediction_output
from recurcli.requests.predict import PredictRequest

TEXTS = ["股市今日大涨", "鼠牛虎兔", "a longer text about nothing", "", "x" * 50, "今日天气"] * 4


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of 4 rows or about 100 characters, so that some end early."""
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW_CHARACTERS", 200)


def write(path: Path) -> Path:
    rows = [{"id": str(number), "sentence": text} for number, text in enumerate(TEXTS[:23])]
    if path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    elif path.suffix == ".txt":
        lines = [row["sentence"] for row in rows]
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [mark.join(row.values()) for row in [{"id": "id", "sentence": "sentence"}, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("parts", [1, 2, 5, 7])
@pytest.mark.parametrize(
    ("source", "output", "more"),
    [
        ("x.tsv", "y.tsv", ["--probabilities"]),
        ("x.csv", "y.csv", []),
        ("x.jsonl", "y.jsonl", []),
        ("x.txt", "y.tsv", ["--no-header"]),
        ("x.tsv", "y.json", ["--format", "clue"]),
        ("x.tsv", "y.tsv.gz", []),
    ],
)
def test_the_parts_joined_are_the_whole(
    parts: int, source: str, output: str, more: list[str], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    line = ["predict", trained, write(tmp_path / source), *more]
    recur.ok(*line, "--output", tmp_path / output)
    joined = b""
    for number in range(1, parts + 1):
        part = tmp_path / f"part-{number}-{output}"
        _, err = recur.ok(*line, "--shard", f"{number}/{parts}", "--output", part)
        assert f"part {number}/{parts}: rows " in err
        joined += part.read_bytes()
    whole = (tmp_path / output).read_bytes()
    if output.endswith(".gz"):
        whole, joined = gzip.decompress(whole), gzip.decompress(joined)
    assert joined == whole


def test_a_part_without_rows_says_so(recur: Recur, trained: Path, tmp_path: Path) -> None:
    _, err = recur.ok("predict", trained, write(tmp_path / "x.tsv"), "--shard", "1/7")
    assert "part 1/7: rows are divided at multiples of 4,096, and none of the 23 is in this part" in err


def test_a_part_that_does_not_exist_and_a_part_of_a_pipe_are_refused(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "x.tsv")
    for part in ("5/4", "0/4", "1", "a/b", "1/2/3", "-1/2"):
        recur.refused(2, f"--shard {part}: is not I/N with I from 1 to N", "predict", trained, file, f"--shard={part}")
    recur.refused(2, "--shard takes a part of a file, and a pipe has no parts", "predict", trained, "--shard", "1/2")
    os.mkfifo(tmp_path / "fifo")
    recur.refused(2, "is a pipe; write it to a file", "predict", trained, tmp_path / "fifo", "--shard", "1/2")


def test_a_part_goes_on_as_the_same_part_alone(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    source, output = write(tmp_path / "x.tsv"), tmp_path / "y.tsv"
    line = ["predict", trained, source, "--output", output]
    recur.ok(*line, "--shard", "2/3")
    whole = output.read_bytes()
    output.unlink()
    drop(predict, PredictRequest(run=trained, source=source, output=output, shard="2/3"), lambda state: state.done > 4)
    recur.refused(2, "shard", *line, "--shard", "1/3", "--resume")
    _, err = recur.ok(*line, "--shard", "2/3", "--resume")
    assert "going on after row " in err
    assert output.read_bytes() == whole
