"""A trained model in a run directory: config.json, the linear model, a manifest of the files' hashes, and the rows that the
model was trained on and selected on, as hashes of their texts. network_files.py has the encoder.

It is importable without torch. The file names are those of Hugging Face, and the keys are ours: `transformers` loads the
tokenizer alone.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.config import FORMAT_VERSION, RunConfig, check_format
from recurcli.data.known import KnownRows
from recurcli.errors import ModelError, UsageError
from recurcli.files import (
    MANIFEST,
    CommittedFolder,
    OpenedFile,
    extend_manifest,
    naming_damage,
    read_manifest,
    stored_arrays,
    to_json,
    write_atomically,
    write_manifest,
)
from recurcli.linear.model import LinearModel
from recurcli.linear.static_vectors import StaticVectors
from recurcli.log import Log
from recurcli.metrics import MAX_IN_FULL
from recurcli.runs.run_directory import (
    CANDIDATE_FILES,
    KNOWN_ROWS,
    LINEAR_FIRST_FIT,
    LINEAR_MODEL,
    VECTORS,
    WRITTEN_AFTER_MODEL,
)
from recurcli.targets import Cell
from recurcli.validation import parse_config


def known_to_bytes(known: KnownRows | None) -> bytes:
    """Return the content of a safetensors file. For None it has no tensors: a run without the file is damaged."""
    from safetensors.numpy import save

    return save({} if known is None else {"trained": known.trained, "selected": known.selected})


def read_known_rows(folder: CommittedFolder, log: Log | None = None) -> KnownRows | None:
    """Read the known rows of a run. None, with a warning to the `log`, if it or the run that it started from keeps none.

    Raises ModelError if they are damaged or missing.
    """
    file = folder[KNOWN_ROWS]
    tensors = stored_arrays(file)
    if not tensors:
        if log is not None:
            why = f"{folder} keeps no hashes of the rows of its training (finetuning.keep_texts)"
            log.warn(f"the number of training rows among these rows is unknown: {why}")
        return None
    if tensors.keys() != {"trained", "selected"} or any(
        hashes.dtype != np.uint64 or hashes.ndim != 1 for hashes in tensors.values()
    ):
        raise ModelError(f"{file.path}: does not hold the hashes of a run's rows")
    return KnownRows(**tensors)


MAX_PROBABLE = 10
"""Probabilities of a row in predictions.dev.jsonl if there are more than MAX_IN_FULL classes. Of several labels a row has more,
those by which it gets a label."""


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """Return the content of config.json, which has no `network` without an encoder."""
    values = dataclasses.asdict(config)
    labels = values.pop("labels")
    return {
        "model_type": "recurcli",
        "format_version": FORMAT_VERSION,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        **{key: value for key, value in values.items() if value is not None},
    }


def config_from_file(file: OpenedFile) -> RunConfig:
    """Read config.json. Raises ModelError if it is damaged or was not written by recur."""
    with naming_damage(file.path):
        return config_from_json(json.loads(file.read(limit=1 << 22)), file.path)


def config_from_json(values: Any, path: Path) -> RunConfig:
    """Return what `config_to_dict` returned the `values` of, which `path` holds. Raises ModelError as `config_from_file`."""
    with naming_damage(path):
        if not isinstance(values, dict) or values.pop("model_type", None) != "recurcli":
            raise ModelError(f"{path}: is not the config.json of a recur model")
        check_format(values.pop("format_version", None), path)
        values.pop("label2id", None)
        names = values.pop("id2label")
        values["labels"] = [names[str(number)] for number in range(len(names))]
        try:
            return parse_config(RunConfig, values)
        except UsageError as error:
            raise ModelError(f"{path}: {error}") from None


Files = Mapping[str, bytes | str | Callable[[Path], None]]
"""The contents of files by name, as `write_atomically` takes them."""


def write_model(folder: Path, config: RunConfig, files: Files, *, first: bool) -> None:
    """Write the model `files` into `folder`. The manifest is removed first and written last, so no partial model verifies.

    The `first` model of a training brings all files. Those that later ones do not bring stay as they are, with their hashes.
    """
    listed: Mapping[str, tuple[int, str]] = {}
    if first:  # a training before may have had other candidates, and more than a model
        for name in (MANIFEST, *WRITTEN_AFTER_MODEL, *CANDIDATE_FILES):
            (folder / name).unlink(missing_ok=True)
        files = {"config.json": to_json(config_to_dict(config)), **files}
    else:
        listed = read_manifest(folder)
        (folder / MANIFEST).unlink()
    for name, content in files.items():
        write_atomically(folder / name, content)
    write_manifest(folder, files, listed)


def read_linear_model(folder: CommittedFolder, num_classes: int, *, first_fit: bool = False) -> LinearModel | None:
    """Read the linear model of a run; None if its manifest lists none.

    `first_fit`: the one that was fitted on the training rows only. Raises ModelError if it does not have `num_classes` classes.
    """
    name = LINEAR_FIRST_FIT if first_fit and LINEAR_FIRST_FIT in folder else LINEAR_MODEL
    if name not in folder:
        return None
    linear = LinearModel.load(folder[name], lambda: StaticVectors.load(folder[VECTORS]))
    if len(linear.bias) != num_classes:
        raise ModelError(f"{folder.path / name}: has {len(linear.bias)} classes, but the model has {num_classes}")
    return linear


def write_refit(folder: Path, linear: LinearModel) -> None:
    """Put the linear model that was fitted again in the place of the first one, which gets a name of its own.

    Meanwhile there is no manifest, so that a model in between does not verify.
    """
    before = CommittedFolder(folder)
    (folder / MANIFEST).unlink()
    (folder / LINEAR_MODEL).rename(folder / LINEAR_FIRST_FIT)
    write_atomically(folder / LINEAR_MODEL, linear.to_bytes())
    write_manifest(folder, (*before.listed, LINEAR_FIRST_FIT))


def write_listed(path: Path, content: str) -> None:
    """Write a file beside the model, and list it in the manifest."""
    write_atomically(path, content)
    extend_manifest(path.parent, path.name)


def write_predictions(
    path: Path,
    ids: Sequence[str],
    labels: Sequence[Cell],
    names: Sequence[str],
    probabilities: Mapping[str, NDArray[np.float64]],
    predictions: Sequence[Cell],
    texts: Sequence[tuple[str, str | None]] | None = None,
    numbers: Sequence[int | str] = (),
    *,
    least: NDArray[np.float64] | float = 0.5,
) -> None:
    """Write the predictions of the dev or test rows into the file `path` of a run, whose manifest then lists it.

    A line is a row, with its id, label and prediction, and where they are given its text (`texts`) and the number of its first
    line in its file (`numbers`).

    Each key of `probabilities` (N, C) is a key of the line, with the probabilities of all `names`. Of more than MAX_IN_FULL
    names it has the MAX_PROBABLE largest ones and those of at least `least` (C,), and `other_` and the key has the sum of the
    others.
    """
    lines = []
    for row, (row_id, label) in enumerate(zip(ids, labels, strict=True)):
        shares: dict[str, Any] = {}
        for key, rows in probabilities.items():
            own = rows[row]
            if len(names) <= MAX_IN_FULL:
                shares[key] = dict(zip(names, own.tolist(), strict=True))
            else:
                order = np.argsort(-own, kind="stable")
                largest = order[(np.arange(len(order)) < MAX_PROBABLE) | (own >= least)[order]]
                shares[key] = {names[place]: float(own[place]) for place in largest}
                shares[f"other_{key}"] = max(0.0, float(own.sum() - own[largest].sum()))
        line = {
            "id": row_id,
            **({"line": numbers[row]} if numbers else {}),
            "label": label,
            "prediction": predictions[row],
            **shares,
        }
        if texts is not None:
            text, pair = texts[row]
            line |= {"text": text} if pair is None else {"text": text, "pair": pair}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    write_listed(path, "".join(lines))
