"""All that reads a stored model computes in fp32 unless told otherwise, whatever the hardware and the training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Recur, result_of
from tiny_task import LABELS, rows, tiny

import recurcli
from recurcli import device
from recurcli.cli import run
from recurcli.commands.export import FORMATS
from recurcli.export.format import ExportFormat, TrainedRun
from recurcli.files import OutputKind
from recurcli.log import Log

PRECISION = {name: ["--precision", name] for name in ("fp32", "bf16")}
TEXTS = ["".join(LABELS.values())[n % 7 : n % 7 + n % 9 + 1] for n in range(30)]


@pytest.fixture(autouse=True)
def _hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "multiplies_bf16", lambda device: True)


@pytest.fixture(scope="module")
def in_bf16(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an encoder alone that was trained in bf16."""
    path = tmp_path_factory.mktemp("runs") / "x"
    line = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", path, "--quiet"]
    settings = tiny("finetuning.max_steps=12", "ensemble=null", "runtime.precision=bf16")
    assert run([*map(str, line), *settings]) == 0
    return path


def test_load(in_bf16: Path) -> None:
    by_default = recurcli.load(in_bf16).logits(TEXTS)
    assert np.array_equal(by_default, recurcli.load(in_bf16, precision="fp32").logits(TEXTS))
    for precision in ("bf16", "auto"):
        told = recurcli.load(in_bf16, precision=precision).logits(TEXTS)
        assert 0 < np.abs(told - by_default).max() < 0.1


def test_predict(recur: Recur, in_bf16: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.txt"
    source.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    line = ["predict", in_bf16, source, "--no-header", "--format", "jsonl"]
    by_default, fp32, bf16 = (recur.ok(*line, *more)[0] for more in ([], PRECISION["fp32"], PRECISION["bf16"]))
    assert by_default == fp32 != bf16
    scores = [json.loads(row)["score"] for row in by_default.splitlines()]
    assert scores == pytest.approx([row.score for row in recurcli.load(in_bf16).predict(TEXTS)], abs=1e-6)


def test_eval_and_the_last_evaluation_of_a_training(recur: Recur, in_bf16: Path) -> None:
    found = [recur.json("eval", in_bf16, *more)["metrics"]["loss"] for more in ([], *PRECISION.values())]
    by_default, fp32, bf16 = found
    assert by_default == fp32 != bf16
    result = result_of(in_bf16)
    assert result["machine"]["precision"] == "bf16"
    assert result["dev"]["loss"] == pytest.approx(fp32, abs=1e-6) != bf16


def export_states(runs: Sequence[TrainedRun], output: Path, log: Log) -> dict[str, Any]:
    """A format of the test: the sum of the encoder's states of TEXTS."""
    states: list[Any] = []
    assert runs[0].predictor.encoder is not None
    runs[0].predictor.encoder.model.encoder.register_forward_hook(
        lambda module, arguments, result: states.append(result.sum().item())
    )
    runs[0].predictor.logits_of_pairs([(text, None) for text in TEXTS])
    output.write_text(json.dumps(states))
    return {"files": [{"name": output.name, "rows": 1, "from": "", "run": ""}]}


def test_export(recur: Recur, in_bf16: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "states", ExportFormat(export_states, OutputKind("states", (".json",))))
    found = {}
    for name, more in {"default": [], **PRECISION}.items():
        path = tmp_path / f"{name}.json"
        recur.ok("export", in_bf16, "--format", "states", "--output", path, "--quiet", *more)
        found[name] = path.read_text()
    assert found["default"] == found["fp32"] != found["bf16"]


@pytest.mark.filterwarnings("ignore:every dev row is predicted as")
def test_the_estimator(tmp_path: Path) -> None:
    made = rows(60, seed=5, labelled=True)
    sizes = {"encoder.hidden_size": 16, "encoder.num_layers": 1, "data.max_length": 16, "finetuning.max_steps": 2}
    parts = {"tokenizer.kind": "char", "ensemble": None}
    classifier = recurcli.TextClassifier(settings={**sizes, **parts}, seed=1)
    classifier.fit([str(row["sentence"]) for row in made], [str(row["label"]) for row in made])
    classifier.save(tmp_path / "x")
    assert result_of(tmp_path / "x")["machine"]["precision"] == "bf16"
    fp32 = [list(row.probabilities.values()) for row in recurcli.load(tmp_path / "x", precision="fp32").predict(TEXTS)]
    assert np.array_equal(classifier.predict_proba(TEXTS), fp32)
