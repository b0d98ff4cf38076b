"""`recur predict` on several files, and --shard: the outputs of the parts, joined, are that of all rows."""

import gzip
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases import slow_but
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


def write(path: Path, numbers: Sequence[int] = range(23)) -> Path:
    rows = [{"id": str(number), "sentence": TEXTS[number]} for number in numbers]
    if path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    elif path.suffix == ".txt":
        lines = [row["sentence"] for row in rows]
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [mark.join(row.values()) for row in [{"id": "id", "sentence": "sentence"}, *rows]]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("parts", slow_but([7], [1, 2, 5, 7]))
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
    asked = PredictRequest(run=trained, inputs=[source], output=output, shard="2/3")
    drop(predict, asked, lambda state: state.done > 4)
    recur.refused(2, "shard", *line, "--shard", "1/3", "--resume")
    _, err = recur.ok(*line, "--shard", "2/3", "--resume")
    assert "going on after row " in err
    assert output.read_bytes() == whole


FILES = [range(0, 7), range(7, 9), range(9, 9), range(9, 20), range(20, 23)]
"""The rows of several files, one of which has none."""


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
@pytest.mark.parametrize("parts", slow_but([4], [1, 2, 4, 7]))
def test_several_files_are_labelled_as_one_with_their_rows_and_each_is_in_one_part(
    parts: int, ending: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    files = [write(tmp_path / f"{number}{ending}", rows) for number, rows in enumerate(FILES)]
    empty = tmp_path / f"empty{ending}"
    empty.touch()
    line = ["predict", trained, empty, *files, "--probabilities"]
    recur.ok(*line, "--output", tmp_path / f"all{ending}")
    whole = (tmp_path / f"all{ending}").read_bytes()
    one, _ = recur.ok("predict", trained, write(tmp_path / f"one{ending}"), "--probabilities")
    numbers = re.compile(r"\d\.\d+")  # which other batches may change in the last digit
    assert numbers.sub("", whole.decode()) == numbers.sub("", one)
    scores = [[float(score) for score in numbers.findall(text)] for text in (whole.decode(), one)]
    assert scores[0] == pytest.approx(scores[1], abs=2e-6)
    joined = b""
    for number in range(1, parts + 1):
        recur.ok(*line, "--shard", f"{number}/{parts}", "--output", tmp_path / f"part-{number}{ending}")
        joined += (tmp_path / f"part-{number}{ending}").read_bytes()
    assert joined == whole


def test_the_keys_of_all_json_files_are_columns_and_a_fault_names_its_file(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"sentence": "鼠"}\n')
    second.write_text('{"sentence": "牛", "source": 3}\n{"sentence": 5}\n')
    out, err = recur.ok("predict", trained, first, second, "--format", "csv")
    head, *rows = out.splitlines()
    assert head == "sentence,source,prediction,score,reason"
    assert [row.split(",")[:2] for row in rows] == [["鼠", ""], ["牛", "3"], ["5", ""]]
    assert f"{second}:2: 'sentence' is a number, not a string; labelled from the readable part" in err


def test_files_that_do_not_go_together_are_refused(recur: Recur, trained: Path, tmp_path: Path) -> None:
    file, other, named = write(tmp_path / "x.tsv"), write(tmp_path / "x.csv"), tmp_path / "y.tsv"
    named.write_text("sentence\tsource\n鼠\t1\n")
    recur.refused(3, f"{other}: has another format or delimiter than {file}", "predict", trained, file, other)
    recur.refused(3, f"{named}: has other columns than {file}", "predict", trained, file, named)
    recur.refused(2, "standard input cannot be one of several inputs", "predict", trained, file, "-")
    recur.refused(2, "is an input as well", "predict", trained, named, file, "--output", file, "--overwrite")


def test_a_resume_goes_on_in_the_file_where_it_stopped(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    files = [write(tmp_path / f"{number}.tsv", rows) for number, rows in enumerate(FILES)]
    for ending in (".tsv", ".parquet"):
        output = tmp_path / f"y{ending}"
        line = ["predict", trained, *files, "--output", output]
        recur.ok(*line)
        whole = output.read_bytes()
        output.unlink()
        drop(predict, PredictRequest(run=trained, inputs=files, output=output), lambda state: state.done > 8)
        recur.refused(
            3, "differs from the input of the earlier run", "predict", trained, *files[3:], *line[-2:], "--resume"
        )
        _, err = recur.ok(*line, "--resume")
        assert "going on after row " in err
        assert output.read_bytes() == whole
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
