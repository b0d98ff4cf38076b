"""Rows of one's own from a preset to predictions: a new task is a file of settings and never code."""

import json
import random
import shutil
from csv import writer as write_csv
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from predicting import Recur, jsonl
from pyarrow import parquet
from tiny_task import LABELS, tiny

from recurcli.data.tasks import TASKS, Layout, Task

PRESET = """
task: custom
encoder: {name: starsaber, hidden_size: 16, num_layers: 1}
tokenizer: {kind: char, min_frequency: 1}
finetuning: {epochs: 5, batch_size: 4, learning_rate: 0.03, patience: null}
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
    code, out, err = recur("finetune", "--preset", preset, "--data", data, "--output", run, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["data"]["train"]["rows"], result["data"]["dev"]["rows"]) == (train, dev)
    assert result["dev"]["accuracy"] > 0.5
    assert "3 labels from" in err
    assert form == "parquet" or "'rats, and more'" in err
    assert ("  delimiter: ;\n" in (run / "preset.yaml").read_text()) == (form == "csv"), "it was recognised"
    if form == "csv":
        code, _, err = recur("finetune", "--preset", preset, "--data", data, "--output", run, "--resume")
        assert (code, "is already finished; nothing to do" in err) == (0, True)
    scored = report(recur("eval", run, "--json"))
    assert scored["rows"] == dev
    assert scored["metrics"]["accuracy"] == result["dev"]["accuracy"]
    if form == "folder":
        assert report(recur("eval", run, "--split", "test", "--json"))["rows"] == 10
        predictable = data / "test" / "001"
        assert recur("predict", run, predictable)[0] == 3, "a folder is no file"
        return
    other = write(tmp_path / f"other{data.suffix}", rows(23, seed=2))
    scored = report(recur("eval", run, "--data", other, "--json"))
    assert (scored["split"], scored["rows"]) == ("file", 23)
    copy = Path(shutil.copy(data, tmp_path / f"copy{data.suffix}"))
    for path in (data, copy):
        assert report(recur("eval", run, "--split", "dev", "--data", path, "--json"))["rows"] == dev
        assert report(recur("eval", run, "--data", path, "--json"))["rows"] == train + dev
    code, out, err = recur("predict", run, other, "--format", "jsonl")
    assert code == 0, err
    predicted = [row["prediction"] for row in jsonl(out)]
    labels = [label for _, label in rows(23, seed=2)]
    if form == "parquet":
        labels = [str([*NAMES.values()].index(label)) for label in labels]
    right = sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels)
    assert right == pytest.approx(scored["metrics"]["accuracy"]), "a prediction reads the columns that training read"


def test_what_python_writes_as_csv_is_read_by_every_command_and_a_doubt_is_a_warning(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    draw = random.Random(3)
    lines = [", ".join("".join(draw.choices('ab "\n', k=3)) for _ in range(2)) for _ in range(80)]
    texts = ["\n".join(lines[at : at + 4]) for at in range(0, 80, 4)] + ["\n".join(["so, far"] * 5 + ["end"])]
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        rows = ((text, "ab"[row % 2]) for row, text in enumerate(texts))
        write_csv(file, lineterminator="\n").writerows([("text", "label"), *rows])
    last = f"{path}:{path.read_text().count(chr(10)) - 5}: lines in quotes are read as one row, though each looks like a row"
    (checked,) = report(recur("check", path, "--json", "--quiet"))["reports"]
    assert (checked["splits"][0]["rows"], checked["errors"]) == (21, 0)
    options = ["--preset", "starsaber-custom", "--data", path, "--output", tmp_path / "run", *tiny(), "--json"]
    code, out, err = recur("finetune", *options, "--dry-run")
    assert (code, sum(split["rows"] for split in json.loads(out)["data"].values())) == (0, 21)
    assert last in err
    code, out, err = recur("predict", trained, path, "--text", "text", "--format", "jsonl")
    assert (code, [row["text"] for row in jsonl(out)]) == (0, texts)
    assert last in err
    warnings = [finding["message"] for finding in checked["findings"] if finding["level"] == "warning"]
    assert any(last in message for message in warnings)


def test_label_folders_without_splits_are_one_unit_everywhere(recur: Recur, tmp_path: Path) -> None:
    data, run = tmp_path / "rows", tmp_path / "run"
    folder(data, rows(60, seed=1))
    shutil.copytree(data / "test", alone := tmp_path / "alone")
    (tmp_path / "mine.yaml").write_text(PRESET)
    options = ["--preset", tmp_path / "mine.yaml", "--output", run, "--set", "finetuning.max_steps=2", "--json"]
    result = report(recur("finetune", *options, "--data", data / "train"))
    assert (sum(split["rows"] for split in result["data"].values()), result["data"].keys()) == (40, {"train", "dev"})
    scored = report(recur("eval", run, "--data", data / "train", "--json"))
    assert (scored["split"], scored["rows"]) == ("file", 40)
    assert scored["training_rows"] + scored["dev_rows"] >= 40
    use_dev_split = report(recur("eval", run, "--data", data / "train", "--split", "dev", "--json"))
    assert (use_dev_split["rows"], use_dev_split["metrics"]) == (
        result["data"]["dev"]["rows"],
        report(recur("eval", run, "--json"))["metrics"],
    )
    assert report(recur("eval", run, "--data", alone, "--json"))["rows"] == 10
    (checked,) = report(recur("check", alone, "--json", "--quiet"))["reports"]
    assert [(split["split"], split["rows"], split["format"]) for split in checked["splits"]] == [
        ("rows", 10, "folders")
    ]
    together = report(recur("check", "--train", data / "train", "--test", alone, "--json", "--quiet"))["reports"][0]
    assert [split["split"] for split in together["splits"]] == ["train", "dev", "test"]
    code, _, err = recur("check")
    assert (code, "name a PATH, or files that belong together with --train" in err) == (2, True)
    resume = ["finetune", *options, "--data", data / "train", "--resume"]
    assert report(recur(*resume))["data"] == result["data"]


def report(result: tuple[int, str, str]) -> dict[str, Any]:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_rows_without_labels_are_enough_for_pretraining(ending: str, recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PRESET)
    texts = [text for text, _ in rows(30, seed=3)]
    lines = [json.dumps({"text": text}) for text in texts] if ending == ".jsonl" else ["text", *texts]
    (tmp_path / f"x{ending}").write_text("\n".join(lines) + "\n")
    options = ["--preset", tmp_path / "mine.yaml", "--data", tmp_path / f"x{ending}", "--output", tmp_path / "run"]
    assert report(recur("pretrain", *options, "--json"))["data"]["text"]["rows"] == 30


def test_the_order_of_a_known_tasks_labels_may_be_changed(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    codes = "[116,115,114,113,112,110,109,108,107,106,104,103,102,101,100]"
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "run"]
    code, _, err = recur("finetune", *options, *tiny(f"data.labels={codes}", "finetuning.max_steps=2"), "--quiet")
    assert code == 0, err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["id2label"]["0"] == "116"
    assert report(recur("eval", tmp_path / "run", "--json"))["rows"] == 24


def test_test_rows_without_labels_are_no_score(recur: Recur, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "good film\t1\nbad film\t0\n" * 8)
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tsome film\n")
    options = ["--preset", "starsaber-sst2", "--data", tmp_path, "--output", tmp_path / "run"]
    code, _, err = recur("finetune", *options, *tiny("finetuning.max_steps=2"), "--quiet")
    assert code == 0, err
    code, out, err = recur("eval", tmp_path / "run", "--split", "test")
    assert (code, out) == (3, "")
    assert "the test rows of sst2 carry no labels; `recur predict` labels them" in err
    code, out, err = recur("predict", tmp_path / "run", tmp_path / "test.tsv")
    assert (code, out.count("\n")) == (0, 2), err


def test_data_that_nobody_names_are_asked_for(recur: Recur, tmp_path: Path) -> None:
    for command in ("finetune", "pretrain"):
        code, _, err = recur(command, "--preset", "starsaber-custom", "--output", tmp_path / "run")
        assert code == 2
        assert "--data" in err


def test_a_task_is_one_row(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    row = Task(name="rodents", labels=tuple(sorted(NAMES.values())), layouts=(Layout(files=files),), text=("words",))
    monkeypatch.setitem(TASKS, "rodents", row)
    for number, (split, count) in enumerate((("train", 40), ("dev", 12), ("test", 9))):
        lines = (f"{text}\t{label}\n" for text, label in rows(count, seed=number))
        (tmp_path / f"{split}.tsv").write_text("words\tlabel\n" + "".join(lines))
    run = tmp_path / "run"
    options = ["--preset", "starsaber-rodents", "--data", tmp_path, "--output", run, "--json"]
    result = report(recur("finetune", *options, *tiny("tokenizer.kind=char", "finetuning.max_steps=3")))
    assert (result["task"], result["data"]["dev"]["rows"]) == ("rodents", 12)
    for split, count in (("dev", 12), ("test", 9)):
        scored = report(recur("eval", run, "--split", split, "--json"))
        assert (scored["task"], scored["rows"]) == ("rodents", count)
    code, out, err = recur("predict", run, tmp_path / "test.tsv")
    assert code == 0, err
    assert {line.split("\t")[2] for line in out.splitlines()[1:]} <= set(row.labels)
