"""The linear model that `recur export --format html` writes: that of a run, fitted again where it has static vectors."""

from dataclasses import replace
from pathlib import Path

from recurcli.commands.trained_run import data_config
from recurcli.config import Preset
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.export.format import TrainedRun
from recurcli.export.html import PageModel, model_of_run
from recurcli.log import Log
from recurcli.models.choice import Choice
from recurcli.models.data import Data, prepare, read_splits
from recurcli.models.linear import fit_linear
from recurcli.runs.run_directory import PRESET
from recurcli.validation import parse_config


def page_model(run: TrainedRun, data: Path | None, log: Log) -> PageModel:
    """Return the linear model of a run for a page, with notes on what it is without.

    Static vectors have no place in a page, and weights beside them are of no use alone: the model is fitted on the stored
    training file without them, or on the file that `data` names. Raises DataError if it is gone, or is another one.
    """
    kept, linear = run.predictor.kept, run.predictor.linear
    notes: tuple[str, ...] = ()
    if kept.name == "ensemble":
        notes = ("the encoder of the run's ensemble is left out; `recur export --format onnx` has it",)
    if linear is None or linear.vectors is None:
        if data is not None:
            raise UsageError("--data: the linear model has no static vectors, so nothing is fitted again; leave it out")
        return model_of_run(run)._replace(notes=notes)
    log.stage("fitting the linear model without static vectors")
    preset, rows = _training_data(run, data)
    own = fit_linear(preset, rows, log)
    if own is None:
        raise ModelError(f"{run.path}: no linear model can be fitted on its rows without static vectors")
    fitted = own.model if own.refit is None else own.refit()
    choice = Choice(data=rows, preset=preset, encoder=None, linear=own, known=rows.known)
    choosing, found = rows.choosing, choice.first_kept
    predictions = found.predict(found.logits({"linear": own.held_out})) if rows.dev is None else None
    why = f"it was fitted again without the run's static vectors ({linear.vectors.name}), and has scores of its own"
    return PageModel(fitted, found, own.model, choosing.texts, choosing.cells, predictions, (*notes, why))


def _training_data(run: TrainedRun, data: Path | None) -> tuple[Preset, Data]:
    """Read the rows of the training of a run again. Raises DataError if they are not the same ones."""
    if not run.folder.is_finished:
        raise ModelError(f"{run.path}: its training is not finished, so its rows are not known yet")
    try:
        preset = parse_config(Preset, run.folder.read_preset())
    except UsageError as error:
        raise ModelError(f"{run.path / PRESET}: {error}") from None
    own, without = replace(preset.finetuning, score_test=False), replace(preset.linear, vectors=None)
    preset = replace(preset, data=data_config(run.folder, data), finetuning=own, linear=without)
    rows = prepare(preset, *read_splits(preset, None, Log()), Log())
    stored = run.folder.read_result()["data"]
    for name, split in rows.splits.items():
        if split.sha256 != stored[name]["sha256"]:
            raise DataError(
                f"{split.path}: is not the file of the {name} rows of {run.path} (by its sha256); name that: --data"
            )
    return preset, rows
