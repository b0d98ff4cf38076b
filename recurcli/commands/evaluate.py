"""`recur eval`: the scores of a trained classifier on labelled rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from recurcli.commands.events import RowsDone, counted
from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.inference import cross_entropy
from recurcli.evaluation.metrics import classification_report
from recurcli.evaluation.predictor import Predictor
from recurcli.model.device import Precision
from recurcli.preset.strict_yaml import read_mapping
from recurcli.training.events import Finished, Note
from recurcli.validation import parse_config


def data_config(run: Path, data: Path | None) -> DataConfig:
    """How the run read its data, with another place for them if `data` says so.

    Raises ModelError if the run's preset cannot be read, DataError if its data are gone.
    """
    path = run / "preset.yaml"
    try:
        values, _ = read_mapping(path)
        config = parse_config(DataConfig, values.get("data") or {})
    except UsageError as error:
        raise ModelError(str(error) if str(error).startswith(str(path)) else f"{path}: data: {error}") from None
    if data is not None:
        return replace(config, path=str(data.expanduser().absolute()))
    if config.path is not None and not Path(config.path).exists():
        raise DataError(f"{config.path}: the data of {run} are gone from there; say where they are with --data")
    return config


def task_of(run: Path, predictor: Predictor) -> Task:
    """The task that the model was trained on; ModelError if this recur does not know it, or knows other labels."""
    try:
        task = task_named(predictor.model.config.task)
    except UsageError as error:
        raise ModelError(f"{run / 'config.json'}: {error}") from None
    if task.labels != predictor.labels:
        raise ModelError(f"{run / 'config.json'}: its labels are not those of {task.name}")
    return task


def evaluate(
    run: Path,
    *,
    split: str = "dev",
    data: Path | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
) -> Iterator[Note | RowsDone | Finished]:
    """Score the model in `run` on a split: yields notes, the rows done, and the report at last.

    Raises DataError if the split's rows carry no labels.
    """
    predictor = Predictor.load(run, device=device, precision=precision, batch_size=batch_size)
    task = task_of(run, predictor)
    if not task.has_labels(split):
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    rows = load_split(task, split, data_config(run, data))
    labels = [str(example.label) for example in rows.examples]
    if rows.bad:
        yield Note(f"{len(rows.bad):,} bad rows skipped, the first: {rows.bad[0]}", "warning")
    if rows.dropped:
        yield Note(f"{rows.dropped:,} rows without a majority label ('-') dropped")
    texts = [(example.text, example.pair) for example in rows.examples]
    scores = yield from counted(predictor.scoring(texts), len(texts))
    if predictor.truncated:
        yield Note(f"{predictor.truncated:,} rows were cut to the model's {predictor.model.config.max_length} tokens")
    targets = np.array([task.labels.index(label) for label in labels])
    predictions = [task.labels[index] for index in scores.argmax(axis=1)]
    report = classification_report(labels, predictions, task.labels, loss=cross_entropy(scores, targets))
    yield Finished(
        {
            "run": str(run),
            "task": task.name,
            "split": split,
            "rows": len(labels),
            "truncated": predictor.truncated,
            "dropped": rows.dropped,
            "path": None if rows.path is None else str(rows.path),
            "sha256": rows.sha256,
            "report": report.to_json(),
            **({"floors": dict(task.floors)} if task.floors and split == "dev" else {}),
        }
    )
