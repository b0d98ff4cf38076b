"""The linear model that `recur export --format html` writes: that of a run, fitted again where it has static vectors."""

from dataclasses import replace
from pathlib import Path

from recurcli.commands.trained_run import data_config
from recurcli.config import Preset
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.export.format import TrainedRun
from recurcli.export.html import PageModel
from recurcli.log import Log
from recurcli.models.choice import Choice
from recurcli.models.data import Data, prepare, read_splits
from recurcli.models.linear import fit_linear
from recurcli.runs.model_files import read_linear_model
from recurcli.runs.predictions import read_predictions
from recurcli.validation import parse_config


def page_model(run: TrainedRun, data: Path | None, log: Log) -> PageModel:
    """Return the linear model of a run for a page, with notes on what it is without.

    Static vectors have no place in a page, and weights beside them are of no use alone: the model is fitted on the stored
    training file without them, or on the file that `data` names. Raises UsageError for a run that keeps no
    linear model; ModelError for one without texts of dev rows; DataError if the training file is gone, or is another one.
    """
    folder, kept, linear = run.folder, run.predictor.kept, run.predictor.linear
    if kept.name == "encoder" or linear is None:
        what = "the model is the encoder alone, and a page holds a linear model"
        raise UsageError(f"{folder}: {what}; --format onnx exports the encoder")
    left_out = "the encoder of the run's ensemble is left out; `recur export --format onnx` has it"
    notes = (left_out,) if kept.name == "ensemble" else ()
    if linear.vectors is None:
        if data is not None:
            raise UsageError("--data: the linear model has no static vectors, so nothing is fitted again; leave it out")
        rows = run.dev_rows("with which a page is compared (finetuning.keep_texts)")
        first = read_linear_model(folder, kept.target.width, first_fit=True) or linear
        is_validated = folder.is_finished and "cross_validation" in folder.read_result()
        out_of_fold = read_predictions(folder, "linear").encoded()[1] if is_validated else None
        texts, labels = [row[:2] for row in rows], [row.label for row in rows]
        return PageModel(linear, kept.only_linear, first, texts, labels, out_of_fold, notes)
    log.stage("fitting the linear model without static vectors")
    preset, fitted_on = _training_data(run, data)
    own = fit_linear(preset, fitted_on, log)
    if own is None:
        raise ModelError(f"{folder}: no linear model can be fitted on its rows without static vectors")
    choice = Choice(data=fitted_on, preset=preset, encoder=None, linear=own, known=fitted_on.known)
    choosing, found = fitted_on.choosing, choice.first_kept
    predictions = found.predict(found.logits({"linear": own.held_out})) if fitted_on.dev is None else None
    why = f"it was fitted again without the run's static vectors ({linear.vectors.name}), and has scores of its own"
    fitted = own.model if own.refit is None else own.refit()
    return PageModel(fitted, found, own.model, choosing.texts, choosing.cells, predictions, (*notes, why))


def _training_data(run: TrainedRun, data: Path | None) -> tuple[Preset, Data]:
    """Read the rows of the training of a run again. Raises DataError if they are not the same ones."""
    if not run.folder.is_finished:
        raise ModelError(f"{run.path}: its training is not finished, so its rows are not known yet")
    preset = parse_config(Preset, run.folder.read_preset())
    own, without = replace(preset.finetuning, score_test=False), replace(preset.linear, vectors=None)
    preset = replace(preset, data=data_config(run.folder, data), finetuning=own, linear=without)
    rows = prepare(preset, *read_splits(preset, None, Log()), Log())
    stored = run.folder.read_result()["data"]
    for name, split in rows.splits.items():
        if split.sha256 != stored[name]["sha256"]:
            what = f"is not the file of the {name} rows of {run.path} (by its sha256); name that: --data"
            raise DataError(f"{split.path}: {what}")
    return preset, rows
