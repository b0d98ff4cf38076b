"""A trained model in a run directory: config.json, the files of its candidates, a manifest of their hashes, and the rows that
the model was trained on and selected on, as hashes of their texts.

Weights are safetensors, never pickle. The file names are those of Hugging Face, and the keys are ours: `transformers` loads
the tokenizer alone.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from recurcli.config import FORMAT_VERSION, ModelConfig, RunConfig, check_format
from recurcli.data.known import KnownRows
from recurcli.encoders import PRETRAINED
from recurcli.encoders.folder import check_sizes, read_architecture
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import (
    MANIFEST,
    CommittedFolder,
    OpenedFile,
    extend_manifest,
    naming_damage,
    stored_arrays,
    stored_tensors,
    to_json,
    write_atomically,
    write_manifest,
)
from recurcli.linear.model import LinearModel
from recurcli.linear.static_vectors import StaticVectors
from recurcli.log import Log
from recurcli.metrics import MAX_IN_FULL
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.run_directory import (
    CANDIDATE_FILES,
    KEPT,
    KNOWN_ROWS,
    LINEAR_FIRST_FIT,
    LINEAR_MODEL,
    VECTORS,
    WRITTEN_AFTER_MODEL,
    Run,
    open_run,
)
from recurcli.targets import Cell
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.tokenizer import Tokenizer
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


Model = TypeVar("Model", Classifier, LanguageModel)
MAX_PROBABLE = 10
"""Probabilities of a row in predictions.dev.jsonl if there are more than MAX_IN_FULL classes. Of several labels a row has more,
those by which it gets a label."""


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


def write_model(folder: Path, config: RunConfig, files: Files, *, first: bool) -> None:
    """Write the model `files` into `folder`. The manifest is removed first and written last, so no partial model verifies.

    The `first` model of a training brings all files. Those that later ones do not bring stay as they are.
    """
    old = CANDIDATE_FILES if first else ()  # a training before may have had other candidates
    for name in (MANIFEST, *WRITTEN_AFTER_MODEL, *old):  # all but the first belong to the model before
        (folder / name).unlink(missing_ok=True)
    for name, content in {"config.json": to_json(config_to_dict(config)), **files}.items():
        write_atomically(folder / name, content)
    present = (name for name in (*CANDIDATE_FILES, KNOWN_ROWS, KEPT) if (folder / name).is_file())
    write_manifest(folder, ("config.json", *present))


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


def read_model(run: Path | Run) -> TrainedFiles:
    """Read the model files of a run, which is opened or a path. Raises ModelError as `open_run`, and if they do not fit."""
    folder = open_run(run) if isinstance(run, Path) else run
    config = config_from_file(folder["config.json"])
    network = None if config.network is None else _read_network(folder, config.network)
    return TrainedFiles(config, network, folder)


def _read_network(folder: Run, config: ModelConfig) -> NetworkFiles:
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
