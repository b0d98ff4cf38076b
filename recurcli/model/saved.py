"""Weights and config.json on disk, in Hugging Face's layout: safetensors, never a pickle."""

import dataclasses
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recurcli.errors import ModelError, StorageError, UsageError, escaped
from recurcli.files import read_limited
from recurcli.model.config import FORMAT_VERSION, ModelConfig
from recurcli.validation import parse_config

MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 10_000


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors as safetensors; OSError or StorageError where the disk does not take them."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # how safetensors tells of a full disk
        if found := re.search(r"(?:os error |code: )(\d+)", str(error)):
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise StorageError(f"{path}: cannot be written: {escaped(error)}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors; ModelError for anything that is not a plain, sane safetensors file."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if length > MAX_HEADER_BYTES or not 2 <= length <= path.stat().st_size - 8:
            raise ModelError(f"{path}: is no safetensors file, or is cut short")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ModelError(f"{path}: its safetensors header is damaged") from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise ModelError(f"{path}: its safetensors header is no mapping of at most {MAX_TENSORS:,} tensors")
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: is damaged: {escaped(error)}") from None


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy `tensors` into `model`.

    Raises ModelError naming the first that is missing, foreign, of another shape or kind of number, or not finite.
    """
    own = model.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors:
            raise ModelError(f"{source}: has no tensor {name}; it belongs to another architecture")
        if name not in own:
            raise ModelError(f"{source}: has a tensor {escaped(name)} that this architecture does not know")
        if own[name].shape != tensors[name].shape:
            wanted, found = tuple(own[name].shape), tuple(tensors[name].shape)
            raise ModelError(f"{source}: {name} has the shape {found}, and {wanted} is wanted")
        if own[name].dtype != tensors[name].dtype:
            raise ModelError(f"{source}: {name} is of {tensors[name].dtype}, and {own[name].dtype} is wanted")
        if not tensors[name].isfinite().all():
            raise ModelError(f"{source}: {name} holds numbers that are not finite")
    model.load_state_dict(dict(tensors))


def config_to_dict(config: ModelConfig) -> dict[str, Any]:
    """The contents of config.json."""
    values = dataclasses.asdict(config)
    labels = values.pop("labels")
    return {
        "model_type": "recurcli",
        "format_version": FORMAT_VERSION,
        **values,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def config_from_file(path: Path) -> ModelConfig:
    """Read config.json; ModelError if it is damaged or not of this program's making."""
    try:
        values = json.loads(read_limited(path, limit=1 << 22))
        if not isinstance(values, dict) or values.pop("model_type", None) != "recurcli":
            raise ModelError(f"{path}: is not the config.json of a model of recur")
        version = values.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ModelError(f"{path}: has format version {escaped(version)}; this recur reads {FORMAT_VERSION}")
        values.pop("label2id", None)
        names = values.pop("id2label")
        values["labels"] = [names[str(number)] for number in range(len(names))]
        return parse_config(ModelConfig, values)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path}: is damaged: {escaped(error)}") from None
    except UsageError as error:
        raise ModelError(f"{path}: {error}") from None


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Number of parameters of each part of a model, and their `total`."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    own = sum(parameter.numel() for parameter in model.parameters(recurse=False))
    if own:
        parts["head"] = parts.get("head", 0) + own
    return {**parts, "total": sum(parts.values())}


def cpu_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of a model's weights that later steps do not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}


def total_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that `tensors` take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
