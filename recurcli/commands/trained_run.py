"""What `recur eval`, `predict` and `export` ask of a trained run: is it finished, what is its task, and where are its rows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from recurcli.data.config import DataConfig, with_options
from recurcli.data.sources import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.events import Note
from recurcli.runs.model_files import PRIOR
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.checkpoint import checkpoint_folders


def note_if_unfinished(run: Path) -> Iterator[Note]:
    """Yield a warning if the training of `run` is not finished; its model is then the best encoder so far."""
    if not RunDirectory(run).is_finished:
        step = next((path.name for path in checkpoint_folders(RunDirectory(run).checkpoints)), "none")
        waits = RunDirectory(run).read_preset().get("prior") and not (run / PRIOR).is_file()
        missing = "; its prior is not joined yet" if waits else ""
        text = f"{run}: its training is not finished (newest checkpoint: {step}){missing}; --resume continues it"
        yield Note(text, "warning")


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
