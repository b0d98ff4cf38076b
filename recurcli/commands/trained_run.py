"""Reads the facts of a trained run that commands need: its task, its columns and the files of its rows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from recurcli.config import DataConfig, with_options
from recurcli.data.rows import file_and_part
from recurcli.data.tasks import Task, task_named, task_with_columns
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.log import Log
from recurcli.runs.run_directory import THRESHOLDS, Run


def data_config(run: Run, data: Path | None, columns: Mapping[str, object] | None = None) -> DataConfig:
    """Return the data section of the run's preset, with the path `data` and its `columns` (see `evaluate`) if given.

    What rows at `data` are like is then not in the section: a classifier's `Source` tells it. Raises ModelError if the preset
    of the run cannot be read, DataError if its data no longer exist.
    """
    config = run.read_data_config()
    if data is not None:
        if run.read_command() != "pretrain":
            config = replace(config, header=None, delimiter=None, quote=None, encoding=None)
            config = replace(config, text=None, pair=None, label=None, id=None, label_files=(), label_by="column")
        return with_options(config, data.expanduser().absolute(), columns or {})
    if config.path is not None and not file_and_part(Path(config.path))[0].exists():
        raise DataError(f"{config.path}: the data of {run} are no longer there; name their place with --data")
    return config


def note_on_fast(run: Run, predictor: Predictor, log: Log) -> None:
    """Log a note if the run has thresholds, which were chosen for the ensemble, and the model is its linear model alone."""
    if predictor.kept.thresholds is None and run.has(THRESHOLDS):
        log.note(f"{run}: --fast takes the most probable label, since {THRESHOLDS} was chosen for the whole ensemble")


FEWEST_NGRAMS = 1000
"""The warning on unknown n-grams needs at least so many n-grams, those of about a dozen short texts. Ours."""
UNKNOWN = 0.5
"""A larger share of unknown n-grams is suspicious. Ours: it is 0.58 between two halves of a small set, so `is_suspicious` looks
at the dev rows too."""


def unknown_of_dev(run: Run) -> float | None:
    """Return the share of the n-grams of the dev rows that the linear model of `run` does not know; None: it is not known."""
    return run.read_result().get("linear_baseline", {}).get("unknown_ngrams") if run.is_finished else None


def is_suspicious(unknown: float, of_dev: float) -> bool:
    """Return whether the share of `unknown` n-grams is above UNKNOWN and more than twice that of the dev rows."""
    return unknown > max(UNKNOWN, 2 * of_dev)


def warn_of_unknown_ngrams(predictor: Predictor, of_dev: float, name: str, log: Log) -> None:
    """Log a warning if the share of unknown n-grams in `name`, which `predictor` has labelled, `is_suspicious`."""
    if predictor.linear is None or (ngrams := predictor.linear.ngrams).counted < FEWEST_NGRAMS:
        return
    share = ngrams.unknown / ngrams.counted
    if is_suspicious(share, of_dev):
        what = f"{share:.0%} of the n-grams are unknown to the model, {of_dev:.0%} of those of its dev rows"
        is_run = predictor.run is not None and predictor.run.is_dir()  # a page has no texts to compare with
        more = f" (`recur check FILE --against {predictor.run}`)" if is_run else ""
        log.warn(f"{name}: {what}; the labels may mean nothing here{more}")


def known_task(run: Run, name: str) -> Task:
    """Return the task that the config.json of `run` names. Raises ModelError if this recur does not know it."""
    try:
        return task_named(name)
    except UsageError as error:
        raise ModelError(f"{run.path / 'config.json'}: {error}") from None


def task_of(run: Run, predictor: Predictor) -> Task:
    """Return the task of the model. Raises ModelError if this recur does not know it, or knows different labels for it."""
    task = known_task(run, predictor.config.task)
    labels = task_with_columns(task, run.read_data_config()).labels
    if labels and labels != predictor.labels:
        raise ModelError(f"{run.path / 'config.json'}: its labels are not those of {task.name}")
    return replace(task, labels=predictor.labels, target=predictor.kept.target)
