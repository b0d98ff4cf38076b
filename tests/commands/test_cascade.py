"""A cascade: rows on which the linear model is sure have its answer, and no encoder reads them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import ForkServer
from logs import drop
from predicting import texts
from ranks import run_ranks
from running import Recur, lines_of, result_of
from small_runs import options, weighted
from test_export_onnx import labelled

from recurcli.commands.predict import predict
from recurcli.commands.prediction import output as prediction_output
from recurcli.commands.prediction import rows as prediction_rows
from recurcli.evaluation import decision, report
from recurcli.evaluation.decision import CHANGED, MAX_CHANGED, WORSE, KeptModel, cascade_holds, choose_cascade
from recurcli.evaluation.inference import Predictor
from recurcli.evaluation.significance import exact_interval
from recurcli.files import CommittedFolder, to_json
from recurcli.linear.model import Cascade, Ensemble
from recurcli.requests.predict import PredictRequest
from recurcli.runs.model_files import read_ensemble, write_listed

# --- its choice

PLAIN = KeptModel(Ensemble(None, 1.0, 1.0, 4000, 1.5), rows=4000)  # type: ignore[arg-type]
"""An ensemble whose linear model is not asked."""


def parts_of(rows: int, noise: float, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return random logits (N, 3) of an encoder and of a linear model, the targets (N,), and the half of each row (N,)."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(3, size=rows)
    sure = draw.exponential(4, size=(rows, 1))
    linear = sure * np.eye(3)[targets] + draw.normal(size=(rows, 3))
    encoder = 3 * np.eye(3)[targets] + noise * draw.normal(size=(rows, 3))
    return encoder, linear, targets, np.arange(rows) % 2


def found(rows: int, noise: float, seed: int = 0) -> Cascade | None:
    kept = choose_cascade(PLAIN, *parts_of(rows, noise, seed))
    assert kept.ensemble is not None
    return kept.ensemble.cascade


def test_the_threshold_is_the_smallest_that_a_loop_finds_and_the_check_is_on_the_other_half() -> None:
    encoder, linear, targets, halves = parts_of(20_000, noise=2)
    cascade = found(20_000, noise=2)
    assert cascade is not None and PLAIN.ensemble is not None
    exponents = np.exp(1.5 * linear)
    shares = np.sort(exponents / exponents.sum(axis=1, keepdims=True), axis=1)
    margins = shares[:, 2] - shares[:, 1]
    changed = (encoder + linear).argmax(axis=1) != linear.argmax(axis=1)
    joined = encoder + linear
    losses, alone = (
        -np.log(PLAIN.probabilities(logits)[np.arange(len(targets)), targets]) for logits in (joined, 1.5 * linear)
    )
    worse, thresholds = alone - losses, []
    for half in (0, 1):
        own = halves == half
        allowed = [
            margin
            for margin in [0.0, *margins[own]]
            if (changed[own] & (margins[own] > margin)).sum() <= CHANGED * own.sum()
            and worse[own & (margins > margin)].sum() / own.sum() <= WORSE * losses[own].std() / own.sum() ** 0.5
        ]
        thresholds.append(min(allowed))
    checked = margins > np.array(thresholds[::-1])[halves]
    assert cascade.margin == pytest.approx(max(thresholds), abs=1e-12)
    assert (cascade.checked, cascade.changed) == (checked.sum(), (checked & changed).sum())
    assert cascade.share == (margins > max(thresholds)).mean() > 0.3


@pytest.mark.parametrize(("rows", "noise"), [(20_000, 8.0), (900, 2.0)])
def test_too_many_changed_labels_and_too_few_rows_leave_the_ensemble_as_it_is(rows: int, noise: float) -> None:
    assert found(rows, noise) is None


def test_every_cascade_passes_its_check() -> None:
    seen = [found(20_000, noise, seed) for noise in (1.0, 2.0, 3.0) for seed in range(3)]
    assert 3 < sum(cascade is not None for cascade in seen) < len(seen)
    assert all(each is None or exact_interval(each.changed, each.checked)[1] <= MAX_CHANGED for each in seen)


def test_a_larger_log_loss_leaves_the_ensemble_as_it_is() -> None:
    _, linear, targets, halves = parts_of(20_000, noise=0.2)
    assert PLAIN.ensemble is not None
    vague = PLAIN._replace(ensemble=replace(PLAIN.ensemble, linear_alone_weight=0.05))
    assert choose_cascade(vague, linear, linear, targets, halves) == vague, "all labels stay, and all are less sure"
    by_labels = choose_cascade(vague, linear, linear, targets, halves, labels_only=True)
    assert by_labels.ensemble is not None and by_labels.ensemble.cascade is not None


@pytest.mark.parametrize(("cut", "holds"), [(0.34, True), (0.998, False)])
def test_it_holds_where_thresholds_leave_its_labels_and_not_where_they_change_many(cut: float, *, holds: bool) -> None:
    encoder, linear, targets, halves = parts_of(20_000, noise=0.5)
    kept = choose_cascade(PLAIN, encoder, linear, targets, halves, labels_only=True)
    rest = (1 - cut) / 2
    thresholds = {"thresholds": {"a": cut, "b": rest, "c": rest}}
    assert cascade_holds(kept, encoder, linear)
    assert cascade_holds(kept._replace(thresholds=thresholds), encoder, linear) is holds


def test_rows_of_one_half_are_no_ground_to_choose_it_on() -> None:
    encoder, linear, targets, halves = parts_of(20_000, noise=0.5)
    with pytest.raises(AssertionError, match="rows in both halves"):
        choose_cascade(PLAIN, encoder, linear, targets, 0 * halves)


def test_labels_alone_are_checked_where_probabilities_need_not_stay() -> None:
    encoder, linear, targets, halves = parts_of(20_000, noise=0.5)
    kept = choose_cascade(PLAIN, encoder, linear, targets, halves)
    by_labels = choose_cascade(PLAIN, encoder, linear, targets, halves, labels_only=True)
    shares = [
        each.ensemble.cascade.share if each.ensemble and each.ensemble.cascade else 0 for each in (kept, by_labels)
    ]
    assert shares[0] < shares[1]


# --- its use


def allow_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a training of few rows keep an ensemble with a cascade, whatever that changes."""
    for name, allowed in (("MAX_CHANGED", 1.0), ("CHANGED", 0.5), ("WORSE", np.inf), ("MAX_WORSE", np.inf)):
        monkeypatch.setattr(decision, name, allowed)
    monkeypatch.setattr("recurcli.linear.ensemble.STANDARD_ERRORS", -np.inf)


ROWS = [(text, None) for text in texts(300)]


@pytest.fixture(scope="module")
def cascaded(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose linear model answers half of the rows alone."""
    run = weighted(trained, tmp_path_factory.mktemp("cascaded") / "run", 0.7, 0.9)
    ensemble = read_ensemble(CommittedFolder(run), 15)
    assert ensemble is not None
    middle = float(np.median(ensemble.margins(ensemble.linear.logits(ROWS))))
    cascade = Cascade(margin=middle, share=0.5, checked=900, changed=0)
    write_listed(run / "ensemble.json", to_json(replace(ensemble, cascade=cascade).to_json()))
    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text, _ in ROWS))
    return tmp_path / "x.txt"


def test_predictions_are_those_of_both_models_on_all_rows(cascaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor.load(cascaded, device="cpu")
    ensemble = predictor.ensemble
    assert ensemble is not None
    linear, encoder = ensemble.linear.logits(ROWS), predictor.encoder_logits(predictor.encode(ROWS))
    whole = 0.7 * encoder + 0.9 * linear
    alone = ensemble.margins(linear) > ensemble.cascade.margin  # type: ignore[union-attr]
    whole[alone] = ensemble.linear_alone_weight * linear[alone]
    read: list[int] = []

    def encode(self: Predictor, rows: Sequence[Any]) -> Any:
        read.append(len(rows))
        return tokens(self, rows)

    tokens = Predictor.encode
    monkeypatch.setattr(Predictor, "encode", encode)
    np.testing.assert_allclose(predictor.logits_of_pairs(ROWS), whole, atol=1e-5)
    assert read == [(~alone).sum()] and 100 < read[0] < 200
    assert predictor.answered == alone.sum()


def test_predict_says_what_the_encoder_read_and_goes_on_after_a_stop(
    cascaded: Path, source: Path, recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_rows, "WINDOW", 64)
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    line = ["predict", cascaded, source, "--no-header", "--probabilities", "--output"]
    _, err = recur.ok(*line, tmp_path / "whole.tsv")
    [said] = [words for words in err.splitlines() if "the encoder read" in words]
    request = PredictRequest(run=cascaded, inputs=[source], output=tmp_path / "y.tsv", probabilities=True)
    request = replace(request, columns=replace(request.columns, header=False))
    drop(predict, request, lambda state: state.done > 200)
    assert said in recur.ok(*line, tmp_path / "y.tsv", "--resume")[1]
    assert (tmp_path / "y.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


def test_other_forms_of_the_model_have_the_same_answers(
    cascaded: Path, source: Path, recur: Recur, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    out, _ = recur.ok("predict", cascaded, source, "--no-header", "--quiet")
    rows = [line.split("\t")[-2:] for line in out.splitlines()]
    recur.ok("export", cascaded, "--format", "onnx", "--output", tmp_path / "onnx")
    done = [line.split("\t") for line in labelled(tmp_path / "onnx", source.read_bytes()).stdout.decode().splitlines()]
    loaded = Predictor.load(cascaded, device="cpu").predict([text for text, _ in ROWS])
    assert [label for label, _ in done] == [label for label, _ in rows] == [each.label for each in loaded]
    scores = [float(score) for _, score in rows]
    assert [float(score) for _, score in done] == pytest.approx(scores, abs=1e-4)
    assert [each.score for each in loaded] == pytest.approx(scores, abs=1e-4)


def test_eval_scores_what_predict_answers(cascaded: Path, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    found = recur.json("eval", cascaded, "--errors", tmp_path / "errors.tsv")
    rows = lines_of(tiny_tnews / "dev.json")
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = recur.ok("predict", cascaded, tmp_path / "x.jsonl", "--quiet")
    right = [json.loads(line)["prediction"] == row["label"] for line, row in zip(out.splitlines(), rows, strict=True)]
    assert found["metrics"]["accuracy"] == np.mean(right)


@pytest.mark.slow
def test_processes_share_the_rows_that_are_left(forks: ForkServer, cascaded: Path, source: Path, recur: Recur) -> None:
    line = ("predict", cascaded, source, "--no-header", "--probabilities", "--quiet", "--batch-size", 7)
    ended = run_ranks(forks, *line)
    assert [end.code for end in ended] == [0, 0], ended[0].err
    assert ended[0].out == recur.ok(*line)[0]


# --- its training


@pytest.mark.parametrize("thresholds", ["null", "macro_f1"])
def test_a_training_chooses_it_and_scores_by_it(
    thresholds: str, recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_all(monkeypatch)
    run = tmp_path / "run"
    settings = ("finetuning.max_steps=6", "finetuning.cascade=labels", f"finetuning.thresholds={thresholds}")
    out, _ = recur.ok("finetune", *[word for word in options(tiny_tnews, run, *settings) if word != "--quiet"])
    result = result_of(run)
    cascade = result["ensemble"]["cascade"]
    assert cascade["share"] > 0
    said = f"The linear model alone answers {100 * cascade['share']:.1f} % of the dev rows, and changed"
    again = recur.json("eval", run, "--report", tmp_path / "page.html")
    card, page = (path.read_text(encoding="utf-8") for path in (run / "README.md", tmp_path / "page.html"))
    assert said in " ".join(out.split()) and said in card and said in page
    assert again["metrics"]["accuracy"] == result["dev"]["accuracy"]
    assert again["metrics"]["loss"] == pytest.approx(result["dev"]["loss"], abs=1e-6)
    lines = [json.loads(line) for line in (run / "predictions.dev.jsonl").read_text().splitlines()]
    alone = sum(
        max(line["probabilities"], key=line["probabilities"].get)
        == max(line["linear_probabilities"], key=line["linear_probabilities"].get)
        for line in lines
    )
    assert alone >= cascade["share"] * len(lines)


def test_thresholds_that_it_would_change_turn_it_off(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_all(monkeypatch)
    monkeypatch.setattr(report, "cascade_holds", lambda kept, *logits: kept.ensemble.cascade is None)
    settings = ("finetuning.max_steps=6", "finetuning.cascade=auto", "finetuning.thresholds=macro_f1")
    result = recur.json("finetune", *options(tiny_tnews, tmp_path / "run", *settings))
    assert result["ensemble"]["cascade"] is None
    assert result["thresholds"]["metric"] == "macro_f1"


def test_thresholds_that_it_does_not_hold_with_are_not_saved(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_all(monkeypatch)
    run = tmp_path / "run"
    recur.ok("finetune", *options(tiny_tnews, run, "finetuning.max_steps=6", "finetuning.cascade=labels"))
    recur.ok("eval", run, "--fit-thresholds", "macro_f1", "--save")
    monkeypatch.setattr("recurcli.commands.evaluate.cascade_holds", lambda kept, *logits: False)
    _, err = recur.ok("eval", run, "--fit-thresholds", "macro_f1")
    assert "the linear model alone gives other labels than the ensemble, on more of the rows that it answers" in err
    recur.refused(2, "train with finetuning.thresholds", "eval", run, "--fit-thresholds", "macro_f1", "--save")


def test_a_trial_of_tune_chooses_it_on_both_halves_of_a_half(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_all(monkeypatch)
    chosen: list[Any] = []
    honest = decision.choose_cascade

    def counted(*parts: Any, **more: Any) -> Any:
        chosen.append(np.unique(parts[4]).tolist())
        return honest(*parts, **more)

    monkeypatch.setattr(report, "choose_cascade", counted)
    settings = options(tiny_tnews, tmp_path / "s", "finetuning.max_steps=6", "finetuning.cascade=labels")
    settings.remove("--keep-checkpoints")
    recur.ok("tune", *settings, "--trials", "1", "--range", "finetuning.weight_decay=0.01..0.02")
    assert len(chosen) == 3 and all(halves == [0, 1] for halves in chosen)
