"""What a folder in Hugging Face's layout says of its encoder, read without torch and without transformers.

Only safetensors are read. A name of the Hub stands for its folder in Hugging Face's cache.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import naming_damage, read_limited
from recurcli.requirements import check_packages

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "model*.safetensors", INDEX)
"""What is fetched of a model of the Hub. Pickles and code are not."""
MAX_CONFIG = 1 << 20
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Family(NamedTuple):
    """The names under which a family's config.json has its sizes, and how it counts positions."""

    hidden_size: str = "hidden_size"
    num_layers: str = "num_hidden_layers"
    after_padding: bool = False
    """Whether the first position has the number padding_idx + 1."""


FAMILIES = {
    **dict.fromkeys(("bert", "electra", "albert", "deberta-v2", "modernbert", "ernie"), Family()),
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet"), Family(after_padding=True)),
    "distilbert": Family("dim", "n_layers"),
}
"""The families, by `model_type`."""
_NOT_ARCHITECTURE = re.compile(
    r"_.*|id2label|label2id|num_labels|(torch_)?dtype|transformers_version|auto_map|problem_type|finetuning_task"
    r"|task_specific_params|output_.*|return_dict|use_cache|gradient_checkpointing"
)


def check_transformers() -> None:
    """Raise UsageError if transformers is not installed, or too old."""
    check_packages("hf", "the encoder pretrained")


def folder_of(path: str, *, download: bool = False) -> Path:
    """Return the folder at `path`, or of the model of that name in Hugging Face's cache.

    With `download`, a model that is not in the cache is fetched, unless HF_HUB_OFFLINE is set. Raises UsageError if there
    is none.
    """
    if Path(path).is_dir():
        return Path(path)
    if not _HUB_NAME.fullmatch(path):
        raise UsageError(f"encoder.path {escaped(path)}: is no folder")
    from huggingface_hub import snapshot_download

    fault: object = ""
    for local_files_only in (True, False)[: 1 + download]:
        try:
            return Path(snapshot_download(path, allow_patterns=list(FILES), local_files_only=local_files_only))
        except Exception as error:  # of many kinds: no network, no such model, no permission
            fault = next(iter(str(error).splitlines()), type(error).__name__) if not local_files_only else ""
    raise UsageError(
        f"encoder.path {escaped(path)}: is no folder, and no model of this name is in Hugging Face's cache"
        + (f" or can be fetched ({escaped(fault)})" if fault else "")
    )


def read_folder(folder: Path) -> dict[str, Any]:
    """Return the keys of PretrainedConfig that the config.json in `folder` gives.

    Raises ModelError if the folder has no config.json of a known encoder, no safetensors or no tokenizer.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder}: has no config.json; it is not a model in Hugging Face's layout")
    with naming_damage(path):
        values = json.loads(read_limited(path, MAX_CONFIG))
        if not isinstance(values, dict):
            raise ValueError("it must be a mapping")
        keys = _sizes(values, path)
    _check_files(folder, values.get("architectures"))
    return keys


def _sizes(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    kind = values.get("model_type")
    known = ", ".join(sorted(FAMILIES))
    if kind == "recurcli":
        raise ModelError(
            f"{path}: is a run of recur; `recur finetune --init {escaped(quote(str(path.parent)))}` starts from it"
        )
    if kind not in FAMILIES:
        raise ModelError(
            f"{path}: model_type is {escaped(repr(kind))}, which is no encoder that recur reads; it reads {known}"
        )
    if values.get("is_decoder") or values.get("is_encoder_decoder"):
        raise ModelError(f"{path}: is a decoder; recur reads encoders, which see the tokens on both sides")
    if values.get("quantization_config"):
        raise ModelError(
            f"{path}: has a quantization_config; recur reads floating-point weights, none that are quantised"
        )
    family = FAMILIES[kind]
    numbers = {}
    for key, name in (
        ("hidden_size", family.hidden_size),
        ("num_layers", family.num_layers),
        ("max_length", "max_position_embeddings"),
    ):
        number = values.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ModelError(f"{path}: {name} must be a whole number above 0, not {escaped(repr(number))}")
        numbers[key] = number
    for name in ("type_vocab_size", "vocab_size", "pad_token_id"):
        number = values.get(name, 0)
        if number is None and name == "pad_token_id" and not family.after_padding:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ModelError(f"{path}: {name} must be a whole number from 0, not {escaped(repr(number))}")
    if family.after_padding:
        numbers["max_length"] -= values.get("pad_token_id", 1) + 1
        if numbers["max_length"] < 1:
            places = values["max_position_embeddings"]
            raise ModelError(
                f"{path}: max_position_embeddings must be above pad_token_id + 1, since positions begin there, not {places}"
            )
    architecture = {key: value for key, value in values.items() if not _NOT_ARCHITECTURE.fullmatch(key)}
    return {**numbers, "architecture": architecture}


def _check_files(folder: Path, architectures: object) -> None:
    """Raise ModelError if weights or a tokenizer are missing; `architectures` are the classes that config.json names."""
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    made_by = first if isinstance(first, str) and first.isidentifier() else "AutoModel"
    place = escaped(repr(str(folder)), 300)
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickles = sorted(found.name for found in folder.glob("*.bin"))
        if pickles:
            raise ModelError(
                f"{folder / pickles[0]}: is a pickle, which runs code when it is read, so recur does not read it; if you trust "
                f'it, convert it: python -c "from transformers import {made_by} as M; '
                f'M.from_pretrained({place}).save_pretrained({place})"'
            )
        raise ModelError(f"{folder}: has no {WEIGHTS}")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise no_tokenizer(folder)


def no_tokenizer(folder: Path) -> ModelError:
    """Return the error for a folder without a tokenizer that recur reads, with the line that makes one."""
    place = escaped(repr(str(folder)), 300)
    return ModelError(
        f"{folder}: has no tokenizer.json and no vocab.txt of WordPiece; this makes one: python -c "
        f'"from transformers import AutoTokenizer as T; T.from_pretrained({place}).save_pretrained({place})"'
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of `folder`: one, or those that its index names. Raises ModelError for a damaged index."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    with naming_damage(folder / INDEX):
        names = sorted(set(json.loads(read_limited(folder / INDEX, 1 << 24))["weight_map"].values()))
        if any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
            raise ValueError("weight_map must name safetensors files of its folder")
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder}: has no {escaped(name)}, which {INDEX} names")
    return [folder / name for name in names]
