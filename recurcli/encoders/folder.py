"""What a folder in Hugging Face's layout says of its encoder, read without torch and without transformers.

Only safetensors are read. A name of the Hub stands for its folder in Hugging Face's cache.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import naming_damage, read_header, read_limited

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "model*.safetensors", INDEX)
"""What is fetched of a model of the Hub. Pickles and code are not."""
MAX_CONFIG = 1 << 20
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Family(NamedTuple):
    """What a family's config.json says of its encoder, and how it counts positions."""

    keys: str
    """The keys that are passed on to `transformers`: those that shape the encoder and its head for masked tokens."""
    hidden_size: str = "hidden_size"
    num_layers: str = "num_hidden_layers"
    after_padding: bool = False
    """Whether the first position has the number padding_idx + 1."""


_OF_ALL = "vocab_size max_position_embeddings pad_token_id initializer_range tie_word_embeddings"
_OF_MOST = (
    f"{_OF_ALL} hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act layer_norm_eps "
    "hidden_dropout_prob attention_probs_dropout_prob"
)
_BERT = f"{_OF_MOST} type_vocab_size"
_DISTILBERT = f"{_OF_ALL} dim n_layers n_heads hidden_dim activation dropout attention_dropout sinusoidal_pos_embds"
_DEBERTA = (
    f"{_BERT} relative_attention max_relative_positions position_buckets norm_rel_ebd share_att_key pos_att_type "
    "position_biased_input attention_head_size embedding_size conv_kernel_size conv_groups conv_act"
)
_MODERNBERT = (
    f"{_OF_ALL} hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_activation norm_eps norm_bias "
    "attention_bias mlp_bias decoder_bias classifier_bias classifier_activation attention_dropout embedding_dropout "
    "mlp_dropout initializer_cutoff_factor local_attention global_attn_every_n_layers layer_types rope_parameters "
    "global_rope_theta local_rope_theta"
)
FAMILIES = {
    "bert": Family(_BERT),
    "electra": Family(f"{_BERT} embedding_size"),
    "albert": Family(f"{_BERT} embedding_size num_hidden_groups inner_group_num"),
    "deberta-v2": Family(_DEBERTA),
    "modernbert": Family(_MODERNBERT),
    "ernie": Family(f"{_BERT} task_type_vocab_size use_task_id"),
    **dict.fromkeys(("roberta", "xlm-roberta"), Family(_BERT, after_padding=True)),
    "mpnet": Family(f"{_OF_MOST} relative_attention_num_buckets", after_padding=True),
    "distilbert": Family(_DISTILBERT, "dim", "n_layers"),
}
"""The families, by `model_type`.

A key of config.json that a family does not list never reaches `transformers`. It is not an error, since files of the Hub have
many that no encoder reads; one that would change what the encoder computes is (`_REFUSED`).
"""
_REFUSED: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("is_decoder", "is_encoder_decoder", "add_cross_attention", "quantization_config"), ()),
    **dict.fromkeys(("chunk_size_feed_forward", "pruned_heads", "per_layer_config"), ()),
    "attn_implementation": ("sdpa", "eager"),
    "position_embedding_type": ("absolute",),
}
"""Keys that would change what is computed, with the values that do not beside those that are false."""
_COUNTS = ("type_vocab_size", "vocab_size", "pad_token_id")
"""Numbers that may be 0 or missing."""
MAX_REPEATS = 100
"""Most layers of a model that does not have as many tensors, since its layers share weights; ALBERT has 12 or 24."""
_LAYERS = ("num_layers", "num_hidden_layers", "n_layers", "num_hidden_groups", "inner_group_num")
_SIZES = ("hidden_size", "dim", "num_heads", "head_size")


def folder_of(path: str, *, download: bool = False, key: str = "encoder.path", files: Sequence[str] = FILES) -> Path:
    """Return the folder at `path`, or of the model of that name in Hugging Face's cache.

    With `download`, the `files` of a model that is not in the cache are fetched, unless HF_HUB_OFFLINE is set. Raises
    UsageError, which names the preset's `key`, if there is none.
    """
    if Path(path).is_dir():
        return Path(path)
    if not _HUB_NAME.fullmatch(path):
        raise UsageError(f"{key} {escaped(path)}: is not a folder")
    from huggingface_hub import snapshot_download

    fault: object = ""
    for local_files_only in (True, False)[: 1 + download]:
        try:
            return Path(snapshot_download(path, allow_patterns=list(files), local_files_only=local_files_only))
        except Exception as error:  # of many kinds: no network, no such model, no permission
            fault = next(iter(str(error).splitlines()), type(error).__name__) if not local_files_only else ""
    raise UsageError(
        f"{key} {escaped(path)}: is not a folder, and no model of this name is in Hugging Face's cache"
        + (f" or can be fetched ({escaped(fault)})" if fault else "")
    )


def read_folder(folder: Path) -> dict[str, Any]:
    """Return the keys of PretrainedConfig that the config.json in `folder` gives.

    Raises ModelError if the folder has no config.json of a known encoder, no safetensors, no tokenizer, or as `check_sizes`.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder}: has no config.json; it is not a model in Hugging Face's layout")
    with naming_damage(path):
        values = json.loads(read_limited(path, MAX_CONFIG))
        if not isinstance(values, dict):
            raise ValueError("it must be a mapping")
        if values.get("model_type") == "recurcli":
            start = f"`recur finetune --init {escaped(quote(str(folder)))}` starts from it"
            raise ModelError(f"{path}: is a run of recur; {start}")
        architecture = read_architecture(values, path)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise ModelError(f"{folder}: has no tokenizer.json and no vocab.txt of WordPiece")
    shapes: list[Sequence[int]] = []
    for file in weight_files(folder):
        with naming_damage(file):
            shapes += (tuple(dict(entry).get("shape", ())) for entry in read_header(file).values())
    check_sizes(path, values, shapes)
    return architecture


def read_architecture(values: Mapping[str, Any], where: Path | str) -> dict[str, Any]:
    """Return the keys of PretrainedConfig that the content `values` of a config.json gives; others of it are left out.

    Raises ModelError, which begins with `where`, for another model_type and for a key that recur cannot read.
    """
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ModelError(
            f"{where}: model_type is {escaped(repr(kind))}, which is not an encoder that recur reads; it reads {known}"
        )
    for key, harmless in _REFUSED.items():
        if (value := values.get(key)) and value not in harmless:
            raise ModelError(f"{where}: {key} is {escaped(repr(value), 60)}; recur reads encoders without it")
    for name in (family.hidden_size, family.num_layers, "max_position_embeddings", *_COUNTS):
        least = int(name not in _COUNTS)
        number = values.get(name, None if least else 0)
        if number is None and name == "pad_token_id" and not family.after_padding:
            continue
        if type(number) is not int or number < least:
            raise ModelError(f"{where}: {name} must be a whole number from {least}, not {escaped(repr(number))}")
    layers, positions = values[family.num_layers], values["max_position_embeddings"]
    max_length = positions - (values.get("pad_token_id", 1) + 1 if family.after_padding else 0)
    if max_length < 1:
        why = f"must be above pad_token_id + 1, since positions begin there, not {positions}"
        raise ModelError(f"{where}: max_position_embeddings {why}")
    numbers = {"hidden_size": values[family.hidden_size], "num_layers": layers, "max_length": max_length}
    keys = ("model_type", *family.keys.split())
    return {**numbers, "architecture": {key: values[key] for key in keys if key in values}}


def check_sizes(where: Path | str, values: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> None:
    """Raise ModelError if an encoder's `values` claim more layers or a larger size than tensors of these `shapes` have.

    So a giant is refused before a module of it is built; `check_weights` compares the rest.
    """
    largest = max((size for shape in shapes for size in shape), default=0)
    for keys, limit in ((_LAYERS, max(len(shapes), MAX_REPEATS)), (_SIZES, largest)):
        for key in keys:
            if isinstance(number := values.get(key), int) and number > limit:
                raise ModelError(f"{where}: {key} is {escaped(number, 40)}, and the weights allow {limit} at most")


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of `folder`: one, or those that its index names.

    Raises ModelError if there are none, or the index is damaged.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        if pickles := sorted(folder.glob("*.bin")):
            why = "is a pickle, which runs code when it is read, so recur does not read it"
            raise ModelError(f"{pickles[0]}: {why}; save the model as safetensors")
        raise ModelError(f"{folder}: has no {WEIGHTS}")
    with naming_damage(folder / INDEX):
        names = sorted(set(json.loads(read_limited(folder / INDEX, 1 << 24))["weight_map"].values()))
        if any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
            raise ValueError("weight_map must name safetensors files of its folder")
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"{folder}: has no {escaped(name)}, which {INDEX} names")
    return [folder / name for name in names]
