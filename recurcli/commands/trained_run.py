"""Reads the facts of a trained run that commands need: its task, its columns, the files of its rows, and its training rows."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from recurcli.data.columns import ColumnSchema
from recurcli.data.config import DataConfig, with_options
from recurcli.data.readers import format_of
from recurcli.data.splits import Split, hashes_of
from recurcli.data.tasks import Task, find_source, is_local, is_one_file, task_named, task_with_columns
from recurcli.data.values import TextColumns
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.inference import Predictor
from recurcli.files import sha256_of
from recurcli.log import Log
from recurcli.runs.model_files import KnownRows, read_known_rows
from recurcli.runs.predictions import read_texts
from recurcli.runs.run_directory import PREDICTIONS, Run
from recurcli.tokens.texts import TextSplit


def data_config(run: Run, data: Path | None, columns: Mapping[str, object] | None = None) -> DataConfig:
    """Return the data section of the run's preset, with the path `data` and its `columns` (see `evaluate`) if given.

    Raises ModelError if the preset of the run cannot be read, DataError if its data no longer exist.
    """
    config = run.read_data_config()
    if data is not None:
        return with_options(config, data.expanduser().absolute(), columns or {})
    if config.path is not None and not Path(config.path).exists():
        raise DataError(f"{config.path}: the data of {run} are no longer there; name their place with --data")
    return config


class ScoredSplit(NamedTuple):
    """The split that `recur eval` scores, and where its rows or lines are."""

    name: str
    """"file" means all of the file that --data names."""
    config: DataConfig
    is_own: bool
    """Whether they are the run's own, so that no --data names others."""
    is_lone_file: bool
    """Whether they are in a single file, from which a training draws train and dev rows."""

    @property
    def is_named(self) -> bool:
        """Whether the run names a file of this split."""
        return self.is_own and self.config.named_file(self.name) is not None

    def check(self, unit: str) -> None:
        """Raise DataError if the run's own file holds rows (the `unit`) of train and dev only, and this is another split."""
        if self.is_own and self.is_lone_file and self.name not in ("train", "dev") and not self.is_named:
            raise DataError(f"{self.config.path}: holds train and dev {unit}; name the {self.name} {unit} with --data")


def scored_split(
    run: Run, split: str | None, data: Path | None, columns: Mapping[str, object] | None = None
) -> ScoredSplit:
    """Return the `split` to score; None: all of `data` if it is one file, else the dev rows. Raises as `data_config` does."""
    name = split or ("file" if data is not None and is_one_file(data) else "dev")
    config = data_config(run, data, columns)
    is_lone_file = config.path is not None and is_one_file(Path(config.path))
    return ScoredSplit(name, config, data is None, is_lone_file)


def is_training_file(run: Run, task: Task, data: Path) -> bool:
    """Return whether `data` has the content of the file from which the run drew its train and dev rows."""
    config = run.read_data_config()
    try:
        if not is_local(config, "train"):
            return False
        source = find_source(task_with_columns(task, config), "train", config, use_dev_split=True)
    except DataError:
        return False
    if not source.use_dev_split:
        return False
    are_files = data.is_file() and source.path.is_file()
    return data.samefile(source.path) or (are_files and sha256_of(data) == sha256_of(source.path))


def training_rows(run: Run, predictor: Predictor) -> ColumnSchema:
    """Return what rows for the model of `run` must be like: its training rows. A run without a readable preset names none."""
    named, config = False, DataConfig()
    with contextlib.suppress(ModelError, UsageError):
        config = run.read_data_config()
        named = bool(task_with_columns(task_named(predictor.model.config.task), config).text)
    columns = TextColumns.from_json(predictor.model.config.columns)
    format: Literal["tsv", "csv"] = "csv"
    with contextlib.suppress(DataError, UsageError):
        if format_of(str(config.named_file("train") or config.path)) == "tsv":
            format = "tsv"
        source = find_source(task_with_columns(task_named(predictor.model.config.task), config), "train", config)
        format = "tsv" if format_of(source.path.name) in ("tsv", None) else "csv"
    return ColumnSchema(
        str(run), columns, explicit=named, delimiter=config.delimiter, quote=config.quote, format=format
    )


def task_of(run: Run, predictor: Predictor) -> Task:
    """Return the task of the model. Raises ModelError if this recur does not know it, or knows different labels for it."""
    try:
        task = task_named(predictor.model.config.task)
    except UsageError as error:
        raise ModelError(f"{run.path / 'config.json'}: {error}") from None
    labels = task_with_columns(task, run.read_data_config()).labels
    if labels and labels != predictor.labels:
        raise ModelError(f"{run.path / 'config.json'}: its labels are not those of {task.name}")
    return replace(task, labels=predictor.labels)


def known_rows_of(run: Run, log: Log) -> KnownRows | None:
    """Return the rows that a verified classifier was trained on and selected on.

    None if the run keeps no hashes of them, or started from one that keeps none.
    """
    stored = read_known_rows(run)
    if stored is None:
        why = f"{run} keeps no hashes of the rows of its training (finetuning.keep_texts)"
        log.warn(f"the number of training rows among these rows is unknown: {why}")
    return stored


def check_rows_of_training(run: Run, split: str, rows: Split | TextSplit) -> None:
    """Raise DataError if `rows`, read from the place that the run names for `split`, are not those of its training.

    The hash of their file is that of result.json, or of the newest checkpoint of a run that is not finished. The dev rows,
    which may be drawn from a file, are those that selected the model, with their labels.
    """
    sha256, has_init = _origin(run, split)
    if sha256 not in (None, rows.sha256):
        fault = f"changed since the training: its sha256 is not that of the {split} rows of {run}"
    elif split == "dev" and not _selected(run, rows, has_init=has_init):
        fault = f"its dev rows are not those on which {run} was selected"
    else:
        return
    raise DataError(
        f"{rows.path or 'the Hub'}: {fault}; --data {rows.path or 'FILE'} scores it as it is and counts the rows that were "
        "trained on"
    )


def _origin(run: Run, split: str) -> tuple[str | None, bool]:
    """Return the hash of the rows of `split`, None if the run tells it not, and whether the run started from another."""
    if run.is_finished:
        result = run.read_result()
        facts = result["data"].get(split)
        return None if facts is None else facts["sha256"], result.get("init") is not None
    origin: Mapping[str, Any] = next((state["resume_key"] for state in run.read_states()), {})
    return origin.get(f"{split} sha256"), origin.get("--init sha256") is not None


def _selected(run: Run, rows: Split | TextSplit, *, has_init: bool) -> bool:
    """Return whether `rows` are the dev rows that selected the model, as far as the run tells."""
    if isinstance(rows, Split) and PREDICTIONS in run and (stored := read_texts(run)):
        same_texts = np.array_equal(rows.hashes, hashes_of((row.text, row.pair) for row in stored))
        return same_texts and [str(example.label) for example in rows.examples] == [row.label for row in stored]
    if (known := read_known_rows(run)) is None:
        return True
    own = KnownRows.of(rows.hashes).trained
    # The selected rows of the run that it started from are among those of the run.
    return bool(np.isin(own, known.selected).all()) if has_init else np.array_equal(own, known.selected)
