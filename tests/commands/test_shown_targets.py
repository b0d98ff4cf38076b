"""What `recur eval` shows of several labels a row, and of numbers: the screen, the page, and the file of mistakes."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Recur, result_of
from test_reports import page_of, read_page

from recurcli.cli import run as run_command
from recurcli.commands.training.report import model_card

WORDS = {"cold": "ice", "wet": "rain", "windy": "gust"}
LINEAR = ("--preset", "linear-custom", "--set", "linear.c=1", "--set", "linear.words=[1, 2]", "--quiet")


def drawn(rows: int, seed: int) -> list[dict[str, Any]]:
    """Rows with any of three labels, whose words they hold most of the time."""
    draw, made = np.random.default_rng(seed), []
    for number in range(rows):
        own = [label for label in WORDS if draw.random() < 0.4]
        words = [WORDS[label] for label in own if draw.random() < 0.8]
        made.append({"text": " ".join([f"w{number}", *words]), "labels": own})
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def mistakes(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def trained_on(path: Path) -> Path:
    """A run of a linear model that is trained on a file, with the scores of its cross-validation."""
    run = path.with_suffix("")
    assert run_command(["finetune", str(path), *LINEAR, "--output", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on rows with several labels."""
    return trained_on(write(tmp_path_factory.mktemp("several") / "rows.jsonl", drawn(150, 1)))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on rows with numbers."""
    rows = [
        {"text": row["text"], "score": len(row["labels"]) + place / 1000} for place, row in enumerate(drawn(150, 2))
    ]
    return trained_on(write(tmp_path_factory.mktemp("numbers") / "rows.jsonl", rows))


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Rows with several labels; two of them have labels that no training row has."""
    rows = drawn(40, 3)
    rows[4]["labels"], rows[9]["labels"] = [*rows[4]["labels"], "new"], ["new", "<b>newer"]
    return write(tmp_path / "others.jsonl", rows)


def test_several_labels_open_with_micro_f1_and_are_shown_by_label(recur: Recur, several: Path) -> None:
    out, _ = recur.ok("eval", several)
    found, stored = recur.json("eval", several), result_of(several)
    assert found["metrics"] == stored["dev"]
    lines = [line.split() for line in out.splitlines()]
    assert "kept: linear model; micro F1" in out and "confusion" not in out
    low, high = found["intervals"]["micro_f1"]
    assert [f"{100 * found['metrics']['micro_f1']:.1f}", f"{100 * low:.1f}–{100 * high:.1f}"] in [
        line[-2:] for line in lines
    ]
    own = found["metrics"]["per_label"]["wet"]
    scores = [f"{100 * own[name]:.1f}" for name in ("precision", "recall", "f1", "average_precision")]
    assert ["wet", *scores, str(own["support"])] in lines
    more, card = recur.ok("eval", several, "--verbose")[0], model_card(stored)
    for name in ("micro F1", "sample F1", "exact match", "Hamming loss", "label ranking average precision"):
        assert name in more and f"| dev {name} |" in card
    assert "A text classifier for several labels a row with a linear model" in card


def test_labels_not_seen_in_training_are_missed_or_left_out(
    recur: Recur, several: Path, others: Path, tmp_path: Path
) -> None:
    found = json.loads((result := recur("eval", several, others, "--errors", tmp_path / "e.tsv", "--json"))[1])
    assert (
        "2 of 40 rows have a label not seen in training ('new' 2, '<b>newer' 1); such a label counts as missed"
        in result[2]
    )
    labels = [json.loads(line)["labels"] for line in others.read_text().splitlines()]
    rows = mistakes(tmp_path / "e.tsv")
    assert list(rows[0]) == [
        *("line", "label", "prediction", "missed", "missed_probabilities", "wrong", "wrong_probabilities", "text")
    ]
    assert len(rows) == round(40 * (1 - found["metrics"]["exact_match"]))
    for row in rows:
        own, given = labels[int(row["line"]) - 1], {*row["prediction"].split(",")} - {""}
        assert row["label"] == ",".join(sorted(own))
        assert row["missed"] == ",".join(sorted({*own} - given)) and row["wrong"] == ",".join(sorted(given - {*own}))
        chances = dict(zip(row["missed"].split(","), row["missed_probabilities"].split(","), strict=True))
        assert all(
            chance == "" if "new" in name else not name or float(chance) < 0.5 for name, chance in chances.items()
        )
    wrong = [
        len((row["missed"] + "," * bool(row["missed"] and row["wrong"]) + row["wrong"]).split(",")) for row in rows
    ]
    assert wrong == sorted(wrong, reverse=True)
    dropped = recur.json("eval", several, others, "--drop-unknown")
    assert (dropped["rows"], dropped["dropped"]) == (38, 2)
    write(others, [{"text": "ice", "labels": ["cold", "new"]}])
    recur.refused(3, "every row has a label not seen in training ('new' 1)", "eval", several, others)


def test_labels_that_predict_would_join_are_read(recur: Recur, several: Path, others: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in others.read_text().splitlines()]
    joined = write(tmp_path / "joined.jsonl", [{**row, "labels": ",".join(row["labels"]) or []} for row in rows])
    assert recur.json("eval", several, joined)["metrics"] == recur.json("eval", several, others)["metrics"]


def test_the_page_of_several_labels_maps_missed_to_wrongly_given_ones(
    recur: Recur, several: Path, others: Path, tmp_path: Path
) -> None:
    recur.ok("eval", several, others, "--report", tmp_path / "page.html")
    page, metrics = read_page(tmp_path / "page.html"), recur.json("eval", several, others)["metrics"]
    assert f"micro F1 {100 * metrics['micro_f1']:.1f} on 40 rows" in page.text
    assert (
        "<b>newer" in page.text and "(not seen in training)" in page.text and "The most frequent mistake" in page.text
    )
    right = round(metrics["per_label"]["cold"]["recall"] * metrics["per_label"]["cold"]["support"])
    assert f"\ncold{right}" in page.text.replace("\n\n", "\n")
    assert "F1 by label" in page.text and "share of rows that have it by the probability of a label" in page.text
    assert "accuracy" not in page.text and "--threshold" not in page.text


def test_thresholds_of_several_labels_change_the_scores_and_their_interval(recur: Recur, several: Path) -> None:
    before, after = recur.json("eval", several), recur.json("eval", several, "--fit-thresholds", "f1:cold")
    assert after["metrics"]["per_label"]["cold"]["f1"] >= before["metrics"]["per_label"]["cold"]["f1"]
    assert after["metrics"]["ranking_average_precision"] == before["metrics"]["ranking_average_precision"]
    assert after["model_intervals"]["model"] == pytest.approx(after["intervals"]["micro_f1"])
    recur.refused(
        2, "thresholds of several labels are chosen for one of", "eval", several, "--fit-thresholds", "exact_match"
    )


def test_numbers_open_with_the_mean_absolute_error(recur: Recur, numbers: Path, tmp_path: Path) -> None:
    out, err = recur.ok("eval", numbers, "--errors", tmp_path / "e.tsv")
    found, card = recur.json("eval", numbers), model_card(result_of(numbers))
    assert (
        "kept: linear model; MAE" in out and "Spearman's rho" in out and "mean prediction" in out and "loss" not in out
    )
    assert (
        f"| dev MAE | {found['metrics']['mae']:.4f} |" in card and "A model that predicts a number of each text" in card
    )
    rows = mistakes(tmp_path / "e.tsv")
    assert "150 rows by their errors, the largest first" in err and list(rows[0])[-2:] == ["error", "text"]
    errors = [float(row["error"]) for row in rows]
    assert errors == sorted(errors, key=abs, reverse=True)
    assert np.abs(errors).mean() == pytest.approx(found["metrics"]["mae"], abs=1e-4)
    page = page_of(recur, numbers, tmp_path)
    assert f"MAE {found['metrics']['mae']:.4f} on 150 rows" in page.text and "prediction over number" in page.text
    assert not any(word in page.text for word in ("Confusions", "accuracy", "--threshold", "class"))
    for option in (("--drop-unknown",), ("--fit-thresholds", "f1:cold")):
        recur.refused(2, f"{option[0]} is for labels", "eval", numbers, *option)
