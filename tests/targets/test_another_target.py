"""A kind of target from outside the package, whose rows have several labels, is trained by the linear preset."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import Kept as KeptLog
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from sources import like

from recurcli.commands.finetune import finetune
from recurcli.config import DataConfig
from recurcli.data import tasks
from recurcli.data.splits import Example, Examples, Split
from recurcli.data.tasks import Task
from recurcli.errors import UsageError
from recurcli.evaluation.inference import Predictor
from recurcli.export.format import TrainedRun
from recurcli.export.onnx import export_onnx
from recurcli.models.data import RowsInMemory
from recurcli.preset import compose
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import Run
from recurcli.targets import TARGETS, OneLabel, Target
from recurcli.targets.target import LinearWeights, Logits, Probabilities, RowWeights, Y

WORDS = ("cold", "wet", "windy", "bright")


class Tags(Target):
    """Any number of labels a row. `y` is 1 where a row has a label, (N, C)."""

    kind = "tags"
    scores = ("accuracy", "micro_f1")

    def encode(self, cells: Iterable[str]) -> Y:
        return np.array([[label in cell.split("+") for label in self.labels] for cell in cells], np.int64)

    def is_known(self, y: Y) -> NDArray[np.bool_]:
        return np.ones(len(y), bool)

    def strata(self, y: Y) -> NDArray[np.int64]:
        return y @ (1 << np.arange(self.width))

    def linear_obstacle(self, y: Y) -> str:
        return "" if ((y.min(axis=0) == 0) & (y.max(axis=0) == 1)).all() else "rows with and without each label"

    def weights_of_labels(self, setting: Any, y: Y) -> NDArray[np.float64]:
        return np.ones(self.width)

    def loss(self, *_: Any) -> Any:
        raise NotImplementedError("the linear preset trains no encoder")

    def losses_and_gradient(self, logits: Logits, y: Y) -> tuple[NDArray[np.float64], Logits]:
        signs = 2 * y - 1
        return np.logaddexp(0, -signs * logits).sum(axis=1), -signs / (1 + np.exp(signs * logits))

    def losses_of_probabilities(self, probabilities: Probabilities, y: Y) -> NDArray[np.float64]:
        return -np.log(np.where(y == 1, probabilities, 1 - probabilities)).sum(axis=1)

    def curvature(self, logits: Logits, parts: Any, factors: Any) -> NDArray[np.float64]:
        probabilities = self.probabilities(logits)
        return np.einsum("n,nc,pnc,qnc->pq", factors, probabilities * (1 - probabilities), parts, parts)

    def fit_linear(self, features: Any, y: Y, c: float, row_weights: RowWeights = None) -> LinearWeights:
        fitted = [LinearSVC(C=c, tol=0.1, random_state=0).fit(features, own, row_weights) for own in y.T]
        weights = np.concatenate([each.coef_ for each in fitted]).T.astype(np.float32)
        return weights, np.concatenate([each.intercept_ for each in fitted]).astype(np.float32)

    def linear_loss_gradient(self, logits: Any, y: Any) -> Any:
        signs = 2.0 * y - 1
        return -2 * signs * (1 - signs * logits).clamp(min=0)

    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        return 2.0 * y.mean(axis=0) - 1

    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        return np.asarray(1 / (1 + np.exp(-logits)))

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        return (probabilities >= np.array(thresholds or 0.5)).astype(np.int64)

    def decode(self, y: Y) -> list[str]:
        return ["+".join(label for label, has in zip(self.labels, row, strict=True) if has) for row in y.tolist()]

    def hits(self, y: Y, predictions: Y) -> NDArray[np.bool_]:
        return (y == predictions).all(axis=1)

    def report(self, y: Y, predictions: Y, probabilities: Probabilities | None, **more: Any) -> dict[str, Any]:
        right = (y * predictions).sum()
        micro = 2 * right / (y.sum() + predictions.sum())
        return {"accuracy": float(self.hits(y, predictions).mean()), "micro_f1": float(micro), "loss": more.get("loss")}

    def constant(self, y: Y) -> Y:
        rows, counts = np.unique(y, axis=0, return_counts=True)
        return np.tile(rows[counts.argmax()], (len(y), 1))

    def calibration(self, probabilities: Probabilities, y: Y) -> dict[str, Any]:
        return {"ece": float(np.abs(probabilities.mean(axis=0) - y.mean(axis=0)).mean())}


def rows_of(number: int, seed: int) -> Split:
    """Rows whose text holds the words of its labels, and others."""
    draw, examples = np.random.default_rng(seed), []
    for row in range(number):
        own = [word for word in WORDS if draw.random() < 0.4]
        others = [f"w{draw.integers(60)}" for _ in range(6)]
        examples.append(Example(str(row), " ".join(draw.permutation([*own, *others])), None, "+".join(own)))
    split = Split(examples=Examples(), source=replace(like(), label="tags", sha256=f"{seed}"))
    return split.with_examples(examples, np.arange(number, dtype=np.uint64) + number * seed)


def test_a_second_kind_of_target_is_trained_and_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "tags", Tags)
    monkeypatch.setitem(tasks.TASKS, "weather", Task(name="weather", labels=WORDS, kind_of_target="tags"))
    preset = tmp_path / "weather.yaml"
    preset.write_text("extends: linear-custom\ntask: weather\n")
    request = FinetuneRequest(preset=str(preset), output=tmp_path / "run")
    rows = RowsInMemory(rows_of(400, 1), rows_of(150, 2), "str")
    result = finetune(request, KeptLog(), compose(str(preset), section="finetuning"), rows)
    assert result["kept"]["name"] == "linear model"
    assert result["dev"]["micro_f1"] > 0.95
    assert result["dev"]["accuracy"] > result["baselines"]["majority"] + 0.3


class Levels(OneLabel):
    """Labels in an order. The prediction is the median of the probabilities."""

    kind = "levels"

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        return (probabilities.cumsum(axis=1) < 0.5).sum(axis=1).clip(max=self.width - 1)


def test_another_rule_of_decision_holds_wherever_labels_are_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels, run = ("low", "mid", "high"), tmp_path / "run"
    monkeypatch.setitem(TARGETS, "levels", Levels)
    monkeypatch.setitem(tasks.TASKS, "sizes", Task(name="sizes", labels=levels, kind_of_target="levels"))
    preset, draw = tmp_path / "sizes.yaml", np.random.default_rng(3)
    preset.write_text("extends: linear-custom\ntask: sizes\n")
    source = replace(like(), label="level", sha256="0")
    splits = []
    for split in range(2):
        numbers = draw.integers(3, size=300)
        words = [["tiny", "some", "huge"][(number + (draw.random() < 0.35)) % 3] for number in numbers]
        rows = [
            Example(f"{n}", f"{word} w{draw.integers(30)}", None, levels[numbers[n]]) for n, word in enumerate(words)
        ]
        hashes = np.arange(300, dtype=np.uint64) + 300 * split
        splits.append(Split(examples=Examples(), source=source).with_examples(rows, hashes))
    request = FinetuneRequest(preset=str(preset), output=run)
    finetune(request, KeptLog(), compose(str(preset), section="finetuning"), RowsInMemory(splits[0], splits[1], "str"))
    predictor, stored = Predictor.load(run), read_predictions(Run(run), "model")
    probabilities = predictor.kept.probabilities(predictor.logits([text for text, _ in splits[1].texts]))
    assert (predictor.kept.decide(probabilities) != probabilities.argmax(axis=1)).any()
    assert {one.label for one in predictor.predict(["tiny some huge"])} <= {*levels}
    shares = [
        line["probabilities"] for line in map(json.loads, (run / "predictions.dev.jsonl").read_text().splitlines())
    ]
    medians = Levels(levels).decide(np.array([[*share.values()] for share in shares]))
    assert stored.predictions == [levels[number] for number in medians]
    assert read_predictions(Run(run), "linear").predictions == stored.predictions
    opened = TrainedRun(Run(run), predictor, tasks.task_named("sizes"), DataConfig())
    with pytest.raises(UsageError, match="labels of the kind levels are not exported"):
        export_onnx([opened], tmp_path / "onnx", KeptLog())
