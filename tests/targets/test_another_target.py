"""A kind of target from outside the package, whose labels have an order, is trained by the linear preset."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logs import Kept as KeptLog
from sources import like

from recurcli.commands.finetune import finetune
from recurcli.config import DataConfig
from recurcli.data import tasks
from recurcli.data.splits import Example, Examples, Split
from recurcli.data.tasks import Task
from recurcli.errors import UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.export.format import TrainedRun
from recurcli.export.onnx import export_onnx
from recurcli.models.data import RowsInMemory
from recurcli.preset import compose
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import Run
from recurcli.targets import TARGETS, OneLabel
from recurcli.targets.target import Probabilities, Y


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
    monkeypatch.setitem(tasks.TASKS, "sizes", Task(name="sizes", labels=levels, target=Levels(levels)))
    preset, draw = tmp_path / "sizes.yaml", np.random.default_rng(3)
    preset.write_text("extends: linear-custom\ntask: sizes\n")
    source = replace(like(), label=("level",), sha256="0")
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
