"""Rows of one's own from a preset to predictions: a new task is a file of settings and never code."""

import json
import random
import shutil
from csv import writer as write_csv
from pathlib import Path

import pyarrow
import pytest
from predicting import Recur, jsonl
from pyarrow import parquet
from tiny_task import LABELS, tiny

from recurcli.data.tasks import TASKS, Layout, Task
from recurcli.evaluation.predictor import Predictor

PRESET = """
task: custom
encoder: {name: starsaber, hidden_size: 16, num_layers: 1}
tokenizer: {kind: char, min_frequency: 1}
finetuning: {epochs: 5, batch_size: 4, learning_rate: 0.03, patience: null, encoder: always}
pretraining: {max_steps: 2, batch_size: 8}
runtime: {precision: fp32}
"""
Rows = list[tuple[str, str]]
NAMES = {"100": "rats, and more", "101": "001", "102": "true"}


def rows(count: int, seed: int) -> Rows:
    """Text and label: the class is the group of characters that the text is made of."""
    draw = random.Random(seed)
    made: Rows = []
    for _ in range(count):
        label = draw.choice(list(LABELS))
        made.append(("".join(draw.choices(LABELS[label], k=draw.randint(3, 9))), NAMES[label]))
    return made


def csv(path: Path, found: Rows) -> Path:
    path.write_text(
        "id;stars;review\n" + "".join(f'{n};"{label}";"{a}\n""{a}"""\n' for n, (a, label) in enumerate(found))
    )
    return path


def headless(path: Path, found: Rows) -> Path:
    path.write_text("".join(f"{label}\t{text}\n" for text, label in found))
    return path


def json_lines(path: Path, found: Rows) -> Path:
    path.write_text("".join(json.dumps({"y": label, "words": [*text]}) + "\n" for text, label in found))
    return path


def table(path: Path, found: Rows) -> Path:
    parquet.write_table(pyarrow.table({"question1": [a for a, _ in found], "question2": [a for a, _ in found],
                                       "label": [[*NAMES.values()].index(label) for _, label in found]}), path)  # fmt: skip
    return path


def folder(path: Path, found: Rows) -> Path:
    for split, part in (("train", found[:40]), ("dev", found[40:50]), ("test", found[50:])):
        for number, (text, label) in enumerate(part):
            (path / split / label).mkdir(parents=True, exist_ok=True)
            (path / split / label / f"{number}.txt").write_text(text)
    return path


FORMS = {
    "csv": (csv, "x.csv", "data: {text: review, label: stars}", 54, 6),
    "tsv without a header": (headless, "x.tsv", "data: {text: 2, label: 1, header: false, dev_fraction: 0.2}", 48, 12),
    "json lines": (json_lines, "x.jsonl", "data: {text: words}", 54, 6),
    "parquet": (table, "x.parquet", "", 54, 6),
    "folder": (folder, "rows", "data: {labels: ['true', '001', 'rats, and more']}", 40, 10),
}


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=[] if form == "csv" else pytest.mark.slow) for form in FORMS]
)
def test_a_task_of_ones_own_goes_from_training_to_predictions(form: str, recur: Recur, tmp_path: Path) -> None:
    write, name, settings, train, dev = FORMS[form]
    data = write(tmp_path / name, rows(60, seed=1))
    preset, run = tmp_path / "mine.yaml", tmp_path / "run"
    preset.write_text(PRESET + settings)
    out, err = recur.ok("finetune", "--preset", preset, "--data", data, "--output", run, "--json")
    result = json.loads(out)
    assert (result["data"]["train"]["rows"], result["data"]["dev"]["rows"]) == (train, dev)
    assert result["dev"]["accuracy"] > 0.5
    assert "3 labels from" in err
    assert form == "parquet" or "'rats, and more'" in err
    assert (Predictor.load(run).source.delimiter == ";") == (form == "csv"), "it was recognised"
    if form == "csv":
        _, err = recur.ok("finetune", "--preset", preset, "--data", data, "--output", run, "--resume")
        assert "is already finished; nothing to do" in err
    scored = recur.json("eval", run)
    assert scored["rows"] == dev
    assert scored["metrics"]["accuracy"] == result["dev"]["accuracy"]
    if form == "folder":
        assert recur.json("eval", run, "--split", "test")["rows"] == 10
        predictable = data / "test" / "001"
        assert recur("predict", run, predictable)[0] == 3, "a folder is no file"
        return
    other = write(tmp_path / f"other{data.suffix}", rows(23, seed=2))
    scored = recur.json("eval", run, "--data", other)
    assert (scored["split"], scored["rows"]) == ("file", 23)
    copy = Path(shutil.copy(data, tmp_path / f"copy{data.suffix}"))
    for path in (data, copy):
        assert recur.json("eval", run, "--split", "dev", "--data", path)["rows"] == dev
        assert recur.json("eval", run, "--data", path)["rows"] == train + dev
    out, _ = recur.ok("predict", run, other, "--format", "jsonl")
    predicted = [row["prediction"] for row in jsonl(out)]
    labels = [label for _, label in rows(23, seed=2)]
    if form == "parquet":
        labels = [str([*NAMES.values()].index(label)) for label in labels]
    right = sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels)
    assert right == pytest.approx(scored["metrics"]["accuracy"]), "a prediction reads the columns that training read"


def test_what_python_writes_as_csv_is_read_by_every_command(recur: Recur, trained: Path, tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [", ".join("".join(draw.choices('ab "\n', k=3)) for _ in range(2)) for _ in range(80)]
    texts = ["\n".join(lines[at : at + 4]) for at in range(0, 80, 4)] + ["\n".join(["so, far"] * 5 + ["end"])]
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        rows = ((text, "ab"[row % 2]) for row, text in enumerate(texts))
        write_csv(file, lineterminator="\n").writerows([("text", "label"), *rows])
    last = f"{path}:{path.read_text().count(chr(10)) - 5}: lines in quotes are read as one row"
    (checked,) = recur.json("check", path, "--quiet")["reports"]
    assert (checked["splits"][0]["rows"], checked["errors"]) == (21, 0)
    assert any(last in finding["message"] for finding in checked["findings"] if finding["level"] == "warning")
    options = ["--preset", "starsaber-custom", "--data", path, "--output", tmp_path / "run", *tiny(), "--json"]
    out, err = recur.ok("finetune", *options, "--dry-run")
    assert sum(split["rows"] for split in json.loads(out)["data"].values()) == 21
    assert last in err
    out, err = recur.ok("predict", trained, path, "--text", "text", "--format", "jsonl")
    assert [row["text"] for row in jsonl(out)] == texts
    assert last in err


def test_label_folders_without_splits_are_one_unit_everywhere(recur: Recur, tmp_path: Path) -> None:
    data, run = tmp_path / "rows", tmp_path / "run"
    folder(data, rows(60, seed=1))
    shutil.copytree(data / "test", alone := tmp_path / "alone")
    (tmp_path / "mine.yaml").write_text(PRESET)
    options = ["--preset", tmp_path / "mine.yaml", "--output", run, "--set", "finetuning.max_steps=2"]
    result = recur.json("finetune", *options, "--data", data / "train")
    assert (sum(split["rows"] for split in result["data"].values()), result["data"].keys()) == (40, {"train", "dev"})
    scored = recur.json("eval", run, "--data", data / "train")
    assert (scored["split"], scored["rows"]) == ("file", 40)
    assert scored["training_rows"] + scored["dev_rows"] >= 40
    use_dev_split = recur.json("eval", run, "--data", data / "train", "--split", "dev")
    assert use_dev_split["rows"] == result["data"]["dev"]["rows"]
    assert use_dev_split["metrics"] == recur.json("eval", run)["metrics"]
    assert recur.json("eval", run, "--data", alone)["rows"] == 10
    (checked,) = recur.json("check", alone, "--quiet")["reports"]
    (split,) = checked["splits"]
    assert (split["split"], split["rows"], split["format"]) == ("rows", 10, "folders")
    together = recur.json("check", "--train", data / "train", "--test", alone, "--quiet")["reports"][0]
    assert [split["split"] for split in together["splits"]] == ["train", "dev", "test"]
    recur.refused(2, "name a PATH, or files that belong together with --train", "check")
    assert recur.json("finetune", *options, "--data", data / "train", "--resume")["data"] == result["data"]


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_rows_without_labels_are_enough_for_pretraining(ending: str, recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PRESET)
    texts = [text for text, _ in rows(30, seed=3)]
    lines = [json.dumps({"text": text}) for text in texts] if ending == ".jsonl" else ["text", *texts]
    (tmp_path / f"x{ending}").write_text("\n".join(lines) + "\n")
    options = ["--preset", tmp_path / "mine.yaml", "--data", tmp_path / f"x{ending}", "--output", tmp_path / "run"]
    assert recur.json("pretrain", *options)["data"]["text"]["rows"] == 30


def test_the_order_of_a_known_tasks_labels_may_be_changed(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    codes = "[116,115,114,113,112,110,109,108,107,106,104,103,102,101,100]"
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "run"]
    recur.ok("finetune", *options, *tiny(f"data.labels={codes}", "finetuning.max_steps=2"), "--quiet")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["id2label"]["0"] == "116"
    assert recur.json("eval", tmp_path / "run")["rows"] == 24


def test_a_task_is_one_row(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    row = Task(name="rodents", labels=tuple(sorted(NAMES.values())), layouts=(Layout(files=files),), text=("words",))
    monkeypatch.setitem(TASKS, "rodents", row)
    for number, (split, count) in enumerate((("train", 40), ("dev", 12), ("test", 9))):
        lines = (f"{text}\t{label}\n" for text, label in rows(count, seed=number))
        (tmp_path / f"{split}.tsv").write_text("words\tlabel\n" + "".join(lines))
    run = tmp_path / "run"
    options = ["--preset", "starsaber-rodents", "--data", tmp_path, "--output", run]
    result = recur.json("finetune", *options, *tiny("tokenizer.kind=char", "finetuning.max_steps=3"))
    assert (result["task"], result["data"]["dev"]["rows"]) == ("rodents", 12)
    for split, count in (("dev", 12), ("test", 9)):
        scored = recur.json("eval", run, "--split", split)
        assert (scored["task"], scored["rows"]) == ("rodents", count)
    out, _ = recur.ok("predict", run, tmp_path / "test.tsv")
    assert {line.split("\t")[2] for line in out.splitlines()[1:]} <= set(row.labels)
