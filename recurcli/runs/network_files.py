"""The encoder of a run: its weights as safetensors, never pickle, and the network that is built from them.

`build_shapes` and `build_from_weights` check the weights before memory is allocated.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recurcli.config import ModelConfig, RunConfig
from recurcli.encoders import PRETRAINED
from recurcli.encoders.folder import check_sizes, read_architecture
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import OpenedFile, stored_tensors
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.model_files import config_from_file
from recurcli.runs.run_directory import Run, open_run
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.tokenizer import Tokenizer

Model = TypeVar("Model", Classifier, LanguageModel)
Module = TypeVar("Module", bound=nn.Module)
_DTYPES = {f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("float", "int", "uint") for bits in (8, 16, 32, 64)}
_DTYPES |= {"BF16": "bfloat16", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
"""torch's names of the dtypes by those of safetensors."""
_NAMES = {f"torch.{dtype}": name for name, dtype in _DTYPES.items()}


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors as safetensors; a shared weight is written under each of its names.

    safetensors' own function writes another file, of mode 0600, in the place of `path`. Raises OSError if the file cannot be
    written.
    """
    ordered = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # so all are aligned
    header, end = {}, 0
    for name in ordered:
        start, end = end, end + tensors[name].nbytes
        dtype, shape = _NAMES[str(tensors[name].dtype)], list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    content = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        for name in ordered:
            values = tensors[name].detach().cpu().contiguous()
            file.write(values.reshape(-1).view(torch.uint8).numpy().data)


def load_tensors(file: OpenedFile) -> dict[str, Tensor]:
    """Return the named tensors of a safetensors file, which are views of it. Raises ModelError as `stored_tensors` does."""
    tensors = {}
    for name, (kind, shape, data) in stored_tensors(file).items():
        dtype: torch.dtype = getattr(torch, _DTYPES[kind])
        flat = torch.frombuffer(data, dtype=dtype) if len(data) else torch.empty(0, dtype=dtype)
        aligned = flat if flat.data_ptr() % dtype.itemsize == 0 else flat.clone()
        tensors[name] = aligned.reshape(shape)
    return tensors


class NetworkFiles(NamedTuple):
    """The verified files of the network of a run."""

    config: ModelConfig
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]
    folder: Path


class TrainedFiles(NamedTuple):
    """The verified model files of a run directory."""

    config: RunConfig
    network: NetworkFiles | None
    """None: the run has no encoder."""
    folder: Run

    def of_encoder(self) -> NetworkFiles:
        """Return the files of the network. Raises UsageError for a run without an encoder."""
        if self.network is None:
            raise UsageError(f"{self.folder}: is a linear model, which has no encoder")
        return self.network


def read_model(run: Path | Run) -> TrainedFiles:
    """Read the model files of a run, which is opened or a path. Raises ModelError as `open_run`, and if they do not fit."""
    folder = open_run(run) if isinstance(run, Path) else run
    config = config_from_file(folder["config.json"])
    network = None if config.network is None else read_network(folder, config.network)
    return TrainedFiles(config, network, folder)


def read_network(folder: Run, config: ModelConfig) -> NetworkFiles:
    """Read the network of a run. Raises ModelError if its tokenizer does not fit the `config`."""
    kind = PretrainedTokenizer if config.encoder.get("name") == PRETRAINED else Tokenizer
    tokenizer = kind.load(folder["tokenizer.json"])
    own, wanted = ((each.vocab_size, each.pad_id, each.separator_id) for each in (tokenizer, config))
    if own != wanted:
        numbers = f"vocab_size, pad_id and separator_id are {own} in tokenizer.json, but {wanted} in config.json"
        raise ModelError(f"{folder}: the tokenizer does not fit the model: {numbers}")
    return NetworkFiles(config, tokenizer, load_tensors(folder["model.safetensors"]), folder.path)


def build_trained(kind: type[Model], files: NetworkFiles, device: torch.device) -> Model:
    """Return the network of `files` on `device`, in evaluation mode.

    Raises ModelError if a classifier has no labels, or if config.json and the weights are inconsistent. This is checked before
    any memory is allocated.
    """
    config, path = files.config, files.folder / "config.json"
    if kind is Classifier and not config.num_classes:
        way_out = "`recur finetune --init` trains a classifier from it"
        raise ModelError(f"{files.folder}: is a pretrained run without classes; {way_out}")
    shapes = [tensor.shape for tensor in files.tensors.values()]
    check_sizes(path, config.encoder, shapes)
    if isinstance(architecture := config.encoder.get("architecture"), dict):  # of a pre-trained encoder
        read_architecture(architecture, f"{path}: encoder.architecture")
        check_sizes(f"{path}: encoder.architecture", architecture, shapes)
    try:
        model = build_from_weights(partial(kind, config), files.tensors, path.with_name("model.safetensors"))
    except (UsageError, ArithmeticError, RuntimeError, TypeError, MemoryError) as error:  # sizes that torch rejects
        raise ModelError(f"{path}: encoder: {escaped(error, limit=1000)}") from None
    return model.to(device).eval()


class _WithoutDraws(TorchFunctionMode):
    """Skips all functions of torch.nn.init. On the meta device they would import torch._dynamo, which is slow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def build_shapes(build: Callable[[], Module]) -> Module:
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


def build_from_weights(build: Callable[[], Module], tensors: Mapping[str, Tensor], source: Path) -> Module:
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
            fault = f"has no tensor {name}; it belongs to another architecture"
        elif name not in expected:
            fault = f"has an unexpected tensor {escaped(name)}; it belongs to another architecture"
        elif (found := tuple(tensors[name].shape)) != (wanted := tuple(expected[name].shape)):
            fault = f"{name} has the shape {found}, but the architecture has {wanted}"
        elif tensors[name].dtype != expected[name].dtype:
            fault = f"{name} has dtype {tensors[name].dtype}, but must have {expected[name].dtype}"
        elif not tensors[name].isfinite().all():
            fault = f"{name} has values that are not finite"
        else:
            continue
        raise ModelError(f"{source}: {fault}")


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each child module, and their `total`."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    own = sum(parameter.numel() for parameter in model.parameters(recurse=False))
    if own:
        parts["head"] = parts.get("head", 0) + own
    return {**parts, "total": sum(parts.values())}
