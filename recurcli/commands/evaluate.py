"""`recur eval`: the scores of a trained classifier on labelled rows."""

from pathlib import Path
from typing import Any

import numpy as np

from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.tasks import task_named
from recurcli.errors import DataError
from recurcli.evaluation.inference import cross_entropy
from recurcli.evaluation.metrics import classification_report
from recurcli.evaluation.predictor import Predictor
from recurcli.preset.strict_yaml import read_mapping
from recurcli.validation import parse_config


def data_config(run: Path, data: Path | None) -> DataConfig:
    """How the run read its data, with another place for them if `data` says so."""
    values, _ = read_mapping(run / "preset.yaml")
    config = dict(values.get("data") or {})
    if data is not None:
        config["path"] = str(data.expanduser().absolute())
    elif config.get("path") is not None and not Path(config["path"]).exists():
        raise DataError(f"{config['path']}: the data of {run} are gone from there; say where they are with --data")
    return parse_config(DataConfig, config)


def evaluate(
    run: Path,
    *,
    split: str = "dev",
    data: Path | None = None,
    device: str | None = None,
    precision: Any = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """The report of the model in `run` on a split; DataError if the split's rows carry no labels."""
    predictor = Predictor.load(run, device=device or "auto", precision=precision or "fp32", batch_size=batch_size or 64)
    task = task_named(predictor.model.config.task)
    rows = load_split(task, split, data_config(run, data))
    labels = [example.label for example in rows.examples]
    if any(label is None for label in labels):
        raise DataError(
            f"{rows.path or split}: the {split} rows of {task.name} carry no labels; `recur export` predicts them"
        )
    known = [str(label) for label in labels]
    scores = predictor.scores([(example.text, example.pair) for example in rows.examples])
    targets = np.array([task.labels.index(label) for label in known])
    predictions = [task.labels[index] for index in scores.argmax(axis=1)]
    report = classification_report(known, predictions, task.labels, loss=cross_entropy(scores, targets))
    return {
        "run": str(run),
        "split": split,
        "rows": len(known),
        "truncated": predictor.truncated,
        "path": None if rows.path is None else str(rows.path),
        "sha256": rows.sha256,
        "report": report.to_json(),
        **({"floors": dict(task.floors)} if task.floors and split == "dev" else {}),
    }
