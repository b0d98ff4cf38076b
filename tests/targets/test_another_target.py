"""A kind of target from outside the package, whose rows have several labels, is trained by the linear preset."""

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
from recurcli.data import tasks
from recurcli.data.splits import Example, Examples, Split
from recurcli.data.tasks import Task
from recurcli.models.data import RowsInMemory
from recurcli.preset import compose
from recurcli.requests.training import FinetuneRequest
from recurcli.targets import TARGETS, Target
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

    def row_weights(self, weights: NDArray[np.float64], y: Y) -> NDArray[np.float64]:
        return np.ones(len(y))

    def loss(self, *_: Any) -> Any:
        raise NotImplementedError("the linear preset trains no encoder")

    def soften(self, *_: Any) -> Any:
        raise NotImplementedError("the test has no teacher")

    def teacher_loss(self, *_: Any) -> Any:
        raise NotImplementedError("the test has no teacher")

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

    def default_bias(self, bias: NDArray[np.float32], y: Y) -> NDArray[np.float32]:
        return bias

    def constant_logits(self, y: Y) -> NDArray[np.float64]:
        return 2.0 * y.mean(axis=0) - 1

    def probabilities(self, logits: Logits, rows: int = 0) -> Probabilities:
        return np.asarray(1 / (1 + np.exp(-logits)))

    def decide(self, probabilities: Probabilities, thresholds: Sequence[float] = ()) -> Y:
        return (probabilities >= np.array(thresholds or 0.5)).astype(np.int64)

    def fit_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> dict[str, Any]:
        raise NotImplementedError("the test asks for none")

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

    def intervals(self, y: Y, predictions: Y) -> dict[str, list[float] | None]:
        return {}


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
