"""`recur finetune --train, --dev, --test`: files are named one by one, and the test rows are scored once, at the end."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from predicting import Recur
from tiny_task import rows, tiny

LINE = ("finetune", "--preset", "starsaber-custom")
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
    out, err = recur.ok(*LINE, "--output", output, *options, *settings, "--json", "--verbose")
    return {**json.loads(out), "err": err}


def counts(result: dict[str, Any]) -> dict[str, int]:
    return {split: facts["rows"] for split, facts in result["data"].items()}


def test_dev_rows_are_drawn_from_the_file_of_training_rows(recur: Recur, files: Path) -> None:
    result = finetune(recur, files / "run", "--train", files / "a.csv", "--test", files / "b.csv")
    alone = finetune(recur, files / "alone", "--data", files / "a.csv", "--dry-run")
    assert counts(result) == {**counts(alone), "test": 24}
    scored = recur.json("eval", files / "run", "--split", "test")
    assert {**result["test"], **scored["metrics"], "loss": 0} == {**result["test"], "loss": 0}
    assert result["test"]["loss"] == pytest.approx(scored["metrics"]["loss"])
    assert result["test"]["baselines"] == scored["baselines"]
    for options in ([], ["--data", files / "a.csv", "--split", "dev"]):
        use_dev_split = recur.json("eval", files / "run", *options)
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
    out, _ = recur.ok(*LINE, "--output", files / "run", *options, *settings, "--resume")
    [encoder] = [line.split() for line in out.splitlines() if line.strip().startswith("encoder ")]
    assert f"{100 * result['test']['parts']['encoder']['accuracy']:.1f}" == encoder[-2]


def test_the_longer_rows_of_a_task_may_be_ones_own(recur: Recur, files: Path) -> None:
    (files / "longer.tsv").write_text("label\ttext\naccept\t1 1 1 1\nreject\t1 0 1 1\naccept\t0 0 0\n")
    line = ("finetune", "--preset", "linear-parity", "--set", "data.train_share=0.01", "--output", files / "run")
    own = ("--set", f"data.files.test-long={files / 'longer.tsv'}")
    recur.ok(*line, *own)
    result = json.loads((files / "run" / "result.json").read_text())
    assert counts(result) == {"train": 200, "dev": 2000, "test": 2000, "test-long": 3}
    scored = recur.json("eval", files / "run", "--split", "test-long")
    assert (scored["rows"], scored["metrics"]["accuracy"]) == (3, result["test-long"]["accuracy"])
    relative = "data.files.test-long: longer.tsv is not an absolute path, and no --data (data.path) names its folder"
    recur.refused(2, relative, *line[:-1], files / "other", "--set", "data.files.test-long=longer.tsv")
    unread = ("finetune", "--preset", "linear-custom", "--train", files / "a.csv", "--output", files / "other")
    recur.refused(2, relative, *unread, "--set", "data.files.test-long=longer.tsv")


def test_rows_of_ones_own_may_have_longer_ones(recur: Recur, files: Path) -> None:
    shutil.copy(files / "a.csv", files / "train.csv")
    for data in (("--train", files / "a.csv"), ("--data", files / "a.csv"), ("--data", files)):
        longer = "b.csv" if data[1] == files else files / "b.csv"
        result = finetune(recur, files / "run", *data, "--set", f"data.files.test-long={longer}", "--overwrite")
        assert counts(result)["test-long"] == 24
        scored = recur.json("eval", files / "run", "--split", "test-long")
        assert (scored["rows"], scored["metrics"]["accuracy"]) == (24, result["test-long"]["accuracy"])


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
    fixed = [*LINE, "--output", files / "run", "--train", files / "a.csv", "--keep-checkpoints", "--resume", *SETTINGS]
    fixed += ["--set", "finetuning.max_steps=2"]
    recur.ok(*fixed)
    recur.refused(2, "test sha256 was absent and is now", *fixed, "--test", files / "b.csv")
    (files / "run").rename(files / "without test rows")
    recur.ok(*fixed, "--test", files / "b.csv")
    moved = Path(shutil.copy(files / "b.csv", files / "moved.csv"))
    recur.ok(*fixed, "--test", moved)
    for finished in (True, False):
        recur.refused(2, "cannot be resumed: test ", *fixed, "--test", files / "c.csv")
        if finished:
            (files / "run" / "result.json").unlink()
    recur.refused(2, "cannot be resumed: test ", *fixed)
    recur.ok(*fixed, "--test", moved)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            "--train a.csv --set data.files.test=/none.csv",
            3,
            "/none.csv: does not exist; it is named for the test rows",
        ),
        ("--train a.csv --test bare.csv", 3, "bare.csv: which column is the label?"),
        ("--data a.csv --train b.csv", 2, "both name the training rows"),
        ("--train a.csv --dev ./a.csv", 2, "--dev a.csv are the same; leave out --dev"),
        ("--data a.csv --dev a.csv", 2, "--data a.csv and --dev a.csv are the same"),
        ("--train a.csv --test a.csv", 2, "are the same; leave out --test"),
        ("--train a.csv --dev b.csv --test b.csv", 2, "--dev b.csv and --test b.csv are the same"),
        ("--train a.csv --set finetuning.early_stopping_patience=3", 2, "did you mean 'finetuning.patience'?"),
        ("--train a.csv --set early_stopping=3", 2, "did you mean 'finetuning.patience'?"),
        ("--test a.csv", 2, "task custom has no data; name a FILE (--data PATH)"),
        ("--train a.csv --set data.files.train=b.csv", 2, "--train and --set data.files.train set the same key"),
        ("--train a.csv --seed 3 --set runtime.seed=4", 2, "--seed and --set runtime.seed set the same key"),
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
    recur.refused(code, message, *LINE, *options.split())


def test_options_name_the_columns_of_a_training(recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("".join(f"k{n};{'ab'[n % 2]} {n};{['no', 'yes'][n % 2]}\n" for n in range(40)))
    options = ["--text", "2", "--label", "3", "--id", "1", "--delimiter", ";", "--no-header", "--dry-run"]
    result = finetune(recur, tmp_path / "run", *options, "--data", tmp_path / "x.csv")
    assert "texts from '2', 2 labels from '3': 'no', 'yes'" in result["err"]
    data = result["values"]["data"]
    assert [data[key] for key in ("text", "label", "id", "delimiter", "header")] == ["2", "3", "1", ";", False]


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_shortcuts_set_the_keys_of_their_section(command: str, recur: Recur, files: Path) -> None:
    shortcuts = ["--seed", "3", "--epochs", "auto", "--learning-rate", "2e-3", "--batch-size", "5"]
    arguments = ["--preset", "starsaber-custom", "--data", files / "a.csv", "--output", files / "run", *shortcuts]
    values = recur.json(command, *arguments, "--dry-run")["values"]
    section = values["pretraining" if command == "pretrain" else "finetuning"]
    assert [section[key] for key in ("epochs", "learning_rate", "batch_size")] == ["auto", 2e-3, 5]
    assert values["runtime"]["seed"] == 3


@pytest.mark.slow
def test_data_on_the_command_line_replace_the_files_of_the_preset(recur: Recur, files: Path) -> None:
    named = ["--train", files / "a.csv", "--dev", files / "c.csv", "--test", files / "b.csv"]
    first = finetune(recur, files / "run", *named)
    assert counts(first) == {"train": 60, "dev": 20, "test": 24}

    def read(*options: object) -> dict[str, int]:
        return counts(recur.json("finetune", "--preset", files / "run" / "preset.yaml", *options))

    other = files / "other.csv"
    lines = "".join(f"{row['sentence']},{row['label']}\n" for row in rows(40, seed=9, labelled=True))
    other.write_text(f"text,label\n{lines}", encoding="utf-8")
    assert read("--dry-run") == counts(first)
    for option in ("--data", "--train"):
        found = read("--dry-run", option, other)
        assert (sorted(found), sum(found.values())) == (["dev", "train"], 40), option
        assert read("--dry-run", option, other, "--dev", files / "c.csv") == {"train": 40, "dev": 20}
        assert read("--dry-run", option, other, "--dev", files / "c.csv", "--test", files / "b.csv")["test"] == 24
    assert read("--dry-run", "--test", other) == {**counts(first), "test": 40}
    line = ["--data", other, "--output", files / "second", "--keep-checkpoints"]
    assert sum(read(*line).values()) == 40
    for finished in (True, False):
        assert sum(read(*line, "--resume").values()) == 40
        if finished:
            (files / "second" / "result.json").unlink()
    line = ["--preset", files / "run" / "preset.yaml", "--data", other, "--output", files / "run", "--resume"]
    recur.refused(2, "cannot be resumed: train sha256 was", "finetune", *line)


def test_no_row_of_files_without_a_header_is_lost_by_any_command(recur: Recur, tmp_path: Path) -> None:
    names = ("y", "topic", "class", "no")
    lines = [f"{names[row % 4]}\t{'question' if row < 4 else f'words {row}'}\n" for row in range(40)]
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("".join(lines))
    columns, files = ["--text", "2", "--label", "1"], ["--train", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv"]
    message = f"{tmp_path / 'train.tsv'}:1: 'question' seems to name a column, but line 2 has it, too"
    recur.refused(3, message, *LINE, *files, *columns, "--output", tmp_path / "r")
    recur.refused(3, message, "check", tmp_path / "train.tsv", *columns)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("".join(f"is {line}" for line in lines[4:] + lines[:4]))
    output = ["--output", tmp_path / "run", *tiny("finetuning.max_steps=2")]
    out, err = recur.ok(*LINE, *files, *columns, *output, "--json", "--verbose")
    assert [facts["rows"] for facts in json.loads(out)["data"].values()] == [40, 40]
    taken = "line 1 is taken as a row"
    assert [f"recur: {tmp_path / name}: {taken}" in err for name in ("train.tsv", "dev.tsv")] == [True, True]
    out, err = recur.ok("eval", tmp_path / "run", "--data", tmp_path / "dev.tsv", "--json", "--verbose")
    assert json.loads(out)["rows"] == 40
    assert taken in err
    out = recur("check", tmp_path / "dev.tsv", *columns, "--json")[1]
    assert json.loads(out)["reports"][0]["splits"][0]["rows"] == 40
    out, err = recur.ok("predict", tmp_path / "run", tmp_path / "dev.tsv", "--text", "2")
    assert out.count("\n") == 40
    assert taken in err


@pytest.mark.parametrize(
    "line",
    [
        *[("finetune", "--preset", "linear-custom", f"--{name}") for name in ("data", "train", "test", "teacher")],
        ("tune", "--preset", "linear-custom", "--data"),
        ("pretrain", "--preset", "starsaber-custom", "--data"),
        ("check",),
        ("check", "--train"),
        ("eval", "RUN", "--data"),
    ],
)
def test_a_name_that_is_not_utf8_is_refused(line: tuple[str, ...], recur: Recur, trained: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path / "caf") + b"\xe9.tsv"))
    path.write_text("text\tlabel\na\tx\n")
    given = [trained if part == "RUN" else part for part in line]
    err = recur.refused(2, "caf\\udce9.tsv' is not UTF-8; give it another", *given, path)
    assert len(err) < 300 and "--path" not in err
