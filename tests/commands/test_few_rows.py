"""Few rows: no encoder, and cross-validation in place of drawn dev rows."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from predicting import Recur
from running import result_of

from recurcli.cli import run
from recurcli.linear.out_of_fold import OUTER_FOLDS

CHOSEN = ("--set", "linear.c=1", "--set", "linear.characters=null", "--set", "linear.words=[1, 2]")
DEFAULT = ("finetune", "--preset", "starsaber-custom", *CHOSEN)
SMALL = [
    part
    for key in ("encoder.hidden_size=8", "encoder.num_layers=1", "finetuning.max_steps=2")
    for part in ("--set", key)
]


def written(path: Path, rows: int, seed: int = 0) -> Path:
    """Reviews, a tenth of them with the wrong label."""
    draw, lines = np.random.default_rng(seed), ["text,label"]
    for number in range(rows):
        good = bool(draw.random() < 0.5)
        word = draw.choice(["fine", "great", "sound"] if good != (number % 10 == 0) else ["poor", "bad", "dull"])
        lines.append(f"the {word} film of day {number},{'pos' if good else 'neg'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("few") / "x.csv", 300)


@pytest.fixture(scope="module")
def few(data: Path) -> Path:
    output = data.parent / "few"
    assert run([*DEFAULT, "--data", str(data), "--output", str(output), "--quiet"]) == 0
    return output


def test_all_rows_train_the_linear_model_and_are_scored_out_of_fold(few: Path, data: Path, recur: Recur) -> None:
    result = result_of(few)
    assert (result["encoder"], result["steps"], result["linear_baseline"].get("refit_rows")) == ("linear", 0, None)
    assert result["cross_validation"] == {"folds": OUTER_FOLDS, "rows": 300}
    assert result["data"]["train"]["rows"] == result["data"]["dev"]["rows"] == result["kept"]["rows"] == 300
    assert result["dev"]["accuracy"] == 0.9, "the wrong labels are those of rows that no fold has seen"
    stored = [json.loads(line) for line in (few / "predictions.dev.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in stored}) == 300
    assert "5-fold cross-validation" in (few / "README.md").read_text()
    assert (few / "linear.first-fit.safetensors").exists() is False
    assert "300 of 300 rows are in the training rows" in recur.ok("eval", few, "--data", data)[1]


def check_lines(mistakes: Path, data: Path) -> None:
    """Check that each row of a file of mistakes names the line of `data` where its text begins, and no id."""
    head, *rows = (line.split("\t") for line in mistakes.read_text().splitlines())
    assert head == ["line", "label", "prediction", "score", "label_probability", "text"]
    lines = data.read_text().splitlines()
    for line, *_, text in rows:
        assert text.split("\\n")[0] in lines[int(line) - 1]


def test_mistakes_have_the_first_line_of_their_row(few: Path, data: Path, recur: Recur, tmp_path: Path) -> None:
    content = data.read_text().replace(",pos", ",neg")
    (tmp_path / "x.csv").write_text(re.sub("(the (poor|fine)) (.*),", r'"\1\n\3",', content))
    recur.ok("eval", few, tmp_path / "x.csv", "--errors", tmp_path / "e.tsv")
    assert "\\n" in (tmp_path / "e.tsv").read_text()
    check_lines(tmp_path / "e.tsv", tmp_path / "x.csv")


def test_eval_shows_the_stored_scores(few: Path, data: Path, recur: Recur, tmp_path: Path) -> None:
    result = result_of(few)
    out, err = recur.ok("eval", few, "--json", "--errors", tmp_path / "e.tsv", "--report", tmp_path / "page.html")
    found = json.loads(out)
    assert "the scores of the training: 5-fold cross-validation" in err
    for key in ("baselines", "calibration", "cross_validation", "kept"):
        assert found[key] == result[key]
    assert (found["metrics"], found["rows"], found["split"]) == (result["dev"], 300, "dev")
    assert len((tmp_path / "e.tsv").read_text().splitlines()) == 31
    check_lines(tmp_path / "e.tsv", data)
    low, high = found["intervals"]["accuracy"]
    assert low < 0.9 < high


def test_thresholds_are_fitted_to_the_predictions_out_of_fold(few: Path, recur: Recur, tmp_path: Path) -> None:
    few = shutil.copytree(few, tmp_path / "few")
    found = recur.json("eval", few, "--fit-thresholds", "recall:pos", "--save")
    assert found["thresholds"]["rows"] == 300
    assert found["metrics"]["per_class"]["pos"]["recall"] == 1.0
    assert recur.json("eval", few)["metrics"] == found["metrics"] != result_of(few)["dev"]


def test_runs_on_the_same_rows_are_paired_and_others_are_refused(
    few: Path, data: Path, recur: Recur, tmp_path: Path
) -> None:
    other, drawn = tmp_path / "other", tmp_path / "drawn"
    recur.ok(*DEFAULT, "--data", data, "--output", other, "--set", "linear.characters=[2, 3]")
    recur.ok(*DEFAULT, "--data", data, "--output", drawn, *SMALL, "--set", "finetuning.encoder=always")
    assert recur.json("compare", few, other)["rows"] == 300
    recur.refused(
        2, "one was cross-validated on all its rows, and --dev FILE gives both the same", "compare", few, drawn
    )
    alone = tmp_path / "alone"
    recur.ok("finetune", "--preset", "linear-custom", *CHOSEN, "--data", data, "--output", alone)
    differing = {key for group in recur.json("compare", alone, other)["groups"] for key in group["values"]}
    assert "encoder.name" not in differing and "linear.characters" in differing


def test_an_encoder_is_trained_where_it_is_asked_for_or_the_rows_are_many(data: Path, recur: Recur) -> None:
    many = written(data.parent / "many.csv", 1000)
    line = (*DEFAULT, *SMALL, "--dry-run", "--json")
    for source, more, without in (
        (many, (), False),
        (written(data.parent / "less.csv", 999), (), True),
        (data, ("--set", "finetuning.encoder=always"), False),
        (data, ("--set", "ensemble=null"), False),
    ):
        plan, err = recur.ok(*line, "--data", source, *more)
        assert ("encoder" not in json.loads(plan)["parameters"]) == without
        assert ("fewer than 1,000; --set finetuning.encoder=always trains one" in err) == without


def test_enough_dev_rows_are_drawn(recur: Recur, tmp_path: Path) -> None:
    data = written(tmp_path / "x.csv", 2400)
    recur.ok("finetune", "--preset", "linear-custom", "--data", data, "--output", tmp_path / "run")
    result = result_of(tmp_path / "run")
    assert "cross_validation" not in result
    assert result["data"]["dev"]["rows"] == pytest.approx(240, abs=2)


def test_no_row_is_fitted_twice_and_blank_rows_are_not_unseen(recur: Recur, tmp_path: Path) -> None:
    data = written(tmp_path / "x.csv", 100)
    data.write_text(data.read_text() + ",pos\n,neg\n")
    line = (*DEFAULT, "--data", data, "--output", tmp_path / "run", "--set", "finetuning.refit=true")
    recur.ok(*line)
    result = result_of(tmp_path / "run")
    assert "refit_rows" not in result["linear_baseline"] and "unseen" not in result
    assert not (tmp_path / "run" / "linear.first-fit.safetensors").exists()


def test_without_texts_no_mistakes_are_listed(data: Path, recur: Recur, tmp_path: Path) -> None:
    recur.ok(*DEFAULT, "--data", data, "--output", tmp_path / "run", "--set", "finetuning.keep_texts=false")
    recur.refused(2, "keeps no texts (finetuning.keep_texts)", "eval", tmp_path / "run", "--errors", tmp_path / "e.tsv")
    assert recur.json("eval", tmp_path / "run")["rows"] == 300


def test_a_class_with_one_training_row_is_named(data: Path, recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(data.read_text() + "alone in its class,rare\n")
    _, err = recur.ok(*DEFAULT, "--data", tmp_path / "x.csv", "--output", tmp_path / "run")
    assert "warning: a class has one training row ('rare')" in err


def test_classes_of_one_text_each_are_refused_with_the_reason(recur: Recur, tmp_path: Path) -> None:
    rows = "".join(f"text number {number},class {number}\n" for number in range(40))
    (tmp_path / "x.csv").write_text(f"text,label\n{rows}")
    reason = "none of its 40 labels has two different texts; a class needs one to train on and one to score"
    recur.refused(3, reason, *DEFAULT, "--data", tmp_path / "x.csv", "--output", tmp_path / "run")
