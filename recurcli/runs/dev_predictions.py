"""Reads predictions.dev.jsonl of a run; importable without torch. `runs/model_files.py` writes it."""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recurcli.errors import ModelError
from recurcli.files import read_limited
from recurcli.runs.run_directory import PREDICTIONS

Part = Literal["model", "encoder", "linear"]
"""The source of the predictions: the model, or where it has an ensemble its encoder alone or its linear model alone."""


class DevPredictions(NamedTuple):
    """The dev rows of a run, each with its label and its prediction; N rows, C classes."""

    ids: list[str]
    labels: list[str]
    predictions: list[str]
    names: list[str]
    """The C classes, in the order of the logits."""


def read_dev_predictions(folder: Path, part: Part) -> DevPredictions:
    """Read the predictions of a run whose manifest is verified. Raises ModelError if they are damaged."""
    path = folder / PREDICTIONS
    lines = path.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = _row(line, part)
            rows.append((str(row["id"]), str(row["label"]), str(row["prediction"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ModelError(f"{path}:{number}: is damaged") from None
    ids, labels, predictions = (list(column) for column in zip(*rows, strict=True))
    try:
        first = json.loads(lines[0])
        # A row of many classes has the largest probabilities only.
        names = _names(folder) if "other_probabilities" in first else list(first["probabilities"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(f"{path}:1: is damaged") from None
    if unknown := {*labels, *predictions} - {*names}:
        raise ModelError(f"{path}: has the label '{min(unknown)}' without a probability")
    return DevPredictions(ids, labels, predictions, names)


def read_dev_texts(folder: Path) -> list[tuple[str, str | None]]:
    """Read the texts of the dev rows, in the order of `read_dev_predictions`; [] if a run of an older recur has none.

    Raises ModelError if they are damaged.
    """
    path = folder / PREDICTIONS
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
        return [(str(row["text"]), row.get("pair")) for row in rows if "text" in row]
    except (OSError, ValueError, TypeError, RecursionError):
        raise ModelError(f"{path}: is damaged") from None


def _names(folder: Path) -> list[str]:
    """Return the classes of the model in `folder`, in the order of the logits."""
    return list(json.loads(read_limited(folder / "config.json", limit=1 << 24))["id2label"].values())


def _row(line: str, part: Part) -> dict[str, Any]:
    """Return id, label and prediction of a line. The probabilities are parsed only where they are needed."""
    head, found, _ = line.partition(', "probabilities": {')  # never within a string, whose quotes are escaped
    if part == "model" and found:
        return json.loads(head + "}")
    row = json.loads(line)
    if part != "model" and (shares := row.get(f"{part}_probabilities")):
        row["prediction"] = max(shares, key=shares.__getitem__)
    return row
