"""What a training says of its end: why it stopped early, and whether more epochs may help."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from running import Recur
from tiny_task import tiny

from recurcli.evaluation.predictor import Predictor
from recurcli.ops.losses import multiclass_hinge


def train(recur: Recur, data: Path, output: Path, *settings: str) -> tuple[str, str, list[float]]:
    """Its stdout, its stderr, and the dev metric of each evaluation."""
    small = tiny("ensemble=null", "finetuning.linear_baseline=false", "finetuning.metric=macro_f1", *settings)
    out, err = recur.ok(
        "finetune", "--preset", "starsaber-tnews", "--data", data, "--output", output, *small, "--verbose"
    )
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return out, err, [line["dev_metric"] for line in lines if "dev_metric" in line]


def test_an_early_stop_names_the_metric_and_the_evaluations(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("finetuning.epochs=9", "finetuning.patience=2", "finetuning.learning_rate=0.5")
    out, err, metrics = train(recur, tiny_tnews, tmp_path / "x", *settings)
    result = json.loads((tmp_path / "x" / "result.json").read_text())
    assert result["steps"] < 72
    assert result["early_stopping"] == {"metric": "macro_f1", "best": max(metrics), "evaluations": 2, "steps": 72}
    assert f"stopped early at step {result['steps']} of 72: the model's dev macro F1 did not rise in 2" in err
    assert f"since step {result['best_step']}, where it was {100 * max(metrics):.1f} (finetuning.patience 2)" in err
    table = " ".join(out.split())
    assert (
        f"steps {result['steps']} ({result['steps'] / 8:.1f} epochs; best dev macro F1 at step {result['best_step']})"
        in table
    )


def test_the_trained_loss_decides_between_equal_dev_metrics(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = tiny(
        "ensemble=null", "finetuning.loss=hinge", "finetuning.label_smoothing=0", "finetuning.class_weights={'100': 3}"
    )
    source = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", "--keep-checkpoints"]
    recur.ok("finetune", *source, *settings)
    last = max((tmp_path / "x" / "checkpoints").glob("step-*"))
    rows = [json.loads(line) for line in (tiny_tnews / "dev.json").read_text().splitlines()]
    predictor = Predictor.load(tmp_path / "x")
    logits = torch.from_numpy(predictor.logits([(row["sentence"], None) for row in rows]))
    targets = torch.tensor([predictor.labels.index(row["label"]) for row in rows])
    weights = np.where(targets == predictor.labels.index("100"), 3.0, 1.0)
    expected = np.average(multiclass_hinge(logits, targets), weights=weights)
    assert json.loads((last / "state.json").read_text())["state"]["best_dev_loss"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rate", "length", "rises"),
    [("2e-3", "epochs=2", True), ("2e-3", "max_steps=16", True), ("1e-7", "epochs=2", False)],
)
def test_more_epochs_are_advised_only_if_the_last_model_is_strictly_better(
    rate: str, length: str, rises: bool, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = (f"finetuning.{length}", f"finetuning.learning_rate={rate}", "finetuning.lr_scheduler=constant")
    _, err, metrics = train(recur, tiny_tnews, tmp_path / "x", *settings)
    result = json.loads((tmp_path / "x" / "result.json").read_text())
    assert result["early_stopping"] is None
    assert result["best_step"] == result["steps"]  # by the dev loss, where the metrics tie
    assert (metrics[-1] > metrics[0]) is rises
    assert (f"more finetuning.{length.partition('=')[0]} may give a better one" in err) is rises
