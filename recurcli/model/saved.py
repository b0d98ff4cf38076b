"""Builds models without memory, counts their parameters, finds sizes of equal capacity, and reads and writes weights.

Weights are safetensors, never pickle; config.json has the Hugging Face layout. A size counts the
encoder without embedding and head, so that the capacity does not depend on the vocabulary.
"""

import bisect
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recurcli.config import FORMAT_VERSION, ModelConfig, check_format
from recurcli.encoders import build_encoder
from recurcli.encoders.folder import weight_files
from recurcli.encoders.pretrained import Pretrained, TokenHead
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import OpenedFile, naming_damage, read_header, stored_tensors
from recurcli.model.models import Backbone, LanguageModel
from recurcli.validation import parse_config

Model = TypeVar("Model", bound=nn.Module)


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


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Copy `tensors` into `model`. Raises ModelError as `check_weights` does."""
    check_weights(model, tensors, source)
    model.load_state_dict(dict(tensors))


_OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


class FolderWeights(NamedTuple):
    """Where the tensors of a model are in a folder of Hugging Face's layout."""

    names: dict[str, str]
    """The names in the files, by that of the model of `transformers` and of its head."""
    files: dict[str, Path]
    """The file of each name."""
    bias: str | None
    """The name of the bias of the output; None: the folder has no head for masked tokens with the word embeddings as output
    weights, or none is wanted."""


FLOATS = ("F64", "F32", "F16", "BF16")
"""The types of weights that are read, as the header of a safetensors file names them."""


def find_weights(model: Backbone, folder: Path) -> FolderWeights:
    """Return where the tensors of `model`, whose encoder is the pre-trained one, are in `folder`; it may be on the meta device.

    Only headers are read. Raises ModelError if a name or shape is not that of the folder's config.json.
    """
    encoder = model.encoder
    assert isinstance(encoder, Pretrained)
    if len(model.embedding.weight) > encoder.vocab_size:
        sizes = f"{len(model.embedding.weight):,} tokens, and its config.json a vocab_size of {encoder.vocab_size:,}"
        raise ModelError(f"{folder}: its tokenizer has {sizes}")
    stored = {name: (file, entry) for file in weight_files(folder) for name, entry in read_header(file).items()}
    shapes = {name: tensor.shape for name, tensor in encoder.model.state_dict().items()}
    shapes[encoder.word_embeddings] = torch.Size((encoder.vocab_size, model.embedding.weight.shape[1]))
    names = {name: _place(name, encoder.prefix, stored) for name in shapes}
    bias = None
    if isinstance(model, LanguageModel) and isinstance(model.token_head, TokenHead):
        head = {name: tensor.shape for name, tensor in model.token_head.model.state_dict().items()}
        places = {name: _place(name, encoder.prefix, stored) for name in head}
        if encoder.is_tied and all(place in stored for place in places.values()):
            bias = next((name for name in model.token_head.bias_names if name in stored), None)
        if bias is not None:
            shapes |= {**head, bias: torch.Size((encoder.vocab_size,))}
            names |= {**places, bias: bias}
    for name, place in names.items():
        file, entry = stored.get(place, (weight_files(folder)[0], None))
        if entry is None:
            raise ModelError(f"{file}: has no tensor {name}, which its config.json needs")
        if entry.get("dtype") not in FLOATS:
            kind = escaped(repr(entry.get("dtype")))
            raise ModelError(
                f"{file}: {place} has the type {kind}; recur reads floating-point weights, none that are quantised"
            )
        if (found := list(entry.get("shape", ()))) != list(shapes[name]):
            raise ModelError(f"{file}: {place} has the shape {found}, but its config.json gives {list(shapes[name])}")
    return FolderWeights(names, {place: stored[place][0] for place in names.values()}, bias)


@torch.no_grad()
def load_folder(model: Backbone, weights: FolderWeights) -> None:
    """Copy `weights` into `model`. Rows of the word embeddings that no token has are left out.

    Raises ModelError for a damaged file, and for values that are not finite.
    """
    encoder, rows = model.encoder, len(model.embedding.weight)
    assert isinstance(encoder, Pretrained)
    files = map(OpenedFile, sorted({*weights.files.values()}))
    read = {name: tensor for file in files for name, tensor in load_tensors(file).items()}
    tensors = {name: read[place].float() for name, place in weights.names.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            place = weights.names[name]
            raise ModelError(f"{weights.files[place]}: {place} has values that are not finite")
    encoder.model.load_state_dict({name: tensors[name] for name in encoder.model.state_dict()})
    model.embedding.weight.copy_(tensors[encoder.word_embeddings][:rows])
    segments = encoder.segment_embeddings()
    if segments is not None and model.embedding.second_text is not None:
        model.embedding.second_text.copy_(tensors[segments][1] - tensors[segments][0])
    if isinstance(model, LanguageModel) and isinstance(model.token_head, TokenHead) and weights.bias is not None:
        head = model.token_head.model
        head.load_state_dict({name: tensors[name] for name in head.state_dict()})
        model.token_bias.copy_(tensors[weights.bias][:rows])


def _place(name: str, prefix: str, stored: Mapping[str, Any]) -> str:
    """Return the name of the tensor `name` among the `stored` ones of a base model or of one with a head, or `name` itself."""
    old = next((name.removesuffix(new) + old for new, old in _OLD_NAMES.items() if name.endswith(new)), name)
    names = (f"{before}{same}" for same in (name, old) for before in ("", f"{prefix}."))
    return next((place for place in names if place in stored), name)


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


def config_from_file(file: OpenedFile) -> ModelConfig:
    """Read config.json. Raises ModelError if it is damaged or was not written by recur."""
    path = file.path
    with naming_damage(path):
        values = json.loads(file.read(limit=1 << 22))
        if not isinstance(values, dict) or values.pop("model_type", None) != "recurcli":
            raise ModelError(f"{path}: is not the config.json of a recur model")
        check_format(values.pop("format_version", None), path)
        values.pop("label2id", None)
        names = values.pop("id2label")
        values["labels"] = [names[str(number)] for number in range(len(names))]
        try:
            return parse_config(ModelConfig, values)
        except UsageError as error:
            raise ModelError(f"{path}: {error}") from None


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each child module, and their `total`."""
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    own = sum(parameter.numel() for parameter in model.parameters(recurse=False))
    if own:
        parts["head"] = parts.get("head", 0) + own
    return {**parts, "total": sum(parts.values())}


Key = Literal["hidden_size", "num_layers"]
LARGEST: Mapping[Key, int] = {"hidden_size": 8192, "num_layers": 256}
"""The largest values of the search, which are ours."""


class Size(NamedTuple):
    """The values of the keys that were searched, and the number of parameters of the encoder with them."""

    keys: dict[str, int]
    parameters: int


def encoder_parameters(config: Mapping[str, Any]) -> int:
    """Return the number of parameters of the encoder that `build_encoder(config)` builds. Raises UsageError as it does."""
    return sum(parameter.numel() for parameter in build_shapes(partial(build_encoder, config)).parameters())


def solve_size(config: Mapping[str, Any], target: int, fixed: frozenset[str] = frozenset()) -> Size:
    """Return the size with the number of encoder parameters nearest to `target`. Of two sizes equally near it is the smaller.

    The size is `hidden_size`, in multiples of 8 and of `num_heads`. A numeric `feed_forward_size` keeps its ratio to it. The
    size is `num_layers` if `hidden_size` is among the `fixed` keys. Raises UsageError if both are fixed, if the encoder
    takes no other width, or if the target is outside the range.
    """
    keys: list[Key] = [key for key in LARGEST if isinstance(config.get(key), int) and key not in fixed]
    multiple_of = math.lcm(8, max(1, config.get("num_heads") or 1))
    if not keys:
        raise UsageError("encoder.hidden_size and encoder.num_layers are both fixed, so no size is left to solve for")
    key = keys[0]
    step = multiple_of if key == "hidden_size" else 1

    def sized(multiple: int) -> dict[str, int]:
        return _with_width(config, step * multiple, fixed) if key == "hidden_size" else {key: multiple}

    def count(multiple: int) -> int:
        return encoder_parameters({**config, **sized(multiple)})

    largest, upper = LARGEST[key] // step, 1
    while upper < largest and count(upper) < target:  # so that few large encoders are built
        upper = min(2 * upper, largest)
    if count(1) > target or count(upper) < target:
        raise UsageError(
            f"encoder.{key} from {step:,} to {largest * step:,} gives {count(1):,} to {count(largest):,} encoder parameters, "
            f"so {target:,} cannot be reached; choose a number in this range, or another "
            + ("depth" if key == "hidden_size" else "width")
            + (", encoder.max_length" if "max_length" in config else "")
            + " or encoder"
        )
    above = bisect.bisect_left(range(upper), target, lo=max(1, upper // 2), key=count)
    nearest = min((max(1, above - 1), above), key=lambda multiple: abs(count(multiple) - target))
    return Size(sized(nearest), count(nearest))


def _with_width(config: Mapping[str, Any], width: int, fixed: frozenset[str]) -> dict[str, int]:
    """Return the keys of an encoder of this width. A numeric feed-forward size keeps its ratio to the width."""
    inner = config.get("feed_forward_size")
    if not isinstance(inner, int) or "feed_forward_size" in fixed:
        return {"hidden_size": width}
    return {"hidden_size": width, "feed_forward_size": max(1, round(inner * width / config["hidden_size"]))}
