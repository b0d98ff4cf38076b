"""What looks right and is not: a label taken for a text, training rows scored as dev, a header predicted as a row."""

import csv
import json
from pathlib import Path

import pytest
from predicting import Recur
from tiny_task import tiny


def finetuned(recur: Recur, data: Path, run: Path, *settings: str) -> str:
    arguments = ["--preset", "starsaber-custom", "--data", data, "--output", run]
    _, err = recur.ok("finetune", *arguments, *tiny(*settings))
    return err


def write_csv(path: Path, header: list[str], rows: int = 40) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(
            [f"text {row % 7}", f"more {row % 5}", "xy"[row % 3 == 0]][: len(header)] for row in range(rows)
        )
    return path


def test_a_label_or_an_id_is_never_taken_for_a_text(recur: Recur, tmp_path: Path) -> None:
    finetuned(recur, write_csv(tmp_path / "x.csv", ["premise", "hypothesis", "label"]), tmp_path / "pairs")
    (tmp_path / "y.jsonl").write_text('{"premise": "a", "label": "x"}\n')
    recur.refused(3, "name their columns with --text and --pair", "predict", tmp_path / "pairs", tmp_path / "y.jsonl")


def test_the_file_that_a_run_was_trained_on_gives_its_dev_rows_unless_it_is_named(recur: Recur, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", ["text", "more", "label"])
    finetuned(recur, path, tmp_path / "run")
    for more, rows in (([], 12), (["--data", path], 40), (["--split", "train"], 28)):
        assert recur.json("eval", tmp_path / "run", *more)["rows"] == rows
    recur.refused(3, "holds train and dev rows", "eval", tmp_path / "run", "--split", "test")


def test_eval_reads_other_columns_than_the_training(recur: Recur, tmp_path: Path) -> None:
    path, run = write_csv(tmp_path / "x.csv", ["foo", "more", "bar"]), tmp_path / "run"
    finetuned(recur, path, run, "data.text=foo", "data.label=bar")
    content = path.read_text().partition("\n")[2]
    (tmp_path / "named.csv").write_text("text,more,label\n" + content)
    (tmp_path / "semi.csv").write_text("foo;more;bar\n" + content.replace(",", ";"))
    (tmp_path / "bare.csv").write_text(content)
    expected = recur("eval", run, "--data", path, "--json")[1].replace(str(path), "")
    for name, needed, options in (
        ("named.csv", "--text COLUMN names another", ["--text", "text", "--label", "label"]),
        ("named.csv", "--label COLUMN names another", ["--text", "1", "--label", "3"]),
        ("bare.csv", "has no column 'foo'", ["--no-header", "--text", "1", "--label", "3"]),
    ):
        data = tmp_path / name
        recur.refused(3, needed, "eval", run, "--data", data, *(["--text", "text"] if "--label" in needed else []))
        assert recur.json("eval", run, "--data", data, *options)["metrics"] == json.loads(expected)["metrics"]
    out, err = recur.ok("eval", run, "--data", tmp_path / "semi.csv", "--json")
    assert json.loads(out)["metrics"] == json.loads(expected)["metrics"]
    assert "semi.csv: its fields are separated by a semicolon, which splits every row alike" in err
    recur.refused(2, "--text belongs to the rows of --data; add --data PATH", "eval", run, "--text", "foo")


def test_dev_rows_of_one_label_are_told(recur: Recur, tmp_path: Path) -> None:
    rows = "".join(f"text {row}\t{'a' if row else 'b'}\n" for row in range(40))
    (tmp_path / "x.tsv").write_text("text\tlabel\n" + rows)
    assert "4 of 4 dev rows have the label 'a'" in finetuned(recur, tmp_path / "x.tsv", tmp_path / "run")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("data.files={valid: b.tsv}", "has no split 'valid'"), ("data.files={train: b.tsv}", "is one file")],
)
def test_files_that_would_not_be_read_are_refused(setting: str, reason: str, recur: Recur, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", ["text", "more", "label"])
    arguments = ["--preset", "starsaber-custom", "--data", path, "--output", tmp_path / "run", "--set", setting]
    recur.refused(2, reason, "finetune", *arguments)


def test_dev_rows_are_not_submitted_as_test_rows(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    line = ("export", trained, "--data", tiny_tnews / "dev.json", "--output", tmp_path / "x.zip")
    recur.refused(2, "holds labelled rows, not test rows", *line)


def test_a_huge_column_number_and_an_empty_name_are_wrong_usage(recur: Recur, trained: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", ["text", "more", "label"])
    assert recur("predict", trained, path, "--text", "9" * 5000)[0] == 3
    recur.refused(2, "--text: '' should", "check", path, "--text", "")
