"""A trained model in a run directory: config.json, model.safetensors, tokenizer.json, and a manifest that proves them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from recurcli.tokens.tokenizer import Tokenizer
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import MANIFEST, to_json, verify_manifest, write_atomically, write_manifest
from recurcli.model.config import ModelConfig
from recurcli.model.models import Classifier
from recurcli.model.saved import build_from_weights, config_from_file, config_to_dict, load_tensors, save_tensors

MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
PREDICTIONS = "predictions.dev.jsonl"
LAYERS_WITHOUT_TENSORS = 100
"""Layers that are built even if the weights hold fewer tensors: layers may share weights."""


class TrainedFiles(NamedTuple):
    """What a run directory says of its model, verified."""

    config: ModelConfig
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]
    path: Path


def write_model(folder: Path, config: ModelConfig, tokenizer: Tokenizer, tensors: Mapping[str, Tensor]) -> None:
    """Make `folder` hold this model. Its manifest is taken away first and written last: in between it holds none."""
    (folder / MANIFEST).unlink(missing_ok=True)
    write_atomically(folder / "config.json", to_json(config_to_dict(config)))
    write_atomically(folder / "tokenizer.json", tokenizer.to_json())
    write_atomically(folder / "model.safetensors", partial(save_tensors, tensors))
    write_manifest(folder, MODEL_FILES)


def write_predictions(
    folder: Path, ids: Sequence[str], labels: Sequence[str], names: Sequence[str], shares: Sequence[Sequence[float]]
) -> None:
    """Write predictions.dev.jsonl beside a model – the right label, the predicted one, all probabilities – and commit it."""
    lines = []
    for row_id, label, row in zip(ids, labels, shares, strict=True):
        ranked = {name: float(share) for name, share in zip(names, row, strict=True)}
        line = {"id": row_id, "label": label, "prediction": max(names, key=ranked.__getitem__), "probabilities": ranked}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    write_atomically(folder / PREDICTIONS, "".join(lines))
    write_manifest(folder, (*MODEL_FILES, PREDICTIONS))


def read_model(folder: Path) -> TrainedFiles:
    """Read and verify the model in a run directory; ModelError if there is none, or it is damaged or foreign."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: is no run directory" + ("" if folder.exists() else " (it does not exist)"))
    if not (folder / MANIFEST).is_file() and (folder / "preset.yaml").is_file():
        raise ModelError(f"{folder}: holds no finished model yet; go on with the same command and --resume")
    verify_manifest(folder, MODEL_FILES)
    config = config_from_file(folder / "config.json")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    if tokenizer.vocab_size != config.vocab_size or tokenizer.pad_id != config.pad_id:
        raise ModelError(
            f"{folder}: the tokenizer does not fit the model: it has {tokenizer.vocab_size} tokens "
            f"and padding {tokenizer.pad_id}, the model {config.vocab_size} and {config.pad_id}"
        )
    return TrainedFiles(config, tokenizer, load_tensors(folder / "model.safetensors"), folder)


def build_trained_classifier(files: TrainedFiles, device: torch.device) -> Classifier:
    """Return the classifier that `files` describe, in evaluation mode on `device`.

    Raises ModelError if the run has no classes, or config.json and the weights do not fit each other; nothing of the
    size that config.json claims is allocated before that.
    """
    if not files.config.labels:
        raise ModelError(
            f"{files.path}: is a pretrained run without classes; `recur finetune --init` makes a classifier"
        )
    config_path, weights_path = files.path / "config.json", files.path / "model.safetensors"
    layers = files.config.encoder.get("num_layers")
    if isinstance(layers, int) and layers > max(len(files.tensors), LAYERS_WITHOUT_TENSORS):
        raise ModelError(
            f"{config_path}: encoder.num_layers is {escaped(layers, 40)}, "
            f"but {weights_path.name} holds {len(files.tensors):,} tensors"
        )
    try:
        model = build_from_weights(partial(Classifier, files.config), files.tensors, weights_path)
    except (UsageError, ArithmeticError, RuntimeError, TypeError, MemoryError) as error:  # sizes that torch refuses
        raise ModelError(f"{config_path}: encoder: {escaped(error, limit=1000)}") from None
    return model.to(device).eval()
