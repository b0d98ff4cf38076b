"""Reads and writes weights (safetensors, never pickle) and config.json in the Hugging Face layout."""

import dataclasses
import json
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recurcli.errors import ModelError, StorageError, UsageError, escaped
from recurcli.files import read_limited
from recurcli.model.config import FORMAT_VERSION, OLDEST_READ, ModelConfig, check_format
from recurcli.validation import parse_config

Model = TypeVar("Model", bound=nn.Module)
MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 10_000


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors as safetensors; a shared weight is written under each of its names.

    Raises OSError or StorageError if the file cannot be written.
    """
    stored: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        stored[name] = tensor.detach().cpu().contiguous()
        if (storage := stored[name].untyped_storage().data_ptr()) in storages:
            stored[name] = stored[name].clone()  # safetensors refuses tensors that share memory
        storages.add(storage)
    try:
        save_file(stored, path)
    except SafetensorError as error:  # safetensors raises this for a full disk
        if found := re.search(r"(?:os error |code: )(\d+)", str(error)):
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise StorageError(f"{path}: cannot be written: {escaped(error)}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file. Raises ModelError if the file is invalid or truncated."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if length > MAX_HEADER_BYTES or not 2 <= length <= path.stat().st_size - 8:
            raise ModelError(f"{path}: is not a safetensors file, or is truncated")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ModelError(f"{path}: its safetensors header is damaged") from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise ModelError(f"{path}: its safetensors header must be a mapping of at most {MAX_TENSORS:,} tensors")
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: is damaged: {escaped(error)}") from None


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy `tensors` into `model`. Raises ModelError as `check_weights` does."""
    check_weights(model, tensors, source)
    model.load_state_dict(dict(tensors))


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Check that `tensors` are finite and have the names, shapes and dtypes of `model`'s state dict.

    `model` may be on the meta device. Raises ModelError with the file `source` and the first tensor that does not fit.
    """
    expected = model.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise ModelError(f"{source}: has no tensor {name}; it belongs to another architecture")
        if name not in expected:
            raise ModelError(f"{source}: has an unexpected tensor {escaped(name)}; it belongs to another architecture")
        if expected[name].shape != tensors[name].shape:
            shapes = tuple(tensors[name].shape), tuple(expected[name].shape)
            raise ModelError(f"{source}: {name} has the shape {shapes[0]}, but the architecture has {shapes[1]}")
        if expected[name].dtype != tensors[name].dtype:
            raise ModelError(f"{source}: {name} has dtype {tensors[name].dtype}, but must have {expected[name].dtype}")
        if not tensors[name].isfinite().all():
            raise ModelError(f"{source}: {name} has values that are not finite")


class _WithoutDraws(TorchFunctionMode):
    """Skips all functions of torch.nn.init. On the meta device they would import torch._dynamo, which is slow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def build_shapes(build: Callable[[], Model]) -> Model:
    """Build a module on the meta device, which allocates no memory and draws no initial weights.

    A module whose __init__ reads the values of tensors is built on the CPU instead.
    """
    try:
        with torch.device("meta"), _WithoutDraws():
            return build()
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        return build()


def build_from_weights(build: Callable[[], Model], tensors: Mapping[str, Tensor], source: Path) -> Model:
    """Build a module with `build` and load `tensors` as its state dict.

    Memory is allocated after names, shapes and dtypes are checked (`build_shapes`). A module that keeps tensors outside the
    state dict is built again on the CPU. Raises ModelError with the file `source` if the tensors do not fit, and any
    exception of `build`.
    """
    model = build_shapes(build)
    check_weights(model, tensors, source)
    if _has_state_outside(model):
        model = build()
    if any(tensor.is_meta for tensor in model.state_dict().values()):
        # Copies, because the tensors of a file are views of it. `Module.to_empty` would import sympy, which is slow.
        model.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    else:
        model.load_state_dict(dict(tensors))
    return model


def _has_state_outside(model: nn.Module) -> bool:
    """Whether `model` has a tensor outside its state dict: a non-persistent buffer, or a plain attribute."""
    saved = model.state_dict(keep_vars=True).values()
    known = {id(tensor) for tensor in saved}
    held = [*model.buffers(), *(value for module in model.modules() for value in vars(module).values())]
    return any(isinstance(tensor, Tensor) and id(tensor) not in known for tensor in held)


def config_to_dict(config: ModelConfig) -> dict[str, Any]:
    """Return the content of config.json."""
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
    """Read config.json. Raises ModelError if it is damaged or was not written by recur."""
    try:
        values = json.loads(read_limited(path, limit=1 << 22))
        if not isinstance(values, dict) or values.pop("model_type", None) != "recurcli":
            raise ModelError(f"{path}: is not the config.json of a recur model")
        check_format(values.pop("format_version", None), path, OLDEST_READ)
        values.pop("label2id", None)
        names = values.pop("id2label")
        values["labels"] = [names[str(number)] for number in range(len(names))]
        return parse_config(ModelConfig, values)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path}: is damaged: {escaped(error)}") from None
    except UsageError as error:
        raise ModelError(f"{path}: {error}") from None


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each child module, and their `total`."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    own = sum(parameter.numel() for parameter in model.parameters(recurse=False))
    if own:
        parts["head"] = parts.get("head", 0) + own
    return {**parts, "total": sum(parts.values())}


def cpu_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's state dict on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}


def total_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the total size of `tensors` in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
