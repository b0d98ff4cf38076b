"""`recur check`: faults of data and CLUE submissions are found before a training or the leaderboard finds them."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Recur
from test_command_line import CHECKOUT

from recurcli.data.labels import label_doubts

Report = Callable[..., dict[str, Any]]


@pytest.fixture
def report(recur: Recur) -> Report:
    """The only report of a check, as --json has it, with the exit code."""

    def call(*arguments: object, code: int = 0) -> dict[str, Any]:
        found, out, err = recur("check", *arguments, "--json", "--quiet")
        assert found == code, err
        assert (err == "") is (code == 0)
        (only,) = json.loads(out)["reports"]
        return only

    return call


def written(path: Path, *rows: str, header: str = "text\tlabel") -> Path:
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8")
    return path


HEADER_TAKEN = "line 1 is taken as column names; --no-header reads it as a row"


def messages(report: dict[str, Any], level: str) -> list[str]:
    return [finding["message"] for finding in report["findings"] if finding["level"] == level]


SOUND = [f"{('good', 'bad')[n > 19]} {chr(97 + n) * 5}\t{('pos', 'neg')[n > 19]}" for n in range(30)]
"""Rows enough for dev rows, so that a training on them alone does not stop."""


# --- your own rows


def test_sound_rows_have_nothing_wrong(recur: Recur, report: Report, tmp_path: Path) -> None:
    found = report(written(tmp_path / "x.tsv", *SOUND))
    assert (found["task"], found["errors"], found["warnings"]) == ("custom", 0, 0)
    line_1, divides = messages(found, "information")
    assert line_1.endswith(f"x.tsv: {HEADER_TAKEN}")
    assert divides.startswith("x.tsv: training on this file alone divides it into ")
    (split,) = found["splits"]
    assert split["columns"] == {"text": ["text"], "label": ["label"], "id": None}
    assert split["labels"] == {"pos": 20, "neg": 10}
    assert split["majority"] == pytest.approx(2 / 3)
    assert found["tokens"] == {"kind": "wordpiece", "max_length": None}
    out, _ = recur.ok("check", tmp_path / "x.tsv")
    assert "nothing wrong" in out and "official" not in out


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "reason"),
    [
        ("train.csv", "", [], 3, "train.csv: is empty; expected a header"),
        ("train.tsv", "text\tlabel\na b\tx\nb c\ty\n", [], 3, "train.tsv: no row is a dev row"),
        ("train/neg/.DS_Store", "a text", [], 3, "train: has no folders named by label that hold files of text"),
        ("ptb.train.txt", "no it was n't black monday\n", ["--task", "ptb"], 3, "task ptb is plain text"),
        ("b.csv.gz", "text,label\n", [], 3, "it holds b.csv.gz; give the path of one file, or name files with --train"),
        ("train.tsv", "text\tlabel\na b\tx\n", ["--task", "tnws"], 2, "did you mean 'tnews'?"),
        ("train.tsv", "text\tlabel\na b\tx\n", ["--preset", "starsaber-tnws"], 2, "did you mean 'starsaber-tnews'?"),
    ],
)
def test_a_folder_that_cannot_be_checked_is_refused(
    name: str, content: str, options: list[str], code: int, reason: str, recur: Recur, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content)
    recur.refused(code, reason, "check", tmp_path, *options)


def test_a_file_without_dev_rows_is_an_error_where_it_would_be_the_whole_training(recur: Recur, tmp_path: Path) -> None:
    few, other = (written(tmp_path / name, *SOUND[:1], *SOUND[-1:]) for name in ("few.tsv", "other.tsv"))
    dev, test, train = (written(tmp_path / f"{name}.tsv", *SOUND[:1], *SOUND[-1:]) for name in ("dev", "test", "train"))
    stops = "few.tsv: training on this file alone stops: none of its 2 labels has two different texts"
    for whole in ([few], [few, test], [few, "--test", test]):
        recur.refused(3, stops, "check", *whole)
    for alone in ([few, dev], [few, "--dev", dev], [few, other], [few, train]):
        findings = [one for part in recur.json("check", *alone)["reports"] for one in part["findings"]]
        assert [one["level"] for one in findings if stops in one["message"]] == ["information"]
    for role in ([dev], [test], [test, dev], ["--train", train, "--dev", dev]):
        assert "stops" not in recur.ok("check", *role)[0]


def test_bad_rows_are_an_error_with_their_lines(recur: Recur, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *SOUND[:1], "b", *SOUND[1:], *["d"] * 7)
    code, out, err = recur("check", path)
    assert code == 3
    assert "x.tsv:3: has 1 field, not 2; line 33: " in " ".join(out.split())
    assert "x.tsv: 8 of 38 rows cannot be used: x.tsv:3: has 1 field, not 2" in err
    blank = written(tmp_path / "blank.tsv", *SOUND, "", "")
    recur.refused(3, "line 33: is blank; remove the blank lines", "check", blank)
    few = written(tmp_path / "few.tsv", *["a\tx", "c\ty"] * 50, "b")
    recur.refused(3, "data.skip_bad_rows=true skips up to 1% of the rows", "check", few)
    preset = tmp_path / "mine.yaml"
    preset.write_text("extends: starsaber-custom\ndata: {skip_bad_rows: true}\n")
    assert recur("check", few, "--preset", preset)[0] == 3, "a row would be lost"


def test_what_would_stop_a_training_is_an_error(report: Report, tmp_path: Path) -> None:
    def errors(*rows: str) -> list[str]:
        return messages(report(written(tmp_path / "x.tsv", *rows), code=3), "error")

    assert errors() == [f"{tmp_path / 'x.tsv'}: has no rows"]
    (one_class,) = errors(*SOUND[:20])
    assert one_class.startswith("x.tsv: the label column 'label' holds only 'pos' in all 20 rows")
    no_classes, _ = errors(*(f"text {row}\t{row}" for row in range(200)))
    assert no_classes.endswith(
        "which cannot be classes; name the right column: --label COLUMN, or predict numbers: --target number"
    )


def test_dev_labels_that_train_lacks_are_an_error(report: Report, tmp_path: Path) -> None:
    written(tmp_path / "train.tsv", "a\tx", "b\ty")
    written(tmp_path / "dev.tsv", "c\tx", "d\tz")
    found = report(tmp_path, code=3)
    assert messages(found, "error") == ["dev.tsv: dev has labels that no train row has: 'z'"]
    absent = "dev.tsv: dev has no row of 1 of 2 labels of the train rows: 'y' (50.0% of the train rows)"
    assert absent in messages(found, "warning")


def test_labels_that_no_test_row_has_are_a_warning(report: Report, tmp_path: Path) -> None:
    written(tmp_path / "train.tsv", *SOUND, *(f"so {n}\tmixed" for n in range(10)))
    written(tmp_path / "test.tsv", "quite good\tpos", "quite bad\tneg")
    expected = "test.tsv: test has no row of 1 of 3 labels of the train rows: 'mixed' (25.0% of the train rows)"
    assert expected in messages(report(tmp_path), "warning")
    written(tmp_path / "test.tsv", "quite good", "quite bad", header="text")
    assert not [each for each in messages(report(tmp_path), "warning") if "no row of" in each]


def test_a_folder_of_texts_without_labels_has_a_way_out(recur: Recur, report: Report, tmp_path: Path) -> None:
    for folder, rows in (("train/neg", 10), ("train/pos", 10), ("train/unsup", 30), ("test/neg", 2), ("test/pos", 2)):
        (tmp_path / folder).mkdir(parents=True)
        for row in range(rows):
            (tmp_path / folder / f"{row}.txt").write_text(f"{folder} {row}")
    train = ("finetune", "--preset", "linear-custom", "--data", tmp_path, "--set", "linear.c=1", "--dry-run")
    (warning,) = [each for each in messages(report(tmp_path), "warning") if "no row of" in each]
    err = recur.ok(*train)[1]
    assert "'unsup' (60.0% of the train rows)" in warning
    assert err.count("no row of") == 1 and warning.removeprefix("test: ") in err
    way_out = warning.rpartition("--set '")[2].rstrip("'")
    assert "no row of" not in recur.ok(*train, "--set", way_out)[1]


def test_leaks_between_splits_are_warnings(report: Report, tmp_path: Path) -> None:
    written(tmp_path / "train.tsv", "a b\tx", "b c\ty", "a b\ty", "e f\tx", "A  b\tx")
    written(tmp_path / "dev.tsv", "a b\tx", "a B\tx", "g h\ty")
    found = report(tmp_path)
    assert messages(found, "warning") == [
        "train.tsv: 1 equal or nearly equal text with different labels; the first: lines 2, 4, 6 with the labels x; y",
        "train.tsv: 1 equal or nearly equal text in several rows (2 rows beyond the first); the first: lines 2, 4, 6",
        "dev.tsv: 1 equal or nearly equal text in several rows (1 row beyond the first); the first: lines 2, 3",
        "train and dev share 1 equal or nearly equal text (3 rows of train, 2 rows of dev; 1 with other labels); "
        "the first: lines 2 and 2",
    ]


def test_near_duplicates_in_and_between_splits_are_warnings(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "the quick brown fox jumps over the lazy dog"
    written(tmp_path / "train.tsv", f"{long}\tx", "another text that shares nothing\ty", f"{long}s\tx")
    written(tmp_path / "dev.tsv", "a text of its own alone\ty", f"so {long}\tx")
    found = report(tmp_path)
    assert messages(found, "warning") == [
        "train.tsv: 1 near-duplicate of earlier texts (33.3% of 3 different texts); the first: lines 2 and 4",
        "dev: 1 near-duplicate of texts of train (50.0% of 2 different texts); the first: lines 2 and 3",
    ]
    assert found["splits"][0]["near_duplicates"]["share"] == pytest.approx(1 / 3)
    assert found["overlaps"][0]["near_duplicates"]["first_lines"] == [[2, 3]]
    monkeypatch.setattr("recurcli.commands.check.MAX_COMPARED", 2)
    drawn = "train.tsv: near-duplicates are counted among 2 different texts, drawn from 3 by a fixed seed"
    assert drawn in messages(report(tmp_path), "information")


def test_labels_that_look_alike_are_warnings(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"text\tlabel\r\na b\tPos\r\nb c\tpos\nnull\tneg \nc\ta|b\nd\ta\ne\tb\n")
    with path.open("a") as file:
        file.writelines(f"{row}\n" for row in SOUND[:20])
    found = report(path, "--no-lengths")
    alike, several = messages(found, "warning")
    assert "x.tsv: the labels 'Pos' and 'pos' differ only by case" in alike
    assert "x.tsv: the label 'a|b' looks like several labels a row" in several


@pytest.mark.parametrize(
    ("labels", "several"),
    [
        (["bad,desk", "bad,lamp", "bad,tap", "good,desk"], "bad,desk"),
        (["a|b", "a|c", "a|d", "b", "c"], "a|b"),
        (["bad,desk", "bad,lamp", "good,desk", "good,lamp"], None),
        (["Paris, France", "Lyon, France", "Nice, France", "Rome, Italy"], None),
        (["Yes, definitely", "Yes, somewhat", "Yes, a little", "No"], None),
        (["World", "Sports", "Business", "Sci/Tech"], None),
        (["Clothing, Shoes & Jewelry", "Toys", "Health, Household & Baby Care", "Health"], None),
    ],
)
def test_parts_that_recur_in_labels_look_like_several(labels: list[str], several: str | None) -> None:
    found = [doubt for doubt in label_doubts(labels) if "several labels a row" in doubt]
    assert found == ([] if several is None else found[:1])
    assert several is None or f"the label '{several}'" in found[0]


def test_fractions_as_labels_look_like_regression(report: Report, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *(f"film {n}\t{n % 3 + 0.75 * (n % 2)}" for n in range(40)))
    assert messages(report(path, "--no-lengths"), "warning") == [
        "x.tsv: the label '0.75' looks like regression; each of the 6 values is taken as a class; "
        "--target number predicts numbers"
    ]
    path = written(tmp_path / "stars.tsv", *(f"film {n}\t{n % 5 + 1}" for n in range(60)))
    assert messages(report(path, "--no-lengths"), "warning") == []


def test_issues_of_texts_are_warnings_with_their_lines(report: Report, tmp_path: Path) -> None:
    rows = (" \tx", '"a b"\ty', *(f"c\u202ed {row}\tx" for row in range(6)))
    found = report(written(tmp_path / "x.tsv", *rows), "--no-lengths")
    lines = [message.rpartition(": ")[2] for message in messages(found, "warning")]
    assert lines == ["line 2", "line 3", "lines 4, 5, 6, 7, 8, …"]
    assert found["splits"][0]["issues"]["invisible"] == {"rows": 6, "first_lines": [4, 5, 6, 7, 8]}


def test_ids_must_be_sound_only_where_they_are_asked_for(report: Report, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *(f"1\t{row}" for row in SOUND), header="id\ttext\tlabel")
    assert messages(report(path, "--no-lengths"), "warning") == []
    assert messages(report(path, "--id", "id", "--no-lengths", code=3), "error") == [
        f"{path}:3: the ids in 'id' must differ, and no row may be without one"
    ]


def test_what_the_rows_hold_is_shown_and_not_obeyed(recur: Recur, tmp_path: Path) -> None:
    evil = "[red]x[/] \x1b[31my\x07 \u202ez"
    path = written(tmp_path / "x.tsv", f"a b\t{evil}", "b c\ty", f"{evil}\t{evil}\t")
    code, out, err = recur("check", path)
    assert code == 3
    assert "[red]x[/] \\x1b[31my\\x07 \\u202ez" in out
    assert not set("\x1b\x07\u202e") & set(out + err)
    assert "1 row with control, bidi, zero-width or U+FFFD characters: line 2" in out


def test_a_preset_brings_task_columns_and_tokens(report: Report, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    keys = "data: {text: [title, body], label: kind, max_length: 8}\ntokenizer: {kind: byte}\nfinetuning: {encoder: always}\n"
    preset.write_text(f"extends: bilstm-custom\n{keys}")
    path = written(tmp_path / "x.tsv", "ab\tcd\tp", "abcdefg\thi\tq", header="title\tbody\tkind")
    found = report(path, "--preset", preset, code=3)
    assert found["tokens"] == {"kind": "byte", "max_length": 8}
    lengths = found["splits"][0]["lengths"]
    assert (lengths["minimum"], lengths["maximum"], lengths["cut"]) == (5, 10, 1)
    assert "x.tsv: 1 row (50.0%) longer than data.max_length are cut" in messages(found, "information")


LONG = [f"{row} {'w ' * 600}\t{row % 2}" for row in range(40)]


def test_that_most_rows_are_cut_is_a_warning(report: Report, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("extends: bilstm-custom\nfinetuning: {encoder: always}\n")
    found = report(written(tmp_path / "x.tsv", *LONG), "--preset", preset)
    assert found["tokens"]["max_length"] == 512
    assert "x.tsv: 40 rows (100.0%) longer than data.max_length are cut" in messages(found, "warning")


@pytest.mark.parametrize("preset", ["bilstm-custom", "linear-custom"])
def test_no_row_is_cut_where_no_encoder_is_trained(preset: str, recur: Recur, report: Report, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *LONG)
    found = report(path, "--preset", preset)
    assert (found["tokens"]["max_length"], found["splits"][0]["lengths"]["cut"]) == (None, 0)
    assert not [each for each in found["findings"] if "are cut" in each["message"]]
    assert "no encoder is trained on these rows, so none is cut" in recur.ok("check", path, "--preset", preset)[0]


def test_of_many_rows_some_are_measured(
    report: Report, recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.check.MAX_MEASURED", 4)
    path = written(tmp_path / "x.tsv", *(f"{'w ' * (row + 1)}\t{row % 2}" for row in range(10)))
    lengths = report(path)["splits"][0]["lengths"]
    assert (lengths["rows"], lengths["minimum"], lengths["maximum"]) == (4, 1, 10), "rows 0, 3, 6 and 9"
    assert "rows: measured on 4 rows at equal distances" in recur.ok("check", path)[0]


# --- a task's files


def test_a_task_is_known_by_the_name_of_its_folder(report: Report, tiny_tnews: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tnews"
    folder.symlink_to(tiny_tnews)
    found = report(folder)
    assert (found["task"], report(folder / "dev.json")["task"]) == ("tnews", "tnews")
    assert [split["split"] for split in found["splits"]] == ["train", "dev", "test", "test1.0"]


def test_a_file_of_a_folder_that_cannot_be_read_hides_no_other(report: Report, tmp_path: Path) -> None:
    written(tmp_path / "train.tsv", "a b\tx", "c d\ty")
    (tmp_path / "dev.tsv").write_bytes("text\tlabel\n".encode("utf-16"))
    found = report(tmp_path, code=3)
    assert messages(found, "error") == [f"{tmp_path / 'dev.tsv'}: is UTF-16; name it with --encoding utf-16"]
    assert found["splits"][0]["rows"] == 2


# --- submissions


def test_a_foreign_zip_is_told_why_it_scores_nothing(recur: Recur, tmp_path: Path) -> None:
    path = tmp_path / "clue.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sub/tnews11_predict.json", '{"id": 0, "label": 7}\n')
    code, out, err = recur("check", path)
    assert code == 3
    assert "where CLUE reads nothing" in out
    assert err.startswith("recur: error: 1 error was found, the first: ")


# --- several paths, streams, speed


def test_a_path_that_cannot_be_read_hides_no_other(recur: Recur, tmp_path: Path) -> None:
    sound = written(tmp_path / "x.tsv", "a b\tx", "c d\ty")
    broken = tmp_path / "broken.tsv"
    broken.write_bytes(b"%PDF-1.7\n")
    code, out, err = recur("check", broken)
    assert (code, out) == (3, "") and f"{broken}: is a PDF file" in err
    code, out, err = recur("check", broken, sound, "--json")
    assert code == 3
    found = json.loads(out)
    assert [report["kind"] for report in found["reports"]] == ["unreadable", "data"]
    assert found["errors"] == 1


def test_a_reader_that_leaves_ends_a_check_silently(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *(f"text {n}\t{n % 400:0300}" for n in range(1200)))  # more than a pipe holds
    script = '"$0" -m recurcli check "$1" --no-lengths --quiet --json | head -1; echo ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        check=True,
    )
    assert done.stdout.splitlines()[1] == "141"
    assert done.stderr == ""


# --- the real data


@pytest.mark.slow
def test_known_faults_of_tnews_are_found(report: Report, real_data: Path) -> None:
    found = report(real_data / "tnews", "--no-lengths")
    assert found["errors"] == 0
    train, dev, *_ = found["splits"]
    assert (train["rows"], dev["rows"]) == (53_360, 10_000)
    assert train["repeated"]["conflicting_texts"] == 548
    both = next(overlap for overlap in found["overlaps"] if (overlap["first"], overlap["second"]) == ("train", "dev"))
    assert both["texts"] == 924


@pytest.mark.slow
def test_known_facts_of_afqmc_ocnli_and_csl_are_found(report: Report, real_data: Path) -> None:
    afqmc = report(real_data / "afqmc", "--no-lengths")
    assert round(afqmc["splits"][1]["majority"], 3) == 0.690
    ocnli = report(real_data / "ocnli", "--no-lengths")
    assert [split["dropped"] for split in ocnli["splits"]] == [49, 50, 0]
    assert len(found := messages(ocnli, "warning")) == 6
    assert all("near-duplicates of" in message for message in found)
    csl = report(real_data / "csl" / "dev.json")
    assert csl["splits"][0]["lengths"]["cut"] > 1000
    assert csl["splits"][0]["rows"] == 3000


@pytest.mark.slow
def test_known_facts_of_imdb_are_found(report: Report, real_data: Path) -> None:
    found = report(real_data / "imdb", "--no-lengths")
    assert [split["rows"] for split in found["splits"]] == [22_509, 2_491, 25_000]
    assert [overlap["texts"] for overlap in found["overlaps"]] == [0, 104, 19]


def test_a_single_file_is_divided_as_finetune_divides_it(recur: Recur, report: Report, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", *(f"film {number} is\t{'pos' if number % 2 else 'neg'}" for number in range(60)))
    plan = recur(
        "finetune",
        "--preset",
        "starsaber-custom",
        "--data",
        path,
        "--set",
        "finetuning.encoder=always",
        "--output",
        "r",
        "--dry-run",
        "--json",
    )
    sizes = {split: facts["rows"] for split, facts in json.loads(plan[1])["data"].items()}
    found = report(path)
    assert (found["splits"][0]["rows"], found["splits"][0]["dev_rows"]) == (60, sizes["dev"])
    use_dev_split = f"{sizes['train']} training rows and {sizes['dev']} dev rows (data.dev_seed 0)"
    assert messages(found, "information") == [
        f"{path}: {HEADER_TAKEN}",
        f"x.tsv: training on this file alone divides it into {use_dev_split}; "
        "a model without an encoder is cross-validated on all",
    ]
    test = path.rename(tmp_path / "test.tsv")
    assert report(test)["splits"][0]["dev_rows"] is None
