"""The block with which a result begins, and the commands that take a file by its name alone."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import Recur, result_of, saved
from tiny_task import tiny

from recurcli.display.screen import block_parts, print_training, show
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.result_block import ResultBlock, result_block
from recurcli.requests.training import FinetuneRequest
from recurcli.significance import share_interval
from recurcli.targets import OneLabel

TARGET = OneLabel(("a", "b"))
PLAIN = Kept.as_is(TARGET)
ENSEMBLE = Kept(TARGET, "ensemble", {"encoder": 0.5, "linear": 1.0}, {"encoder": 1.0, "linear": 2.0}, rows=24)
PARTS: dict[str, dict[str, Any]] = {
    "encoder": {"accuracy": 0.9, "macro_f1": 0.8},
    "linear": {"accuracy": 0.95, "macro_f1": None},
}


STEP = "the step of the encoder, which raises its score on them"


def scores(rows: int, paired: list[float], **more: object) -> dict[str, Any]:
    """The scores of an ensemble on rows of a split."""
    baselines = {"majority": 0.4, "linear": PARTS["linear"]["accuracy"], "root_digits": 0.5}
    both = {"encoder": [-0.5, 0.5], "linear": paired}
    shares = {"model": 0.96, "encoder": 0.9, "linear": 0.95}
    limits = {part: [*share_interval(round(share * rows), rows)] for part, share in shares.items()}
    facts = {"target": "one", "accuracy": 0.96, "baselines": baselines, "model_intervals": limits, "parts": PARTS}
    return {**facts, "paired": both, "rows": rows, **more}


def evaluated(kept: Kept = ENSEMBLE, **more: object) -> dict[str, Any]:
    """What `recur eval` returns of an ensemble, or of another model that is kept, on 200 rows of a file."""
    facts = {"kept": kept.to_json(), "metric": "accuracy", "split": "file", "metrics": {}, "training_rows": 0}
    return {**scores(200, [0.001, 0.02], **facts), **more}


def test_the_kept_model_comes_first_with_its_interval_and_what_it_is_compared_with() -> None:
    block = result_block(Path("runs/x"), {}, evaluated())
    assert block.title == ("runs/x", "not finished")
    assert block.columns == ["kept: encoder + linear model (ensemble)", "200 rows", "95 % interval"]
    assert block.rows == [
        ["ensemble (kept)", "96.0", "92.3–98.0"],
        ["linear model", "95.0", "91.0–97.3"],
        ["encoder", "90.0", "85.1–93.4"],
        ["majority class", "40.0", ""],
    ]
    assert block.notes == []


def test_a_part_that_is_kept_alone_has_one_line() -> None:
    block = result_block(Path("x"), {}, evaluated(ENSEMBLE.only_linear))
    assert block.columns[0] == "kept: linear model"
    assert [row[0] for row in block.rows] == ["linear model (kept)", "encoder", "majority class"]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({"paired": {"linear": [-0.01, 0.03]}}, "200 rows are too few to tell the ensemble from the linear model"),
        ({"paired": {"linear": [-0.05, -0.01]}}, "; the ensemble was chosen by its log loss on the dev rows."),
        (
            {"paired": {"linear": [-0.05, -0.01]}, "kept": PLAIN},
            "The linear model has more of the 200 rows right (paired difference -5.0 to -1.0).",
        ),
        ({"paired": {"linear": [0, 0], "encoder": [0.1, 0.2]}}, "(paired difference +0.0 to +0.0)"),
        ({"unseen": {"rows": 190, "accuracy": 0.5}}, "10 of the 200 rows were trained on; the ensemble has 50.0 on"),
        ({"training_rows": 200}, "All of these rows were trained on"),
        ({"training_rows": None}, "is unknown: the run keeps no hashes"),
        ({"metric": "macro_f1", "macro_f1": 0.7}, "macro F1 on 200 rows: ensemble 70.0, encoder 80.0."),
        (
            {"thresholds": {"metric": "f1:a", "cross_validated": 0.5, "most_probable": 0.25}},
            "by cross-validation the F1 of a is 50.0 with them, and 25.0 without.",
        ),
    ],
)
def test_a_line_says_what_the_scores_cannot_show(more: dict[str, Any], note: str) -> None:
    [found] = result_block(Path("x"), {}, evaluated(**more)).notes
    assert note in found


@pytest.mark.parametrize(
    ("more", "is_said"),
    [({"dev_rows": 200}, True), ({"dev_rows": 190}, False), ({"split": "dev"}, True), ({"dev_rows": None}, False)],
)
def test_dev_rows_that_chose_the_encoder_are_said(more: dict[str, Any], is_said: bool) -> None:
    notes = result_block(Path("x"), {}, evaluated(**more)).notes
    assert notes == [f"The dev rows chose {STEP}; the kept model was chosen by log loss."] * is_said
    alone: dict[str, Any] = {"parts": {}, "paired": {}}
    notes = result_block(Path("x"), {}, {**evaluated(PLAIN, **more), **alone}).notes
    assert notes == [f"The dev rows chose {STEP}."] * is_said


def test_dev_rows_choose_nothing_of_a_linear_model_alone() -> None:
    baselines = {"majority": 0.4}
    own = evaluated(encoder_weight=0.0, parts={}, paired={}, baselines=baselines, dev_rows=200)
    assert result_block(Path("x"), {}, own).notes == []


def test_the_rows_that_chose_nothing_tell_the_parts_apart(trained: Path) -> None:
    result = result_of(trained)
    for split, rows in (("test", 400), ("test-long", 300)):
        result[split] = {**result["dev"], **scores(rows, [-0.1, 0.1])}
        result["data"][split] = {"rows": rows}
    block = result_block(trained, result)
    assert block.columns[1::2] == ["24 dev rows", "400 test rows", "300 test-long rows"]
    assert [len(row) for row in block.rows] == [7] * 4
    told = [note.partition(" are too few")[0] for note in block.notes if "too few" in note]
    assert told == ["400 test rows", "300 test-long rows"]


def test_the_commands_are_those_of_the_run_and_a_shell_takes_them(trained: Path, tmp_path: Path) -> None:
    of_clue, own = result_of(trained), {**result_of(trained), "task": "custom"}
    run = tmp_path / "a b'c"
    for result, has_page, wanted in (
        (of_clue, False, [["eval", "--report", "a b'c.html"], ["export", "--output", "a b'c.zip"]]),
        (own, False, [["eval", "--report", "a b'c.html"], ["predict", "NEW.txt", "--output", "labelled.tsv"]]),
        (own, True, [["predict", "NEW.txt", "--output", "labelled.tsv"], ["export", "--output", "a b'c-onnx"]]),
    ):
        lines = result_block(run, result, evaluated(), has_page=has_page).next
        assert [shlex.split(line) for line in lines] == [["recur", own[0], str(run), *own[1:]] for own in wanted]
    looped = {**own, "export_obstacle": "a loop"}
    assert not any("export" in line for line in result_block(run, looped, evaluated(), has_page=True).next)
    assert "export" in result_block(run, looped, evaluated(ENSEMBLE.only_linear), has_page=True).next[1]
    pairs = {**own, "pairs": True}
    assert "NEW.csv" in result_block(run, pairs).next[1]


@pytest.mark.parametrize(("width", "is_stacked"), [(60, True), (80, True), (120, False)])
def test_a_narrow_terminal_breaks_no_name_no_number_and_no_command(
    width: int, is_stacked: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    columns = ["kept: encoder + linear model (ensemble)", "240 dev rows", "95 % interval", "10,000 test rows"]
    rows = [
        ["linear model (kept)", "93.8", "90.0–96.2", "94.1", "93.6–94.6"],
        ["majority class", "36.7", "", "36.0", ""],
    ]
    command = f"recur eval {'x' * width}"
    block = ResultBlock(("runs/x", "p, seed 1"), [*columns, "95 % interval"], rows, ["a word " * 20], [command, "b"])
    show(*block_parts(block))
    lines = [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()]
    assert f"  next  {command}" in lines
    assert all(len(line) <= width for line in lines if command not in line)
    assert (lines[2] == f"  {columns[0]}") == is_stacked
    found = [line.split("  ") for line in lines if "linear model (kept)" in line]
    assert [len([cell for cell in line if cell.strip()]) for line in found] == ([3, 3] if is_stacked else [5])
    assert all(line.startswith("  a word") or line.startswith("  word") for line in lines if "word" in line)


def test_training_evaluation_card_and_page_begin_alike(
    recur: Recur, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(trained)
    print_training(result, trained)
    first = capsys.readouterr().out.partition("\n  next  ")[0]
    out, _ = recur.ok("eval", trained, "--report", tmp_path / "r.html")
    assert out.partition("\n  next  ")[0] == first
    assert "macro" not in first and "MCC" not in out
    card, page = (trained / "README.md").read_text(), (tmp_path / "r.html").read_text()
    block = result_block(trained, result)
    for row in block.rows:
        assert f"| {' | '.join(row)} |" in card
    [_, share, interval], *others = block.rows
    assert f"{share} % right on {block.columns[1]} ({interval}). Kept: " in page
    assert "; " + ", ".join(f"{name} {score}" for name, score, *_ in others) + ".</p>" in page
    for note in block.notes:
        assert note in card and note in page
    assert "macro F1" in card


def test_a_file_alone_is_the_data_of_the_usual_preset(recur: Recur, tmp_path: Path) -> None:
    file = saved(tmp_path / "rows.csv", "text,label\n")
    recur.refused(2, "none.csv: there is no such file or folder", "finetune", tmp_path / "none.csv")
    for preset in ("starsaber-custom", "bilstm-custom"):
        named = FinetuneRequest(preset=preset, data=file)
        assert replace(FinetuneRequest(preset=preset, file=file), file=None) == named
    assert FinetuneRequest(file=file).preset == "starsaber-custom"


def test_eval_takes_the_file_by_its_name(recur: Recur, trained: Path, tiny_tnews: Path) -> None:
    dev = tiny_tnews / "dev.json"
    assert recur.json("eval", trained, dev) == recur.json("eval", trained, "--data", dev)


def test_a_training_ends_in_its_time_and_an_export_knows_its_format(
    recur: Recur, trained: Path, tmp_path: Path, tiny_tnews: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"{'ab'[n % 2] * 3} {n},label {n % 7}\n" for n in range(42)))
    run, package = tmp_path / "run", tmp_path / "package"
    out, err = recur.ok("finetune", rows, "-o", run, *tiny("finetuning.encoder=auto"))
    assert re.fullmatch(r"recur: took \d+ s", err.splitlines()[-1])
    assert out.startswith(f"{run}  starsaber-custom, seed 10\n\n  kept: linear model ") and "5-fold" in out
    assert recur.json("export", run, "-o", package)["format"] == "onnx"
    (tmp_path / "new.txt").write_text("aaa 1\nbbb 2\n" * 21)
    out, err = recur.ok("predict", run, tmp_path / "new.txt", "--no-header")
    labels = [line.split("\t")[1] for line in out.splitlines()]
    counted = [f"{label} {count}" for label, count in Counter(labels).items()]
    assert all(each in err.splitlines()[-1] for each in counted)
    assert recur("predict", run, tmp_path / "new.txt", "--no-header", "-q")[2] == ""


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ({"file": "rows.v2.csv.gz"}, "rows"),
        ({"file": "rows.csv", "preset": "bilstm-custom"}, "rows-bilstm-custom"),
        ({"data": "rows.csv"}, "starsaber-custom"),
    ],
)
def test_the_run_directory_has_the_name_of_the_file_and_of_another_preset(
    options: dict[str, str], folder: str, tmp_path: Path
) -> None:
    paths = {name: tmp_path / value for name, value in options.items() if name != "preset"}
    for path in paths.values():
        path.touch()
    asked: dict[str, Any] = {**options, **paths}
    assert FinetuneRequest(**asked).folder == Path("runs") / folder
    assert FinetuneRequest(**asked, output=tmp_path / "mine").folder == tmp_path / "mine"
