"""Reads what a run has stored of its dev and test rows, without torch: predictions of a classifier, losses of a language model.

`runs/model_files.py` writes them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import SchemaValidator
from pydantic_core import core_schema as cs

from recurcli.errors import ModelError, escaped
from recurcli.files import CommittedFolder, OpenedFile, naming_damage
from recurcli.metrics import ScoredSplit
from recurcli.runs.run_directory import (
    FINITE,
    NUMBER,
    PREDICTIONS,
    RESULT,
    TEST_PREDICTIONS,
    TEXT,
    TEXT_LOSSES,
    Run,
    check,
    keys,
    read_json,
)
from recurcli.targets import Cell, Target, target_from_json
from recurcli.targets.target import Y, cell_from_json

Part = Literal["model", "encoder", "linear"]
"""The source of the predictions: the model, or where it has an ensemble its encoder alone or its linear model alone."""
FILES: Mapping[ScoredSplit, str] = {"dev": PREDICTIONS, **TEST_PREDICTIONS}
"""The files of the rows that select the model, and of those that it was scored on once."""
_SHARES = cs.dict_schema(TEXT, NUMBER, min_length=1)
_LOSSES = cs.list_schema(FINITE, min_length=1)
_LOSSES_FILE = SchemaValidator(keys({"nats": _LOSSES, "tokens": _LOSSES}))
_LABEL_SPACE = SchemaValidator(keys({"target": cs.dict_schema(), "id2label": cs.dict_schema(TEXT, TEXT)}))
"""config.json, for a reader of its target alone."""
_THRESHOLDS_OF_RESULT = SchemaValidator(keys({"thresholds?": cs.nullable_schema(cs.dict_schema())}))
"""result.json, for a reader of its thresholds alone."""
_CELL = cs.union_schema([TEXT, FINITE, cs.list_schema(TEXT)])
_ROW = {"id": TEXT, "label": _CELL, "prediction": _CELL}
_ROW_TEXT = SchemaValidator(keys({"label": _CELL, "text": TEXT, "pair?": cs.nullable_schema(TEXT)}))
"""A line of predictions, for a reader of its text."""


class Predictions(NamedTuple):
    """The dev or test rows of a run (N), each with its label and its prediction."""

    ids: list[str]
    labels: list[Cell]
    predictions: list[Cell]
    target: Target
    part: Part
    """The part of the model that made the predictions. It is the whole model if the file has none of the requested part."""

    @property
    def hits(self) -> "NDArray[np.bool_]":
        """Whether each prediction (N,) is right."""
        return self.target.hits(*self.encoded())

    def encoded(self) -> tuple[Y, Y]:
        """Return the labels and the predictions as the target encodes them."""
        return self.target.encode(self.labels), self.target.encode(self.predictions)

    def report(self, loss: float | None = None) -> dict[str, Any]:
        """Return the metrics of the predictions; `loss`: the mean loss of the rows, if it is known."""
        return self.target.report(*self.encoded(), None, loss=loss)


class TextLosses(NamedTuple):
    """The summed cross-entropy of a language model on each of the K blocks of its dev text, and their tokens, (K,) each."""

    nats: list[float]
    tokens: list[int]


class RowText(NamedTuple):
    """A dev row as it was read for the training."""

    text: str
    pair: str | None
    label: Cell


def read_predictions(run: Run, part: Part, split: ScoredSplit = "dev") -> Predictions:
    """Read the predictions of a run. Raises ModelError if they are damaged.

    The labels of the model follow the thresholds that the run has now.
    """
    path, lines = run.path / FILES[split], _lines(run[FILES[split]])
    first = _row(path, 1, lines[0], _row_validator("probabilities", "encoder_probabilities?", "linear_probabilities?"))
    if f"{part}_probabilities" not in first:
        part = "model"
    stored = read_json(run["config.json"], _LABEL_SPACE, limit=1 << 24)
    with naming_damage(run["config.json"].path):
        target = target_from_json(stored["target"], tuple(stored["id2label"].values()))
    thresholds, key = _new_thresholds(run), "probabilities"
    if part != "model":
        thresholds, key = (_thresholds(run) if target.thresholds_for else {}), f"{part}_probabilities"
    validator = _row_validator() if thresholds is None else _row_validator(key)
    rows, places = [], {label: place for place, label in enumerate(target.labels)}
    for number, line in enumerate(lines, 1):
        head, found, _ = line.partition(', "probabilities": {')  # never within a string, whose quotes are escaped
        row = _row(path, number, head + "}" if found and thresholds is None else line, validator)
        prediction = row["prediction"]
        if thresholds is not None:
            probabilities = np.zeros((1, target.width))  # of many labels a row has the largest ones
            for label, probability in row[key].items():
                if label in places:
                    probabilities[0, places[label]] = probability
            [prediction] = target.decode(target.decide(probabilities, [*thresholds.values()]))
        rows.append((row["id"], cell_from_json(row["label"]), cell_from_json(prediction)))
    ids, labels, predictions = (list(column) for column in zip(*rows, strict=True))
    unknown = [label for cell in {*labels, *predictions} if (label := target.unknown_in(cell)) is not None]
    if unknown:
        raise ModelError(f"{path}: has the label '{escaped(min(unknown))}' without a probability")
    return Predictions(ids, labels, predictions, target, part)


def _new_thresholds(run: Run) -> dict[str, float] | None:
    """Return what the probability of each label is divided by, if the thresholds of the run are not those of its training.

    The label with the largest ratio is predicted. None: the stored predictions hold.
    """
    of_training = read_json(run[RESULT], _THRESHOLDS_OF_RESULT).get("thresholds") if RESULT in run else None
    return None if run.read_thresholds() == of_training else _thresholds(run)


def _thresholds(run: Run) -> dict[str, float]:
    return (run.read_thresholds() or {"thresholds": {}})["thresholds"]


def read_current_result(run: Run) -> dict[str, Any]:
    """Return the content of result.json, with the thresholds that the run has now, and with the scores that they give.

    If they are not those of the training, what is `paired` and the scores of `unseen` rows are left out.
    """
    result, thresholds = run.read_result(), run.read_thresholds()
    if thresholds == result.get("thresholds"):
        return result
    for split, name in FILES.items():
        if name in run:
            rows, scores = read_predictions(run, "model", split), result[split]
            scores |= rows.report(scores["loss"])
            (result if split == "dev" else scores)["model_intervals"]["model"] = [
                *rows.target.interval(*rows.encoded())
            ]
            for key in ("paired", "unseen"):
                (result if split == "dev" else scores).pop(key, None)
    return {**result, "thresholds": thresholds}


def read_text_losses(folder: CommittedFolder) -> TextLosses:
    """Read the losses of a language model. Raises ModelError if they are damaged."""
    file = folder[TEXT_LOSSES]
    stored = read_json(file, _LOSSES_FILE)
    if len(stored["nats"]) != len(stored["tokens"]) or not all(stored["tokens"]):
        raise ModelError(f"{file.path}: is damaged: each block must have one loss, and a token or more")
    return TextLosses(stored["nats"], stored["tokens"])


def read_texts(folder: CommittedFolder) -> list[RowText]:
    """Read the texts and labels of the dev rows, in the order of `read_predictions`; [] if the run keeps none.

    The file of the test rows has none. Raises ModelError if they are damaged.
    """
    file = folder[PREDICTIONS]
    lines = _lines(file)
    if "text" not in _row(file.path, 1, lines[0], _row_validator()):
        return []
    rows = (_row(file.path, number, line, _ROW_TEXT) for number, line in enumerate(lines, 1))
    return [RowText(row["text"], row.get("pair"), cell_from_json(row["label"])) for row in rows]


def _lines(file: OpenedFile) -> list[str]:
    return file.read().decode(errors="replace").removesuffix("\n").split("\n")


def _row_validator(*probabilities: str) -> SchemaValidator:
    """Return the validator of a line that has the keys `probabilities`."""
    return SchemaValidator(keys(_ROW | dict.fromkeys(probabilities, _SHARES)))


def _row(path: Path, number: int, line: str, validator: SchemaValidator) -> dict[str, Any]:
    """Return the content of a line. Raises ModelError if it does not fit."""
    with naming_damage(f"{path}:{number}"):
        row: dict[str, Any] = json.loads(line)
        check(row, validator)
    return row
