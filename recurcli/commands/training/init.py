"""`--init`: the pretrained run that a fine-tuning starts from."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from recurcli.commands.trained_run import known_rows_of
from recurcli.data.tasks import task_named
from recurcli.encoders import encoder_class
from recurcli.errors import UsageError
from recurcli.events import Note
from recurcli.facts import find_difference
from recurcli.model.models import Classifier
from recurcli.model.saved import load_weights
from recurcli.preset import Preset
from recurcli.preset.schema import with_defaults
from recurcli.runs.model_files import KnownRows, TrainedFiles, read_model
from recurcli.runs.run_directory import RunDirectory
from recurcli.validation import flatten

_NGRAMS = "embedding.ngrams"


def read_init(path: Path, preset: Preset) -> TrainedFiles:
    """Read the pretrained run at `path`. Raises UsageError if its tokenizer, embedding or encoder differs from the preset."""
    files = read_model(path)
    stored = with_defaults(RunDirectory(path).read_preset())
    before, now = (_architecture(values) for values in (stored, preset.to_dict()))
    if not any(key.startswith(_NGRAMS) for key in before):  # the table of the preset is then new
        now = {key: value for key, value in now.items() if not key.startswith(_NGRAMS)}
    if difference := find_difference(before, now):
        key, its, ours = difference
        way_out = f"; --set {key}={its.lower()} does" if key in ("encoder.causal", "embedding.scaled") else ""
        raise UsageError(f"--init {path}: its {key} is {its}, the preset's is {ours}; give both the same{way_out}")
    return files


def known_rows_of_init(init: TrainedFiles) -> Generator[Note, None, KnownRows | None]:
    """Return the rows that the classifier `init` was trained and selected on; None for a pretrained run.

    A pretrained run has read no labels, and its text includes dev and test by intention (StarSaber, section 4).
    """
    if not init.config.labels:
        return None
    return (yield from known_rows_of(init.path, task_named(init.config.task)))


def _architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys in which a pretrained run and the preset must agree; dropout may differ.

    `embedding.scaled` has no effect on an encoder with positions, so it may differ there.
    """
    encoder = encoder_class(values["encoder"]["name"])
    with_positions = encoder.adds_positions or encoder.concatenates_positions
    return {
        ".".join(path): value
        for path, value in flatten(values)
        if (path[0] in ("tokenizer", "encoder") and not path[-1].endswith("dropout") and value is not None)
        or (path == ("embedding", "orthonormal") and value)
        or (path == ("embedding", "scaled") and not with_positions)
        or (".".join(path).startswith(_NGRAMS) and path[-1] != "dropout" and value is not None)
    }


def load_pretrained(model: Classifier, init: TrainedFiles) -> None:
    """Copy embedding and encoder of a pretrained run into `model`; the head keeps its initial weights.

    The two pair vectors and the n-gram table of the embedding may be in only one of them. If the run has none, `model` keeps
    its initial ones; if `model` has none, those of the run are ignored.
    """
    initial = model.state_dict()
    shared = {name: tensor for name, tensor in init.tensors.items() if name.startswith(("embedding.", "encoder."))}
    for name in ("embedding.second_text", "embedding.match", "embedding.ngrams.table"):
        if name in initial:
            shared.setdefault(name, initial[name])
        else:
            shared.pop(name, None)
    head = {name: tensor for name, tensor in initial.items() if name.startswith("head.")}
    load_weights(model, {**shared, **head}, init.path / "model.safetensors")
