"""The rows of a split in several files: `--train` given more than once, and the files of the Hub."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from predicting import Recur
from pyarrow import parquet

LINE = ("finetune", "--preset", "linear-custom")
THINGS = ("kettle", "lamp", "desk", "chair", "shelf")


def rows(count: int, start: int = 0) -> list[tuple[str, str]]:
    """Return texts and labels, of which no two are equal."""
    words = {"bad": "broke at once, sent back", "good": "works well, looks fine"}
    pairs = ((f"the {THINGS[number % 5]} number {number} {words[label]}", label) for number in range(start, start + count)
             for label in [("bad", "good")[number % 2]])  # fmt: skip
    return list(pairs)


def write_csv(path: Path, content: list[tuple[str, str]], header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *content])
    return path


def write_shard(path: Path, content: list[tuple[str, str]]) -> None:
    """Write rows as `datasets` does: a class is a number, whose name stands in the metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    features = {"text": {"_type": "Value"}, "label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    table = pa.table(
        {"text": [text for text, _ in content], "label": [("bad", "good").index(name) for _, name in content]}
    )
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    parquet.write_table(table.replace_schema_metadata(metadata), path)


def only(report: dict[str, Any]) -> dict[str, Any]:
    [found] = report["reports"]
    return dict(found)


def test_rows_of_several_files_follow_each_other_whatever_the_order_of_their_columns(
    recur: Recur, tmp_path: Path
) -> None:
    one, two, all_rows = rows(60), rows(40, 60), rows(100)
    write_csv(tmp_path / "a.csv", one)
    write_csv(tmp_path / "b.csv", [(label, text) for text, label in two], ("label", "text"))
    write_csv(tmp_path / "all.csv", all_rows)
    several = ("--train", tmp_path / "a.csv", "--train", tmp_path / "b.csv")
    results = []
    for name, data in (("several", several), ("one", ("--data", tmp_path / "all.csv"))):
        out, _ = recur.ok(*LINE, "-o", tmp_path / name, *data, "--json")
        results.append(json.loads(out))
    assert [result["data"]["train"]["rows"] for result in results] == [100, 100]
    assert results[0]["dev"] == results[1]["dev"]


def test_what_shows_a_line_of_several_files_names_the_file(recur: Recur, tmp_path: Path) -> None:
    content = rows(60)
    write_csv(tmp_path / "a.csv", content[:30])
    write_csv(tmp_path / "b.csv", [*content[30:], content[2], ("", "bad"), (content[5][0], "bad")])
    several = ("--train", tmp_path / "a.csv", "--train", tmp_path / "b.csv")
    suspects = tmp_path / "suspects.csv"
    found = only(recur.json("check", *several, "--suspects", suspects))
    split = found["splits"][0]
    assert split["repeated"]["first_lines"][0] == ["a.csv:4", "b.csv:32"]
    assert split["issues"]["blank"]["first_lines"] == ["b.csv:33"]
    messages = " ".join(finding["message"] for finding in found["findings"])
    assert "a.csv and 1 more file: 1 row with an empty text: line b.csv:33" in messages
    with suspects.open(encoding="utf-8") as file:
        [first, *_] = csv.DictReader(file)
    assert first["line"] == "b.csv:34"


def test_a_fault_names_its_own_file(recur: Recur, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", rows(60))
    (tmp_path / "b.csv").write_text("text,label\nfine,good\ncut short\n")
    several = ("--train", tmp_path / "a.csv", "--train", tmp_path / "b.csv")
    recur.refused(3, f"{tmp_path / 'b.csv'}: 1 of 2 rows cannot be used: b.csv:3: has 1 field, not 2", *LINE, *several)
    write_csv(tmp_path / "c.csv", rows(3), ("comment", "verdict"))
    several = ("--train", tmp_path / "a.csv", "--train", tmp_path / "c.csv")
    recur.refused(3, f"{tmp_path / 'c.csv'}:1: 'comment' seems to name a column", *LINE, *several)


def test_a_resume_sees_that_one_of_several_files_changed(recur: Recur, tmp_path: Path) -> None:
    files = [write_csv(tmp_path / f"{name}.csv", rows(40, start)) for name, start in (("a", 0), ("b", 40))]
    line = [*LINE, "-o", tmp_path / "run", "--train", files[0], "--train", files[1]]
    recur.ok(*line)
    recur.ok(*line, "--resume")
    scored = recur.json("eval", tmp_path / "run")
    assert scored["rows"] == 80
    write_csv(files[1], rows(41, 40))
    recur.refused(2, "sha256 was", *line, "--resume")


def test_several_files_are_not_the_same(recur: Recur, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", rows(40))
    recur.refused(2, "are the same", *LINE, "--train", file, "--train", file)


@pytest.mark.parametrize("folder", ["", "data"])
def test_the_files_of_the_hub_are_read(recur: Recur, tmp_path: Path, folder: str) -> None:
    content, hub = rows(100), tmp_path / "hub"
    write_shard(hub / folder / "train-00000-of-00002.parquet", content[:60])
    write_shard(hub / folder / "train-00001-of-00002.parquet", content[60:])
    write_shard(hub / folder / "validation-00000-of-00001.parquet", rows(20, 100))
    write_shard(hub / folder / "test-00000-of-00001.parquet", rows(10, 200))
    found = only(recur.json("check", hub))
    assert [(split["split"], split["rows"]) for split in found["splits"]] == [("train", 100), ("dev", 20), ("test", 10)]
    assert found["splits"][0]["labels"] == {"bad": 50, "good": 50}
    line = [*LINE, "-o", tmp_path / "run", "--train", hub / folder]
    out, _ = recur.ok(*line, "--json")
    assert {name: facts["rows"] for name, facts in json.loads(out)["data"].items()} == {"train": 100, "dev": 20}
    moved = tmp_path / "moved"
    shutil.copytree(hub, moved)
    recur.ok(*LINE, "-o", tmp_path / "whole", "--data", hub)
    recur.ok(*LINE, "-o", tmp_path / "whole", "--data", moved, "--resume")
    write_shard(moved / folder / "train-00001-of-00002.parquet", content[50:])
    recur.refused(2, "train sha256 was", *LINE, "-o", tmp_path / "whole", "--data", moved, "--resume")
    (hub / folder / "train-00001-of-00002.parquet").unlink()
    recur.refused(3, "train-00001-of-00002.parquet: does not exist", "check", hub)


def test_a_known_task_is_read_from_the_files_of_the_hub(recur: Recur, tmp_path: Path) -> None:
    write_shard(tmp_path / "plain_text" / "train-00000-of-00001.parquet", [(text, "good") for text, _ in rows(3)])
    reason = "train-00000-of-00001.parquet:1: label 'good' is not one of imdb's 2 labels"
    recur.refused(3, reason, "check", tmp_path / "plain_text", "--task", "imdb")
