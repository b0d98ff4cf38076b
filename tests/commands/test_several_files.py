"""Rows in several files: `--train` given more than once, the files of the Hub and of `datasets`, labels and names apart."""

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from predicting import Recur
from pyarrow import parquet

from recurcli.data.labels import read_label_names
from recurcli.errors import DataError

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
    recur.refused(
        3,
        f"a.csv and 1 more file: 1 of 62 rows cannot be used: {tmp_path / 'b.csv'}:3: has 1 field, not 2",
        *LINE,
        *several,
    )
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


@pytest.mark.parametrize("task", ["custom", "imdb"])
def test_folders_of_datasets_are_read(recur: Recur, tmp_path: Path, task: str) -> None:
    import datasets

    names = ["neg", "pos"]
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
    numbers = {"text": [text for text, _ in rows(60)], "label": [int(name == "good") for _, name in rows(60)]}
    train = datasets.Dataset.from_dict(numbers, features=features)
    whole = tmp_path / "whole"
    datasets.DatasetDict({"train": train, "validation": train.select(range(20)), "extra": train}).save_to_disk(
        str(whole)
    )
    found = only(recur.json("check", whole, "--task", task))
    expected = [("train", 60), ("dev", 20)] if task == "custom" else [("train", 54), ("dev", 6)]
    assert [(split["split"], split["rows"]) for split in found["splits"]] == expected
    found = only(recur.json("check", whole / "train", "--task", task))
    assert [(split["rows"], split["labels"]) for split in found["splits"]] == [(60, {"neg": 30, "pos": 30})]
    (whole / "train" / "data-00000-of-00001.arrow").unlink()
    recur.refused(
        3, f"{whole / 'train'}: is not a whole folder of `datasets`", "check", whole / "train", "--task", task
    )


def write_tweeteval(folder: Path, counts: dict[str, int]) -> None:
    """Write the files of TweetEval: texts and labels apart, and the names of the labels in a third."""
    for number, (split, count) in enumerate(counts.items()):
        content = rows(count, 100 * number)
        (folder / f"{split}_text.txt").write_text("".join(f"{text}\n" for text, _ in content))
        (folder / f"{split}_labels.txt").write_text("".join(f"{int(label == 'good')}\n" for _, label in content))
    (folder / "mapping.txt").write_text("0\tbad\n1\tgood\n")


def test_texts_labels_and_names_of_labels_may_be_in_three_files(recur: Recur, tmp_path: Path) -> None:
    write_tweeteval(tmp_path, {"train": 60, "val": 20, "test": 10})
    files = [("train", "train"), ("dev", "val"), ("test", "test")]
    options = [f"--{split}={tmp_path / name}_text.txt" for split, name in files]
    options += [f"--labels={tmp_path / name}_labels.txt" for _, name in files]
    options += ["--label-names", str(tmp_path / "mapping.txt")]
    found = only(recur.json("check", *options))
    assert [split["labels"] for split in found["splits"]] == [{"bad": n, "good": n} for n in (30, 10, 5)]
    line = [*LINE, "-o", tmp_path / "run", *options]
    out, _ = recur.ok(*line, "--json")
    counted = {split: facts["rows"] for split, facts in json.loads(out)["data"].items()}
    assert counted == {"train": 60, "dev": 20, "test": 10}
    assert recur.json("eval", tmp_path / "run", "--split", "test")["rows"] == 10
    (tmp_path / "mapping.txt").unlink()
    texts, labels = tmp_path / "test_text.txt", tmp_path / "test_labels.txt"
    scored = recur.json("eval", tmp_path / "run", texts, "--labels", labels)
    numbers = write_csv(tmp_path / "numbers.csv", [(text, str(int(label == "good"))) for text, label in rows(10, 200)])
    assert recur.json("eval", tmp_path / "run", numbers)["metrics"] == scored["metrics"]
    names = write_csv(tmp_path / "names.csv", rows(10, 200))
    assert recur.json("eval", tmp_path / "run", names)["metrics"] == scored["metrics"]
    [answer, *_] = recur("predict", tmp_path / "run", names)[1].splitlines()[1:]
    assert answer.split(",")[2] in ("bad", "good")
    (tmp_path / "train_labels.txt").write_text("1\n" * 60)
    (tmp_path / "mapping.txt").write_text("0\tbad\n1\tgood\n")
    recur.refused(2, "train sha256 was", *line, "--resume")
    (tmp_path / "train_labels.txt").write_text("1\n" * 59)
    lacking = f"{tmp_path / 'train_labels.txt'}: has 59 lines, but {tmp_path / 'train_text.txt'} has 60 rows"
    recur.refused(3, lacking, "check", tmp_path / "train_text.txt", "--labels", tmp_path / "train_labels.txt")
    recur.refused(2, "names 1 files, but 3 files hold the rows", "check", *options[:4])


def test_the_names_of_files_are_labels(recur: Recur, tmp_path: Path) -> None:
    options: list[object] = []
    for split, start in (("train", 0), ("dev", 60)):
        for label in ("good", "bad"):
            (file := tmp_path / split / f"{label}.txt").parent.mkdir(exist_ok=True)
            file.write_text("".join(f"{text}\n" for text, own in rows(60, start) if own == label))
            options += [f"--{split}", file]
    found = only(recur.json("check", *options, "--label-by", "file"))
    assert [split["labels"] for split in found["splits"]] == [{"bad": 30, "good": 30}] * 2
    out, _ = recur.ok(*LINE, "-o", tmp_path / "run", *options, "--label-by", "file", "--json")
    assert json.loads(out)["dev"]["accuracy"] == 1
    assert recur.json("eval", tmp_path / "run")["rows"] == 60
    errors = tmp_path / "errors.tsv"
    write_csv(tmp_path / "new.csv", [("broke at once", "bad"), ("broke at once", "good")])
    recur.ok("eval", tmp_path / "run", tmp_path / "new.csv", "--errors", errors)
    assert len(errors.read_text().splitlines()) == 2
    in_column = "--label: must be null with label_files or label_by file"
    recur.refused(2, in_column, "check", *options, "--label-by", "file", "--label", "x")


def test_numbered_classes_have_the_names_of_a_list(recur: Recur, tmp_path: Path) -> None:
    """As AG News has them: train.csv with 1 to 4, and classes.txt."""
    (tmp_path / "classes.txt").write_text("bad\ngood\n")
    (tmp_path / "train.csv").write_text("".join(f'"{1 + (label == "good")}","{text}"\n' for text, label in rows(60)))
    columns = ("--label", "1", "--text", "2", "--label-names", tmp_path / "classes.txt")
    found = only(recur.json("check", tmp_path / "train.csv", *columns))
    assert found["splits"][0]["labels"] == {"bad": 30, "good": 30}
    with (tmp_path / "train.csv").open("a") as file:
        file.write('"3","neither"\n')
    unnamed = f"{tmp_path / 'train.csv'}:61: the label '3' has no name among the 2 of --label-names"
    recur.refused(3, unnamed, "check", tmp_path / "train.csv", *columns)
    (tmp_path / "train.csv").write_text("".join(f'"1","{text}"\n' for text, _ in rows(60)))
    (tmp_path / "classes.txt").write_text("bad\ngood\nneither\n")
    recur.refused(3, "no row has the label 0 or 3", "check", tmp_path / "train.csv", *columns)


def test_the_labels_of_tnews_have_the_names_of_its_file(recur: Recur, tmp_path: Path) -> None:
    if (data := os.environ.get("RECUR_DATA")) is None:
        pytest.skip("needs RECUR_DATA, the folder of data sets")
    tnews = Path(data) / "tnews"
    names = ("--label-names", tnews / "labels.json")
    found = only(recur.json("check", "--train", tnews / "dev.json", *names, "--task", "custom", "--no-lengths"))
    labels = [json.loads(line)["label_desc"] for line in (tnews / "labels.json").read_text().splitlines()]
    assert set(found["splits"][0]["labels"]) == set(labels)
    recur.refused(2, "names of its own", "check", tnews / "dev.json", *names)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("bad\nvery good\n\n", ("bad", "very good")),
        ("0\tbad\tsad\n1\tvery good\n", {"0": "bad", "1": "very good"}),
        ("0 bad\n1 very good\n", {"0": "bad", "1": "very good"}),
        ('["bad", "good"]', ("bad", "good")),
        ('{\n"0": "bad",\n"1": "good"}', {"0": "bad", "1": "good"}),
        ('{"label": "100", "label_desc": "a"}\n{"label": "101", "label_desc": "b"}\n', {"100": "a", "101": "b"}),
        ("[1, 2]", None),
        ('{"0": 1}', None),
        ("{", None),
        ('{"label": 1}\n{"label": 2}\n', None),
    ],
)
def test_names_of_labels_are_read_in_any_usual_form(tmp_path: Path, content: str, expected: object) -> None:
    (file := tmp_path / "names").write_text(content)
    if expected is None:
        with pytest.raises(DataError, match="neither a name a line"):
            read_label_names(file)
    else:
        assert read_label_names(file) == expected


def test_an_error_names_the_file_of_the_labels_beside_the_texts(recur: Recur, tmp_path: Path) -> None:
    write_tweeteval(tmp_path, {"train": 60, "val": 20})
    texts, labels = tmp_path / "train_text.txt", tmp_path / "train_labels.txt"
    fault = "its labels seem to be in train_labels.txt, which has as many lines"
    way_out = f"add --labels {labels}, or join them: paste {texts} {labels} > train.tsv"
    recur.refused(3, f"{fault}; {way_out}", *LINE, texts)
    joined = subprocess.run(["paste", texts, labels], check=True, capture_output=True).stdout
    (tmp_path / "train.tsv").write_bytes(joined)
    columns = ("--no-header", "--text", "1", "--label", "2")
    assert only(recur.json("check", tmp_path / "train.tsv", *columns))["splits"][0]["labels"] == {"0": 30, "1": 30}
