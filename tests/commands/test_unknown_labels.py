"""Labelled rows with a label not seen in training: mistakes of `recur eval`, or left out by `--drop-unknown`."""

import csv
from pathlib import Path
from typing import Any

import pytest
from running import Recur, lines_of, result_of, saved
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from tiny_task import rows, write_rows

UNKNOWN = {"999": 2, "x": 1}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A file of 40 rows, and one with three rows more, whose labels are unknown."""
    known, others = rows(40, seed=8, labelled=True), rows(3, seed=9, labelled=True)
    for row, label in zip(others, ("999", "x", "999"), strict=True):
        row["label"] = label
    write_rows(tmp_path / "known.json", known)
    write_rows(tmp_path / "all.json", [*known[:10], *others, *known[10:]])
    return tmp_path / "known.json", tmp_path / "all.json"


def mistakes(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_a_row_of_an_unknown_label_is_a_mistake(recur: Recur, trained: Path, files: tuple[Path, Path]) -> None:
    known, every = files
    found, without = (recur.json("eval", trained, "--data", path)["metrics"] for path in (every, known))
    names, predicted = found["names"], lines_of_predictions(recur, trained, every)
    labels = [str(row["label"]) for row in lines_of(every)]
    renamed = ["?" if label in UNKNOWN else label for label in labels]  # all count as one class
    assert found["accuracy"] == accuracy_score(labels, predicted)
    assert found["mcc"] == pytest.approx(matthews_corrcoef(renamed, predicted))
    present = sorted({*predicted, *labels} & {*names})
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, labels=present, average="macro"))
    for row, label in enumerate(labels):
        if label in UNKNOWN:
            more = sum(predicted[other] == predicted[row] for other in range(len(labels)) if labels[other] in UNKNOWN)
            columns = [
                sum(line[names.index(predicted[row])] for line in report["confusion"]) for report in (found, without)
            ]
            assert columns[0] - columns[1] == more, "it is a false positive of the predicted class"
    assert found["unknown_labels"] == UNKNOWN
    assert found["confusion"][: len(names)] == without["confusion"]
    assert [sum(row) for row in found["confusion"][len(names) :]] == [*UNKNOWN.values()]


def lines_of_predictions(recur: Recur, run: Path, path: Path) -> list[str]:
    output = path.with_name("predicted.jsonl")
    recur.ok("predict", run, path, "--text", "sentence", "--output", output)
    return [row["prediction"] for row in lines_of(output)]


def test_losses_and_calibration_leave_unknown_labels_out(recur: Recur, trained: Path, files: tuple[Path, Path]) -> None:
    known, every = (recur.json("eval", trained, "--data", path) for path in files)
    for name in ("loss", "average_precision", "roc_auc"):
        assert every["metrics"][name] == pytest.approx(known["metrics"][name])
    assert every["calibration"]["loss"] == pytest.approx(known["calibration"]["loss"])
    assert sum(own["rows"] for own in every["calibration"]["bins"]) == known["rows"] == every["rows"] - 3
    assert every["parts"]["encoder"]["loss"] == pytest.approx(known["parts"]["encoder"]["loss"])
    assert every["baselines"]["majority"] * every["rows"] == pytest.approx(
        known["baselines"]["majority"] * known["rows"]
    )


def test_unknown_labels_can_be_left_out(recur: Recur, trained: Path, files: tuple[Path, Path]) -> None:
    known, every = files
    wanted, (_, err) = recur.json("eval", trained, known), recur.ok("eval", trained, every, "--drop-unknown")
    found = recur.json("eval", trained, every, "--drop-unknown")
    assert "warning: 3 of 43 rows have a label not seen in training ('999' 2, 'x' 1), left out" in err
    assert (found.pop("dropped"), wanted.pop("dropped")) == (3, 0)
    for each in (found, wanted):
        del each["path"], each["sha256"]
    assert found == wanted


def test_screen_page_and_mistakes_name_an_unknown_label(
    recur: Recur, trained: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    outputs = ("--errors", tmp_path / "e.tsv", "--report", tmp_path / "r.html")
    out, err = recur.ok("eval", trained, files[1], *outputs)
    assert "('999' 2, 'x' 1); such a row is a mistake" in err
    table = out.partition("confusion")[2]
    assert {"999", "x"} <= {line.split()[0] for line in table.splitlines() if line.strip()}
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count('<th scope="row">999</th>') == 1 and "999 → " in page
    found = [row for row in mistakes(tmp_path / "e.tsv") if row["label"] in UNKNOWN]
    assert sorted((row["line"], row["label"], row["label_probability"]) for row in found) == [
        ("11", "999", ""),
        ("12", "x", ""),
        ("13", "999", ""),
    ]


def test_rows_that_were_read_in_training_are_scored_as_there(recur: Recur, tmp_path: Path) -> None:
    train = [
        f"the {word} film of day {n},{label}" for n in range(30) for word, label in (("fine", "pos"), ("dull", "neg"))
    ]
    dev = [f"a {word} play {n},{label}" for n in range(60) for word, label in (("fine", "pos"), ("dull", "neg"))]
    saved(tmp_path / "train.csv", "\n".join(["text,label", *train]))
    saved(tmp_path / "dev.csv", "\n".join(["text,label", *dev, "a play,odd"]))
    named, run = ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv"), tmp_path / "run"
    options = ("finetune", "--preset", "linear-custom", *named, "--output", run, "--quiet")
    recur.refused(3, "label 'odd' is not one of", *options)
    assert recur("check", *named)[0] == 3
    recur.ok(*options, "--set", "data.skip_bad_rows=true")
    assert recur.json("eval", run)["metrics"]["accuracy"] == result_of(run)["dev"]["accuracy"]
    assert recur.json("eval", run)["rows"] == 120 and recur.json("eval", run, tmp_path / "dev.csv")["rows"] == 121
