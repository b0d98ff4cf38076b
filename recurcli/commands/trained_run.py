"""What `recur eval`, `predict` and `export` ask of a trained run: its task, its columns, and where its rows are."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from recurcli.data.columns import TrainingRows
from recurcli.data.config import DataConfig, with_options
from recurcli.data.sources import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.data.values import TextColumns
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.runs.run_directory import RunDirectory


def data_config(run: Path, data: Path | None, columns: Mapping[str, object] | None = None) -> DataConfig:
    """Return the data section of the run's preset, with the path `data` and its `columns` (see `evaluate`) if given.

    Raises ModelError if the preset of the run cannot be read, DataError if its data no longer exist.
    """
    config = RunDirectory(run).read_data_config()
    if data is not None:
        return with_options(config, data.expanduser().absolute(), columns or {})
    if config.path is not None and not Path(config.path).exists():
        raise DataError(f"{config.path}: the data of {run} are no longer there; name their place with --data")
    return config


def training_rows(run: Path, predictor: Predictor) -> TrainingRows:
    """Return what rows for the model of `run` must be like: its training rows. A run without a readable preset names none."""
    named, delimiter = False, None
    with contextlib.suppress(ModelError, UsageError):
        config = RunDirectory(run).read_data_config()
        delimiter = config.delimiter
        named = bool(adapted(task_named(predictor.model.config.task), config).text)
    return TrainingRows(
        str(run), TextColumns.from_json(predictor.model.config.columns), named=named, delimiter=delimiter
    )


def task_of(run: Path, predictor: Predictor) -> Task:
    """Return the task of the model. Raises ModelError if this recur does not know it, or knows different labels for it."""
    try:
        task = task_named(predictor.model.config.task)
    except UsageError as error:
        raise ModelError(f"{run / 'config.json'}: {error}") from None
    labels = adapted(task, RunDirectory(run).read_data_config()).labels
    if labels and labels != predictor.labels:
        raise ModelError(f"{run / 'config.json'}: its labels are not those of {task.name}")
    return replace(task, labels=predictor.labels)
