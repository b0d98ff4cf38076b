"""A model with an ensemble: what is joined, what stays as it is, and what is refused."""

import csv
import json
import operator
import shutil
from pathlib import Path

import numpy as np
import pytest
from forked import ForkServer
from predicting import texts
from ranks import run_ranks
from running import Recur, lines_of, result_of
from small_runs import copy_of, fingerprint, kept_of, options, weighted
from tiny_task import tiny, write_rows

from recurcli.cli import run
from recurcli.evaluation import inference
from recurcli.evaluation.predictor import Predictor
from recurcli.files import CommittedFolder, extend_manifest, sha256_of
from recurcli.models import choice
from recurcli.runs.model_files import read_linear_model
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import Run
from recurcli.targets.one_label import mixed_share

SIX_STEPS = "finetuning.max_steps=6"
ROWS = [("鼠牛虎", None), ("", None), ("猴" * 40, None), ("龙 蛇 nothing known", None), ("狗猪鼠牛", None)]


def test_the_result_has_the_scores_of_both_parts_and_of_the_ensemble(recur: Recur, trained: Path) -> None:
    result = result_of(trained)
    assert result["kept"] == json.loads((trained / "kept.json").read_text())
    assert result["parts"].keys() == {"encoder", "linear"}
    assert result["baselines"]["linear"] == result["parts"]["linear"]["accuracy"]
    assert result["dev"]["accuracy"] >= max(part["accuracy"] for part in result["parts"].values())
    assert "| encoder | " in (trained / "README.md").read_text()
    again = recur.json("eval", trained)
    for part in ("encoder", "linear"):
        assert again["parts"][part] == pytest.approx(result["parts"][part], abs=1e-6)
    assert again["metrics"]["accuracy"] == result["dev"]["accuracy"]
    assert "\n    encoder " in recur.ok("eval", trained)[0]


def test_dev_predictions_have_the_probabilities_of_both_parts(trained: Path) -> None:
    weights = kept_of(trained).weights
    for line in map(json.loads, (trained / "predictions.dev.jsonl").read_text().splitlines()):
        names = ("encoder_probabilities", "linear_probabilities", "probabilities")
        mixed = mixed_share(24, 15)  # the dev rows and the classes
        encoder, linear, both = ((np.array([*line[name].values()]) - mixed / 15) / (1 - mixed) for name in names)
        joint = encoder ** weights["encoder"] * linear ** weights["linear"]
        np.testing.assert_allclose(both, joint / joint.sum(), atol=1e-5)
        assert line["prediction"] == max(line["probabilities"], key=line["probabilities"].__getitem__)


@pytest.fixture(scope="module")
def joined(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps with an ensemble."""
    path = tmp_path_factory.mktemp("joined") / "run"
    assert run(["finetune", *options(tiny_tnews, path, SIX_STEPS)]) == 0
    return path


def test_an_ensemble_leaves_the_encoder_as_it_is(recur: Recur, joined: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    recur.ok("finetune", *options(tiny_tnews, tmp_path / "without", SIX_STEPS, "ensemble=null"))
    found, expected = fingerprint(tmp_path / "without"), fingerprint(joined)
    for name in ("model.safetensors", "losses"):
        assert found[name] == expected[name]
    assert [kept_of(run).alone.keys() for run in (tmp_path / "without", joined)] == [{"encoder"}, {"encoder", "linear"}]


def test_evaluations_are_shown_beside_the_linear_models_score(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    shown = [option for option in options(tiny_tnews, tmp_path / "run") if option != "--quiet"]
    _, err = recur.ok("finetune", *shown, "--verbose")
    score = result_of(tmp_path / "run")["linear_baseline"]["dev"]["accuracy"]
    assert f", linear model {100 * score:.1f})" in err


def test_logits_are_the_weighted_sum_whatever_the_batch(trained: Path, tmp_path: Path) -> None:
    run = weighted(trained, tmp_path / "run", 0.7, 1.3)
    whole = Predictor.load(run, device="cpu").logits(ROWS)
    encoder = Predictor.load(weighted(trained, tmp_path / "e", 1, 0), device="cpu").logits(ROWS)
    linear = Predictor.load(weighted(trained, tmp_path / "l", 0, 1), device="cpu").logits(ROWS)
    np.testing.assert_allclose(whole, 0.7 * encoder + 1.3 * linear)
    one = Predictor.load(run, device="cpu", batch_size=1)
    np.testing.assert_allclose(np.concatenate([one.logits([row]) for row in ROWS]), whole, atol=1e-5)


def test_fast_is_the_linear_model(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = kept_of(trained).alone["linear"]
    assert 0 < alone != kept_of(trained).weights["linear"]
    kept = weighted(trained, tmp_path / "kept", 0, alone)
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in texts(50)))
    line = (tmp_path / "x.txt", "--no-header", "--probabilities")
    monkeypatch.setattr(inference, "compute_logits", None)
    out, _ = recur.ok("predict", trained, *line, "--fast")
    for more in ((), ("--fast",)):
        assert recur.ok("predict", kept, *line, *more)[0] == out


def test_fast_and_explanations_need_a_linear_model(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = weighted(trained, tmp_path / "run", 1, 0)
    (tmp_path / "x.csv").write_text("sentence\na\n")
    for option, line in (
        ("--fast", ("predict", run)),
        ("--fast", ("export", run, "--format", "onnx", "--output", tmp_path / "x")),
        ("--explain", ("predict", run, tmp_path / "x.csv")),
    ):
        err = recur.refused(2, str(run), *line, option)
        assert option in err and "predict without" not in err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_processes_share_the_linear_model(recur: Recur, forks: ForkServer, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in texts(300)))
    run = weighted(trained, tmp_path / "run", 0, 1.3)
    line = ("predict", run, tmp_path / "x.txt", "--no-header", "--probabilities", "--quiet", "--batch-size", 7)
    ended = run_ranks(forks, *line)
    assert [end.code for end in ended] == [0, 0], ended[0].err
    assert ended[0].out == recur.ok(*line)[0]


def test_without_a_linear_model_the_encoder_is_trained(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    data = shutil.copytree(tiny_tnews, tmp_path / "tnews")
    write_rows(data / "train.json", [{**row, "label": "100"} for row in lines_of(data / "train.json")])
    assert recur.json("finetune", *options(data, tmp_path / "run", SIX_STEPS))["baselines"].keys() == {"majority"}
    assert kept_of(tmp_path / "run").alone.keys() == {"encoder"}


def test_a_refused_resume_leaves_the_model_as_is(recur: Recur, joined: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run, data = shutil.copytree(joined, tmp_path / "run"), shutil.copytree(tiny_tnews, tmp_path / "tnews")
    (run / "result.json").unlink()  # as if it had been stopped before its end
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    write_rows(data / "train.json", lines_of(data / "train.json")[:-9])
    recur.refused(2, "cannot be resumed: train", "finetune", *options(data, run, SIX_STEPS), "--resume")
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


WEIGHTS = (
    '{"name": "ensemble", "weights": {"encoder": %s, "linear": 1}, "alone": {"encoder": 1, "linear": 1}, '
    '"temperature": 1, "rows": 9}'
)


OTHER_NAME = (WEIGHTS % 1).replace('"name": "ensemble"', '"name": "linear model"')
NOT_ALONE = (WEIGHTS % 1).replace('"alone": {"encoder": 1, "linear": 1}', '"alone": {"encoder": 1}')


@pytest.mark.parametrize("content", ["", "{}", WEIGHTS % -1, WEIGHTS % "NaN", OTHER_NAME, NOT_ALONE])
def test_an_ensemble_of_other_content_is_refused(content: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    (run / "kept.json").write_text(content)
    extend_manifest(run, "kept.json")
    recur.refused(4, "kept.json: is damaged", "eval", run)


REFIT = ["finetune", "--preset", "starsaber-custom", *tiny("finetuning.max_steps=2", "tokenizer.kind=char")]


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
    result = result_of(folder)
    first, again = (read_linear_model(CommittedFolder(folder), 2, first_fit=first) for first in (True, False))
    assert first is not None and again is not None
    assert (first.rows, again.rows, result["linear_baseline"]["refit_rows"]) == (108, 120, 120)
    for split, more in (("dev", ()), ("test", ("--data", refitted / "test.csv"))):
        loss = recur.json("eval", folder, *more)["metrics"]["loss"]
        assert loss == pytest.approx(result[split]["loss"], abs=1e-6)
    rows = [(f"good {n}", None) for n in range(5)]
    kept, predictor = kept_of(folder), Predictor.load(folder, device="cpu")
    assert predictor.encoder is not None
    encoder = predictor.encoder.logits(predictor.encoder.encode(rows))
    expected = kept.logits({"encoder": encoder, "linear": again.logits(rows)})
    np.testing.assert_allclose(predictor.logits(rows), expected, atol=1e-5)
    _, err = recur.ok("eval", folder, "--data", refitted / "x.csv")
    assert "120 of 120 rows are in the training rows" in err


@pytest.mark.parametrize(("given", "rows"), [("auto", None), ("true", 120)])
def test_a_dev_file_is_fitted_on_if_asked(
    given: str, rows: int | None, recur: Recur, refitted: Path, tmp_path: Path
) -> None:
    lines = (refitted / "x.csv").read_text().splitlines(keepends=True)
    (tmp_path / "train.csv").write_text("".join(lines[:101]))
    (tmp_path / "dev.csv").write_text("".join([lines[0], *lines[101:]]))
    data = ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--output", tmp_path / "run")
    recur.ok(*REFIT, *data, "--set", f"finetuning.refit={given}")
    assert result_of(tmp_path / "run")["linear_baseline"].get("refit_rows") == rows
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
        run = tmp_path / "runs" / refit
        recur.ok(*REFIT, *data, "--set", f"finetuning.refit={refit}", "--output", run)
        assert (run / "linear.first-fit.safetensors").exists() == (refit == "true")
        test = result_of(run)["test"]
        found = read_predictions(Run(run), "linear", "test")
        right = sum(map(operator.eq, found.labels, found.predictions)) / len(found.labels)
        assert test["baselines"]["linear"] == test["parts"]["linear"]["accuracy"] == pytest.approx(right)
        accuracies.append((right, test["accuracy"]))
    assert accuracies[0] == (accuracies[1][0], accuracies[1][0])
    assert accuracies[1][1] > accuracies[1][0], "the model of predictions is the one that was fitted again"
    found = recur.json("compare", tmp_path / "runs", "--split", "test")
    assert [row["name"] for row in found["baselines"]] == ["linear model", "majority class"]


@pytest.mark.parametrize("place", ["write_refit", "write_predictions"])
def test_a_stop_around_the_refit_resumes_to_the_same_bytes(
    place: str, recur: Recur, refitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*REFIT, "--data", refitted / "x.csv", "--test", refitted / "test.csv", "--output", tmp_path / "run"]
    original = getattr(choice, place)

    def stopped(*given: object, **options: object) -> None:
        original(*given, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(choice, place, stopped)
        assert recur(*arguments)[0] == 130
    recur.ok(*arguments, "--resume")
    for name in ("linear.safetensors", "linear.first-fit.safetensors", "kept.json", "predictions.dev.jsonl"):
        assert sha256_of(tmp_path / "run" / name) == sha256_of(refitted / "run" / name)


def test_a_stopped_run_predicts(recur: Recur, refitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    arguments = [*REFIT, "--data", refitted / "x.csv", "--test", refitted / "test.csv", "--output", run]

    def stopped(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("recurcli.training.session.fit", stopped)
        assert recur(*arguments)[0] == 130
        (run / "manifest.json").unlink()  # as if it was killed while its first model was written
        code, _, err = recur(*arguments, "--resume")
    assert (code, "dev accuracy of the linear model: " in err) == (130, True)
    _, err = recur.ok("predict", run, refitted / "test.csv", "--output", tmp_path / "labels.csv")
    assert "its training is not finished" in err
    linear = read_linear_model(CommittedFolder(run), 2)
    assert linear is not None
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
    wanted = linear.logits([(row["text"], None) for row in rows]).argmax(axis=1)
    assert [row["prediction"] for row in rows] == [("n", "y")[label] for label in wanted]
    recur.ok(*arguments, "--resume")
    for name in ("linear.safetensors", "kept.json", "model.safetensors", "predictions.dev.jsonl"):
        assert sha256_of(run / name) == sha256_of(refitted / "run" / name)


def test_an_explanation_names_words_of_the_row(recur: Recur, refitted: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('text\n"a good film, indeed"\n""\nbad [red]film[/]\n')
    line = ("predict", refitted / "run", tmp_path / "x.csv")
    for ending in ("csv", "tsv", "jsonl"):
        recur.ok(*line, "--output", tmp_path / f"y.{ending}", "--explain")
    rows = list(csv.DictReader((tmp_path / "y.csv").read_text().splitlines()))
    assert [row["prediction"] for row in rows][::2] == ["y", "n"]
    assert [row["explanation"].split(" ")[0] for row in rows] == ["good", "", "bad"]
    lines = lines_of(tmp_path / "y.jsonl")
    assert [" | ".join(line["explanation"]) for line in lines] == [row["explanation"] for row in rows]
    recur.refused(2, "leave out --columns, --probabilities, --top-k, --explain", *line, "--format", "clue", "--explain")
