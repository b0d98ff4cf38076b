"""`recur finetune --train, --dev, --test`: files are named one by one, and the test rows are scored once, at the end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from predicting import Recur
from tiny_task import rows, tiny

SETTINGS = tiny("tokenizer.kind=char", "finetuning.linear_baseline=false", "ensemble=null", "finetuning.epochs=1")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a.csv (60 rows), b.csv (24), c.csv (20) and bare.csv, which has no labels."""
    for number, (name, count) in enumerate((("a", 60), ("b", 24), ("c", 20))):
        lines = "".join(f"{row['sentence']},{row['label']}\n" for row in rows(count, seed=number, labelled=True))
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{lines}", encoding="utf-8")
    (tmp_path / "bare.csv").write_text("text\n鼠\n", encoding="utf-8")
    return tmp_path


def finetune(recur: Recur, output: Path, *options: object, settings: list[str] = SETTINGS) -> dict[str, Any]:
    line = ["finetune", "--preset", "starsaber-custom", "--output", output, *options, *settings, "--json"]
    code, out, err = recur(*line)
    assert code == 0, err
    return {**json.loads(out), "err": err}


def counts(result: dict[str, Any]) -> dict[str, int]:
    return {split: facts["rows"] for split, facts in result["data"].items()}


def test_dev_rows_are_drawn_from_the_file_of_training_rows(recur: Recur, files: Path) -> None:
    result = finetune(recur, files / "run", "--train", files / "a.csv", "--test", files / "b.csv")
    alone = finetune(recur, files / "alone", "--data", files / "a.csv", "--dry-run")
    assert counts(result) == {**counts(alone), "test": 24}
    scored = json.loads(recur("eval", files / "run", "--split", "test", "--json")[1])
    assert {**result["test"], **scored["metrics"], "loss": 0} == {**result["test"], "loss": 0}
    assert result["test"]["loss"] == pytest.approx(scored["metrics"]["loss"])
    assert result["test"]["baselines"] == scored["baselines"]
    for options in ([], ["--data", files / "a.csv", "--split", "dev"]):
        use_dev_split = json.loads(recur("eval", files / "run", *options, "--json")[1])
        assert use_dev_split["metrics"]["confusion"] == result["dev"]["confusion"]
    card = (files / "run" / "README.md").read_text()
    assert f"| test accuracy | {100 * result['test']['accuracy']:.1f} |" in card


def test_a_test_score_with_an_ensemble_has_its_parts(recur: Recur, files: Path) -> None:
    settings = tiny("tokenizer.kind=char", "finetuning.epochs=1")
    options = ["--data", files / "a.csv", "--dev", files / "c.csv", "--test", files / "b.csv"]
    result = finetune(recur, files / "run", *options, settings=settings)
    assert counts(result) == {"train": 60, "dev": 20, "test": 24}, "no dev row is drawn beside a file of dev rows"
    assert result["test"]["parts"].keys() == {"encoder", "linear"}
    assert result["test"]["parts"]["linear"]["accuracy"] == result["test"]["baselines"]["linear"]
    code, out, _ = recur(
        "finetune", "--preset", "starsaber-custom", "--output", files / "run", *options, *settings, "--resume"
    )
    assert (code, "test encoder: accuracy" in out) == (0, True)


def test_the_tasks_own_test_rows_are_scored_unless_they_have_no_labels(recur: Recur, files: Path) -> None:
    (files / "task").mkdir()
    for split, name in (("train", "a"), ("dev", "c"), ("test", "b")):
        shutil.copy(files / f"{name}.csv", files / "task" / f"{split}.csv")
    plan = ["--data", files / "task", "--dry-run"]
    assert counts(finetune(recur, files / "run", *plan))["test"] == 24
    assert "test" not in counts(finetune(recur, files / "run", *plan, "--set", "finetuning.score_test=false"))
    assert counts(finetune(recur, files / "run", *plan, "--test", files / "c.csv"))["test"] == 20
    shutil.copy(files / "bare.csv", files / "task" / "test.csv")
    result = finetune(recur, files / "run", *plan)
    assert "test" not in counts(result)
    assert "recur: warning: no test score:" in result["err"]


def test_training_rows_in_the_test_file_are_told(recur: Recur, files: Path) -> None:
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    (files / "b.csv").write_text("".join(lines[:5]) + "鼠牛虎,100\n")
    named = ["--train", files / "a.csv", "--dev", files / "c.csv", "--test", files / "b.csv"]
    result = finetune(recur, files / "run", *named, "--dry-run")
    assert "warning: test: 4 of 5 rows are in the training rows" in result["err"]
    out = recur("check", "--train", files / "a.csv", "--test", files / "b.csv", "--json", "--no-lengths")[1]
    (report,) = json.loads(out)["reports"]
    overlaps = {(overlap["first"], overlap["second"]): overlap for overlap in report["overlaps"]}
    assert [split["split"] for split in report["splits"]] == ["train", "dev", "test"], "dev rows are drawn"
    assert overlaps["train", "test"]["texts"] + overlaps["dev", "test"]["texts"] == 4
    assert overlaps["train", "dev"]["texts"] == 0


def test_training_rows_in_the_dev_file_are_told(recur: Recur, files: Path) -> None:
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    (files / "b.csv").write_text("".join(lines[:5]) + "鼠牛虎,100\n" + lines[1].partition(",")[0] + ",another\n")
    (files / "a.csv").write_text("".join([*lines, "龙龙龙龙,another\n"]))
    named = ["--train", files / "a.csv", "--dev", files / "b.csv", "--dry-run"]
    assert "warning: dev: 5 of 6 rows are in the training rows" in finetune(recur, files / "r", *named)["err"]
    shared = "train and dev share 4 equal or nearly equal texts (4 rows of train, 5 rows of dev"
    assert shared in " ".join(recur("check", *named[:-1])[1].split())
    alone = finetune(recur, files / "r", "--train", files / "a.csv", "--dry-run")
    assert "in the training rows" not in alone["err"]


def test_extra_rows_do_not_shorten_the_longest_row(recur: Recur, files: Path) -> None:
    lines = "".join(f"{row['sentence']},{row['label']},鼠\n" for row in rows(60, seed=0, labelled=True))
    (files / "a.csv").write_text(f"text,label,keywords\n{lines}", encoding="utf-8")
    automatic = [*SETTINGS, "--set", "data.max_length=auto"]
    lengths = []
    for extra in ("[]", "[keywords]"):
        options = ["--train", files / "a.csv", "--set", f"data.extra_rows={extra}", "--dry-run"]
        err = finetune(recur, files / "r", *options, settings=automatic)["err"]
        lengths.append(err.partition("data.max_length auto: ")[2].partition("\n")[0])
    assert lengths[0] == lengths[1] != ""


def test_a_resume_compares_named_files_by_their_hash(recur: Recur, files: Path) -> None:
    def again(*options: object) -> tuple[int, str, str]:
        fixed = ["--preset", "starsaber-custom", "--output", files / "run", "--train", files / "a.csv"]
        return recur("finetune", *fixed, "--keep-checkpoints", *SETTINGS, *options, "--resume", "--quiet")

    stopped = ["--set", "finetuning.max_steps=2"]
    assert again("--test", files / "b.csv", *stopped)[0] == 0
    moved = Path(shutil.copy(files / "b.csv", files / "moved.csv"))
    assert again("--test", moved, *stopped)[0] == 0
    for finished in (True, False):
        code, _, err = again("--test", files / "c.csv", *stopped)
        assert (code, "cannot be resumed: test " in err) == (2, True), err
        if finished:
            (files / "run" / "result.json").unlink()
    assert again("--test", moved, *stopped)[0] == 0
    (files / "run" / "result.json").unlink()
    assert "cannot be resumed: test " in again(*stopped)[2]
    assert again("--test", moved, *stopped)[0] == 0


def test_a_test_file_is_not_added_to_a_finished_run(recur: Recur, files: Path) -> None:
    finetune(recur, files / "run", "--train", files / "a.csv")
    named = ["--output", files / "run", "--train", files / "a.csv", "--test", files / "b.csv"]
    code, _, err = recur("finetune", "--preset", "starsaber-custom", *named, *SETTINGS, "--resume")
    assert (code, "test sha256 was absent and is now" in err) == (2, True), err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--train a.csv --test none.csv", 3, "none.csv: does not exist; it is named for the test rows"),
        ("--train a.csv --test bare.csv", 3, "bare.csv: which column is the label?"),
        ("--data a.csv --train b.csv", 2, "both name the training rows"),
        ("--data . --train b.csv", 2, "both name the training rows"),
        ("--train a.csv --dev ./a.csv", 2, "--dev a.csv are the same; leave out --dev"),
        ("--data a.csv --dev a.csv", 2, "--data a.csv and --dev a.csv are the same"),
        ("--train a.csv --test a.csv", 2, "are the same; leave out --test"),
        ("--train a.csv --dev b.csv --test b.csv", 2, "--dev b.csv and --test b.csv are the same"),
        ("--train a.csv --set finetuning.early_stopping_patience=3", 2, "did you mean 'finetuning.patience'?"),
        ("--train a.csv --set early_stopping=3", 2, "did you mean 'finetuning.patience'?"),
        ("--test a.csv", 2, "task custom has no data; add --data PATH"),
        ("--train a.csv --set data.files.train=b.csv", 2, "--train and --set data.files.train set the same key"),
        ("--train a.csv --seed 3 --set runtime.seed=4", 2, "--seed and --set runtime.seed set the same key"),
        ("--train a.csv --text text --set data.text=text", 2, "--text and --set data.text set the same key"),
        ("--train a.csv --text txt", 3, "has no column 'txt'; did you mean 'text'?"),
        ("--train a.csv --epochs 1.5", 2, "--epochs: finetuning.epochs: 1.5"),
        ("--train a.csv --set epochs=3", 2, "--set epochs: unknown key; did you mean 'finetuning.epochs'?"),
        ("--train a.csv --set data.extra_rows=keywords", 2, "data.extra_rows"),
        ("--train a.csv --learning-rate -1", 2, "--learning-rate: finetuning.learning_rate: -1.0 should"),
    ],
)
def test_what_cannot_be_is_one_line(
    options: str, code: int, message: str, recur: Recur, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    found, _, err = recur("finetune", "--preset", "starsaber-custom", *options.split())
    assert (found, message in err) == (code, True), err


def test_options_name_the_columns_of_a_training(recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("".join(f"k{n};{'ab'[n % 2]} {n};{['no', 'yes'][n % 2]}\n" for n in range(40)))
    options = ["--text", "2", "--label", "3", "--id", "1", "--delimiter", ";", "--no-header", "--dry-run", "--json"]
    arguments = ["--preset", "starsaber-custom", "--output", tmp_path / "run", *options]
    code, out, err = recur("finetune", *arguments, "--data", tmp_path / "x.csv")
    assert (code, "texts from '2', 2 labels from '3': 'no', 'yes'" in err) == (0, True), err
    data = json.loads(out)["values"]["data"]
    assert [data[key] for key in ("text", "label", "id", "delimiter", "header")] == ["2", "3", "1", ";", False]


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_shortcuts_set_the_keys_of_their_section(command: str, recur: Recur, files: Path) -> None:
    shortcuts = ["--seed", "3", "--epochs", "auto", "--learning-rate", "2e-3", "--batch-size", "5"]
    arguments = ["--preset", "starsaber-custom", "--data", files / "a.csv", "--output", files / "run", *shortcuts]
    code, out, err = recur(command, *arguments, "--dry-run", "--json")
    assert code == 0, err
    values = json.loads(out)["values"]
    section = values["pretraining" if command == "pretrain" else "finetuning"]
    assert [section[key] for key in ("epochs", "learning_rate", "batch_size")] == ["auto", 2e-3, 5]
    assert values["runtime"]["seed"] == 3


@pytest.mark.slow
def test_data_on_the_command_line_replace_the_files_of_the_preset(recur: Recur, files: Path) -> None:
    named = ["--train", files / "a.csv", "--dev", files / "c.csv", "--test", files / "b.csv"]
    first = finetune(recur, files / "run", *named)
    assert counts(first) == {"train": 60, "dev": 20, "test": 24}
    preset = files / "run" / "preset.yaml"

    def again(*options: object) -> tuple[int, str, str]:
        return recur("finetune", "--preset", preset, *options, "--json")

    def read(*options: object) -> dict[str, int]:
        code, out, err = again("--dry-run", *options)
        assert code == 0, err
        return counts(json.loads(out))

    other = files / "other.csv"
    lines = "".join(f"{row['sentence']},{row['label']}\n" for row in rows(40, seed=9, labelled=True))
    other.write_text(f"text,label\n{lines}", encoding="utf-8")
    assert read() == counts(first)
    for option in ("--data", "--train"):
        found = read(option, other)
        assert (sorted(found), sum(found.values())) == (["dev", "train"], 40), option
        assert read(option, other, "--dev", files / "c.csv") == {"train": 40, "dev": 20}
        assert read(option, other, "--dev", files / "c.csv", "--test", files / "b.csv")["test"] == 24
    assert read("--test", other) == {**counts(first), "test": 40}
    line = ["--data", other, "--output", files / "second", "--keep-checkpoints"]
    code, out, err = again(*line)
    assert (code, sum(counts(json.loads(out)).values())) == (0, 40), err
    for finished in (True, False):
        code, out, err = again(*line, "--resume", "--quiet")
        assert (code, sum(counts(json.loads(out)).values()), err) == (0, 40, "")
        if finished:
            (files / "second" / "result.json").unlink()
    code, _, err = again("--data", other, "--output", files / "run", "--resume")
    assert (code, "cannot be resumed: train sha256 was" in err) == (2, True), err


def test_no_row_of_files_without_a_header_is_lost_by_any_command(recur: Recur, tmp_path: Path) -> None:
    names = ("y", "topic", "class", "no")
    lines = [f"{names[row % 4]}\t{'question' if row < 4 else f'words {row}'}\n" for row in range(40)]
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("".join(lines))
    columns, files = ["--text", "2", "--label", "1"], ["--train", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv"]
    code, _, err = recur("finetune", "--preset", "starsaber-custom", *files, *columns, "--output", tmp_path / "r")
    message = f"{tmp_path / 'train.tsv'}:1: 'question' seems to name a column, but line 2 has it, too"
    assert (code, f"{message}; add --header or --no-header\n" in err) == (3, True), err
    code, _, err = recur("check", tmp_path / "train.tsv", *columns)
    assert (code, f"{message}; add --header or --no-header\n" in err) == (3, True), err
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("".join(f"is {line}" for line in lines[4:] + lines[:4]))
    output = ["--output", tmp_path / "run", *tiny("finetuning.max_steps=2")]
    code, out, err = recur("finetune", "--preset", "starsaber-custom", *files, *columns, *output, "--json")
    assert code == 0, err
    assert [facts["rows"] for facts in json.loads(out)["data"].values()] == [40, 40]
    taken = "line 1 is taken as a row; --header reads it as column names\n"
    assert [f"recur: {tmp_path / name}: {taken}" in err for name in ("train.tsv", "dev.tsv")] == [True, True]
    code, out, err = recur("eval", tmp_path / "run", "--data", tmp_path / "dev.tsv", "--json")
    assert (code, json.loads(out)["rows"], taken in err) == (0, 40, True), err
    code, out, err = recur("check", tmp_path / "dev.tsv", *columns, "--json")
    assert json.loads(out)["reports"][0]["splits"][0]["rows"] == 40, err
    code, out, err = recur("predict", tmp_path / "run", tmp_path / "dev.tsv", "--text", "2")
    assert (code, out.count("\n"), taken in err) == (0, 40, True), err
