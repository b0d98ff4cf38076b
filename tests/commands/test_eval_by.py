"""`recur eval --by`: scores of groups of rows on the screen, in the JSON and on the page."""

import csv
from pathlib import Path

import pytest
from running import Recur
from test_reports import read_page
from tiny_task import rows, write_rows


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 rows, of which those of the desk "<b>night" have a wrong label."""
    made = rows(150, seed=8, labelled=True)
    for number, row in enumerate(made):
        row["desk"], row["shift"] = ("day", number % 2) if number % 5 else ("<b>night", None)
        row["label"] = row["label"] if number % 5 else {"100": "101", "101": "102", "102": "100"}[str(row["label"])]
    write_rows(tmp_path_factory.mktemp("desks") / "new.json", made)
    return tmp_path_factory.getbasetemp() / "desks0" / "new.json"


def test_the_groups_of_a_column_are_tested_against_the_others(
    recur: Recur, trained: Path, desks: Path, tmp_path: Path
) -> None:
    found = recur.json("eval", trained, desks, "--by", "desk", "--report", tmp_path / "r.html")
    day, night = found["groups"]
    assert (found["by"], day["group"], night["group"]) == ("desk", "day", "<b>night")
    assert (day["rows"], night["rows"], day["verdict"], night["verdict"]) == (120, 30, "better", "worse")
    assert night["others"] == day["score"] > 0.8 > night["score"] and night["interval"][1] < day["interval"][0]
    assert day["score"] * 120 + night["score"] * 30 == pytest.approx(150 * found["metrics"]["accuracy"])
    page = read_page(tmp_path / "r.html")
    assert "#groups" in page.links and f"<b>night (30) {100 * night['score']:.1f}" in page.text
    assert f"all rows {100 * found['metrics']['accuracy']:.1f}" in page.text
    out, _ = recur.ok("eval", trained, desks, "--by", "desk")
    [line] = [line for line in out.splitlines() if "<b>night" in line]
    assert line.split()[1:3] == ["30", f"{100 * night['score']:.1f}"] and line.endswith("worse")


def test_other_values_than_strings_are_groups_too(recur: Recur, trained: Path, desks: Path) -> None:
    found = recur.json("eval", trained, desks, "--by", "shift")
    assert [(own["group"], own["rows"]) for own in found["groups"]] == [("1", 60), ("0", 60), ("(blank)", 30)]


def test_the_length_of_the_text_is_divided_into_quarters(recur: Recur, trained: Path) -> None:
    found = recur.json("eval", trained, "--by", "text-length")
    assert [own["rows"] for own in found["groups"]] and sum(own["rows"] for own in found["groups"]) == 24
    assert {own["verdict"] for own in found["groups"]} == {"too few rows to tell"}


def test_a_cross_validated_run_and_one_of_several_files_have_groups(recur: Recur, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label", "desk"])
            writer.writerows([row["sentence"], row["label"], f"{name} desk"] for row in rows(40, seed, labelled=True))
    files = ("--train", tmp_path / "one.csv", "--train", tmp_path / "two.csv")
    recur.ok("finetune", *files, "--preset", "linear-custom", "--output", tmp_path / "run")
    by_column, by_file = (recur.json("eval", tmp_path / "run", "--by", by)["groups"] for by in ("desk", "file"))
    assert [(own["group"], own["rows"]) for own in by_column] == [("one desk", 40), ("two desk", 40)]
    assert by_file == [{**own, "group": own["group"].replace(" desk", ".csv")} for own in by_column]


def test_an_unknown_column_is_named_with_its_nearest(recur: Recur, trained: Path, desks: Path) -> None:
    reason = "--by: there is no column 'dsek'; did you mean 'desk'?"
    recur.refused(3, reason, "eval", trained, desks, "--by", "dsek")
    recur.refused(3, "there is no column 'file'", "eval", trained, desks, "--by", "file")
