"""A model with an ensemble: what is joined, what stays as it is, and what is refused."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from forked import ForkServer
from predicting import Recur, texts
from ranks import run_ranks
from small_runs import options
from tiny_task import tiny

from recurcli.cli import run
from recurcli.commands import finetune
from recurcli.evaluation import inference, report
from recurcli.evaluation.inference import Predictor
from recurcli.files import CommittedFolder, sha256_of
from recurcli.runs.model_files import read_ensemble, read_linear_model, write_ensemble
from recurcli.runs.predictions import read_predictions

ROWS = [("鼠牛虎", None), ("", None), ("猴" * 40, None), ("龙 蛇 nothing known", None), ("狗猪鼠牛", None)]


def weighted(trained: Path, target: Path, encoder: float, linear: float) -> Path:
    """A copy of a run with other weights of its ensemble."""
    run = shutil.copytree(trained, target, ignore=shutil.ignore_patterns("checkpoints"))
    ensemble = read_ensemble(CommittedFolder(run), 15)
    assert ensemble is not None
    write_ensemble(run, replace(ensemble, encoder_weight=encoder, linear_weight=linear))
    return run


def test_the_result_has_the_scores_of_both_parts_and_of_the_ensemble(recur: Recur, trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert result["ensemble"] == json.loads((trained / "ensemble.json").read_text())
    assert result["parts"].keys() == {"encoder", "linear"}
    assert result["baselines"]["linear"] == result["parts"]["linear"]["accuracy"]
    assert result["dev"]["accuracy"] >= max(part["accuracy"] for part in result["parts"].values())
    assert "dev encoder: accuracy" in (trained / "README.md").read_text()
    code, out, err = recur("eval", trained, "--json", "--quiet")
    assert code == 0, err
    again = json.loads(out)
    for part in ("encoder", "linear"):
        assert again["parts"][part] == pytest.approx(result["parts"][part], abs=1e-6)
    assert again["metrics"]["accuracy"] == result["dev"]["accuracy"]
    assert "encoder: accuracy" in recur("eval", trained)[1]


def test_dev_predictions_have_the_probabilities_of_both_parts(trained: Path) -> None:
    ensemble = json.loads((trained / "ensemble.json").read_text())
    for line in map(json.loads, (trained / "predictions.dev.jsonl").read_text().splitlines()):
        encoder, linear, both = (
            np.array([*line[f"{part}probabilities"].values()]) for part in ("encoder_", "linear_", "")
        )
        joint = encoder ** ensemble["encoder_weight"] * linear ** ensemble["linear_weight"]
        np.testing.assert_allclose(both, joint / joint.sum(), atol=1e-5)
        assert line["prediction"] == max(line["probabilities"], key=line["probabilities"].__getitem__)


def test_the_encoder_is_the_one_of_a_training_without_an_ensemble(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    found = []
    for name, ensemble in (("with", "linear"), ("without", "null")):
        code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / name, f"ensemble={ensemble}"))
        assert code == 0, err
        losses = [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        found.append((sha256_of(tmp_path / name / "model.safetensors"), losses))
    assert found[0] == found[1]
    assert not (tmp_path / "without" / "ensemble.json").exists()


def test_logits_are_the_weighted_sum_whatever_the_batch(trained: Path, tmp_path: Path) -> None:
    run = weighted(trained, tmp_path / "run", 0.7, 1.3)
    whole = Predictor.load(run, device="cpu").logits(ROWS)
    encoder = Predictor.load(weighted(trained, tmp_path / "e", 1, 0), device="cpu").logits(ROWS)
    linear = Predictor.load(weighted(trained, tmp_path / "l", 0, 1), device="cpu").logits(ROWS)
    np.testing.assert_allclose(whole, 0.7 * encoder + 1.3 * linear)
    one = Predictor.load(run, device="cpu", batch_size=1)
    np.testing.assert_allclose(np.concatenate([one.logits([row]) for row in ROWS]), whole, atol=1e-5)


def test_fast_takes_the_linear_model_of_an_ensemble(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = read_ensemble(CommittedFolder(trained), 15)
    assert ensemble is not None
    assert 0 < ensemble.linear_alone_weight != ensemble.linear_weight
    kept = weighted(trained, tmp_path / "kept", 0, ensemble.linear_alone_weight)
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in texts(50)))
    line = (tmp_path / "x.txt", "--no-header", "--probabilities")
    monkeypatch.setattr(inference, "compute_logits", None)
    code, out, err = recur("predict", trained, *line, "--fast")
    assert (code, "labelled by the linear model alone, as --fast asks" in err) == (0, True), err
    _, same, err = recur("predict", kept, *line)
    assert (same, "labelled by the linear model" in err) == (out, True), err
    _, same, err = recur("predict", kept, *line, "--fast")
    assert (same, "which was kept by the dev rows" in err) == (out, True)


def test_fast_and_explanations_are_refused_where_the_encoder_was_kept(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    run = weighted(trained, tmp_path / "run", 1, 0)
    (tmp_path / "x.csv").write_text("sentence\na\n")
    export = ("export", run, "--fast", "--format", "onnx", "--output", tmp_path / "x")
    for line in (("predict", run, "--fast"), export, ("predict", run, tmp_path / "x.csv", "--explain")):
        code, out, err = recur(*line)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert str(run) in err and str(line[2] if line is export else line[-1]) in err
    assert not (tmp_path / "x").exists()


def test_a_prediction_is_not_resumed_with_another_part(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("鼠牛\n")
    line = ("predict", trained, tmp_path / "x.txt", "--no-header", "--output", tmp_path / "y.tsv", "--resume")
    assert recur(*line, "--fast")[0] == 0
    code, _, err = recur(*line)
    assert (code, "cannot be resumed: --fast was True and is now False" in err) == (2, True), err


@pytest.mark.slow
def test_several_processes_predict_the_same_bytes(
    recur: Recur, forks: ForkServer, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in texts(300)))
    for encoder in (0.7, 0.0):
        run = weighted(trained, tmp_path / f"run{encoder}", encoder, 1.3)
        line = ("predict", run, tmp_path / "x.txt", "--no-header", "--probabilities", "--quiet", "--batch-size", 7)
        ended = run_ranks(forks, *line)
        assert [end.code for end in ended] == [0, 0], ended[0].err
        assert ended[0].out == recur(*line)[1]


def test_a_training_without_a_linear_model_goes_on_with_the_encoder(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_tnews, tmp_path / "tnews")
    rows = [json.loads(line) for line in (data / "train.json").read_text().splitlines()]
    (data / "train.json").write_text("".join(json.dumps({**row, "label": "100"}) + "\n" for row in rows))
    code, out, err = recur("finetune", *options(data, tmp_path / "run")[:-1], "ensemble=linear", "--json")
    assert code == 0, err
    assert json.loads(out)["baselines"].keys() == {"majority"}
    assert not (tmp_path / "run" / "ensemble.json").exists()


def test_a_refused_resume_leaves_the_model_as_it_was(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", shutil.copytree(tiny_tnews, tmp_path / "tnews")
    assert recur("finetune", *options(data, run))[0] == 0
    (run / "result.json").unlink()  # as if it had been stopped before its end
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    rows = (data / "train.json").read_text().splitlines()
    (data / "train.json").write_text("\n".join(rows[:-9]) + "\n")
    code, _, err = recur("finetune", *options(data, run), "--resume")
    assert (code, "cannot be resumed" in err) == (2, True), err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


NEGATIVE = '{"kind": "linear", "encoder_weight": -1, "linear_weight": 1, "linear_alone_weight": 1, "rows": 9}'


@pytest.mark.parametrize("content", ["", "{}", NEGATIVE])
def test_an_ensemble_of_other_content_is_refused(content: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (run / "ensemble.json").write_text(content)
    manifest = json.loads((run / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["name"] == "ensemble.json":
            entry |= {"size": len(content), "sha256": sha256_of(run / "ensemble.json")}
    (run / "manifest.json").write_text(json.dumps(manifest))
    code, out, err = recur("eval", run)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "ensemble.json: is damaged" in err


REFIT = ["finetune", "--preset", "starsaber-custom", *tiny("finetuning.epochs=1", "tokenizer.kind=char")]
"""A run whose dev rows have so simple labels that the kept model is the linear model."""


@pytest.fixture(scope="module")
def refitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose dev rows were drawn from its training file."""
    folder = tmp_path_factory.mktemp("refitted")
    rows = [f"{'good' if n % 3 else 'bad'} film {n} {'very' * (n % 2)},{'y' if n % 3 else 'n'}\n" for n in range(120)]
    (folder / "x.csv").write_text("text,label\n" + "".join(rows))
    (folder / "test.csv").write_text("text,label\n" + "".join(row.replace("film", "book") for row in rows[:40]))
    arguments = [*REFIT, "--data", folder / "x.csv", "--test", folder / "test.csv", "--output", folder / "run"]
    assert run([str(argument) for argument in arguments]) == 0
    return folder


def test_the_dev_rows_are_scored_by_the_first_fit_and_the_others_by_the_refit(recur: Recur, refitted: Path) -> None:
    folder = refitted / "run"
    result = json.loads((folder / "result.json").read_text())
    first, again = (read_linear_model(CommittedFolder(folder), 2, first_fit=first) for first in (True, False))
    assert first is not None
    assert again is not None
    assert (first.rows, again.rows, result["linear_baseline"]["refit_rows"]) == (108, 120, 120)
    code, out, err = recur("eval", folder, "--json")
    assert code == 0, err
    assert json.loads(out)["metrics"]["loss"] == pytest.approx(result["dev"]["loss"], abs=1e-6)
    code, out, err = recur("eval", folder, "--data", refitted / "test.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["metrics"]["loss"] == pytest.approx(result["test"]["loss"], abs=1e-6)
    rows = [(f"good {n}", None) for n in range(5)]
    weight = json.loads((folder / "ensemble.json").read_text())["linear_weight"]
    np.testing.assert_allclose(
        Predictor.load(folder, device="cpu").logits(rows), weight * again.logits(rows), atol=1e-5
    )
    _, _, err = recur("eval", folder, "--data", refitted / "x.csv")
    assert "120 of 120 rows are in the training rows" in err


@pytest.mark.parametrize(
    ("given", "named", "rows"), [("auto", True, None), ("true", True, 120), ("false", False, None)]
)
def test_dev_rows_of_their_own_are_fitted_on_only_if_that_is_asked(
    given: str, *, named: bool, rows: int | None, recur: Recur, refitted: Path, tmp_path: Path
) -> None:
    lines = (refitted / "x.csv").read_text().splitlines(keepends=True)
    (tmp_path / "train.csv").write_text("".join(lines[:101]))
    (tmp_path / "dev.csv").write_text("".join([lines[0], *lines[101:]]))
    data = (
        ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv"] if named else ["--data", refitted / "x.csv"]
    )
    code, _, err = recur(*REFIT, *data, "--output", tmp_path / "run", "--set", f"finetuning.refit={given}")
    assert code == 0, err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["linear_baseline"].get("refit_rows") == rows
    assert (tmp_path / "run" / "linear.first-fit.safetensors").exists() == (rows is not None)


def test_the_linear_model_beside_encoders_is_the_first_fit_on_test_rows_too(recur: Recur, tmp_path: Path) -> None:
    """Every fifth row has the wrong label. Each has a word of its own, which the first fit knows but for dev rows."""
    rows = [f"{'good' if n % 3 else 'bad'} film {n}" for n in range(120)]
    labels = ["ny"[bool(n % 3) ^ (n % 5 == 0)] for n in range(120)]
    for name, word in (("x", "film"), ("test", "book")):
        lines = [f"{row.replace('film', word)},{label}\n" for row, label in zip(rows, labels, strict=True)]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    words = ["--set", "linear.c=10", "--set", "linear.words=[1, 1]", "--set", "linear.characters=null"]
    data = ["--data", tmp_path / "x.csv", "--test", tmp_path / "test.csv", *words]
    accuracies = []
    for refit in ("false", "true"):
        run, other = tmp_path / "runs" / refit, ("--set", f"finetuning.refit={refit}")
        code, _, err = recur(*REFIT, *data, *other, "--output", run)
        assert code == 0, err
        test = json.loads((run / "result.json").read_text())["test"]
        found = read_predictions(CommittedFolder(run), "linear", "test")
        right = sum(map(str.__eq__, found.labels, found.predictions)) / len(found.labels)
        assert test["baselines"]["linear"] == test["parts"]["linear"]["accuracy"] == pytest.approx(right)
        accuracies.append((right, test["accuracy"]))
    assert accuracies[0] == (accuracies[1][0], accuracies[1][0])
    assert accuracies[1][1] > accuracies[1][0], "the model of predictions is the one that was fitted again"
    code, out, err = recur("compare", tmp_path / "runs", "--split", "test", "--json")
    assert code == 0, err
    assert [row["name"] for row in json.loads(out)["baselines"]] == ["linear model", "majority class"]


@pytest.mark.parametrize(("module", "place"), [(finetune, "write_refit"), (report, "write_predictions")])
def test_a_stop_around_the_refit_resumes_to_the_same_bytes(
    module: ModuleType, place: str, recur: Recur, refitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*REFIT, "--data", refitted / "x.csv", "--test", refitted / "test.csv", "--output", tmp_path / "run"]
    original = getattr(module, place)

    def stopped(*given: object) -> None:
        original(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, place, stopped)
        assert recur(*arguments)[0] == 130
    code, _, err = recur(*arguments, "--resume")
    assert code == 0, err
    for name in ("linear.safetensors", "linear.first-fit.safetensors", "ensemble.json", "predictions.dev.jsonl"):
        assert sha256_of(tmp_path / "run" / name) == sha256_of(refitted / "run" / name)


def test_a_training_that_stops_leaves_its_linear_model_to_predict_with(
    recur: Recur, refitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*REFIT, "--data", refitted / "x.csv", "--test", refitted / "test.csv", "--output", tmp_path / "run"]

    def stopped(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("recurcli.training.session.fit", stopped)
        assert recur(*arguments)[0] == 130
        (tmp_path / "run" / "manifest.json").unlink()  # as if it was killed while its first model was written
        code, _, err = recur(*arguments, "--resume")
    assert code == 130
    assert "dev accuracy of the linear model: " in err
    code, _, err = recur("predict", tmp_path / "run", refitted / "test.csv", "--output", tmp_path / "labels.csv")
    assert code == 0, err
    assert "its training is not finished" in err
    linear = read_linear_model(CommittedFolder(tmp_path / "run"), 2)
    assert linear is not None
    rows = [line.split(",") for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    wanted = linear.logits([(row[0], None) for row in rows]).argmax(axis=1)
    assert [row[2] for row in rows] == [("n", "y")[label] for label in wanted]
    assert recur(*arguments, "--resume")[0] == 0
    for name in ("linear.safetensors", "ensemble.json", "model.safetensors", "predictions.dev.jsonl"):
        assert sha256_of(tmp_path / "run" / name) == sha256_of(refitted / "run" / name)


def test_an_explanation_names_words_of_the_row(recur: Recur, refitted: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('text\n"a good film, indeed"\n""\nbad [red]film[/]\n')
    for ending in ("csv", "tsv", "jsonl"):
        output = tmp_path / f"y.{ending}"
        code, _, err = recur(
            "predict", refitted / "run", tmp_path / "x.csv", "--output", output, "--explain", "--resume"
        )
        assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "y.csv").read_text().splitlines()))
    lines = [json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in rows][::2] == ["y", "n"]
    assert [row["explanation"].split(" ")[0] for row in rows] == ["good", "", "bad"]
    assert [" | ".join(line["explanation"]) for line in lines] == [row["explanation"] for row in rows]
    code, _, err = recur("predict", refitted / "run", tmp_path / "x.csv", "--output", tmp_path / "y.csv", "--resume")
    assert code != 0
    assert "--explain" in err
    code, _, err = recur("predict", refitted / "run", tmp_path / "x.csv", "--format", "clue", "--explain")
    assert (code, "leave out --probabilities, --top-k, --explain" in err) == (2, True)
