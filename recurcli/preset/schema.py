"""The keys of a preset."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.encoders import ENCODERS, LINEAR, PRETRAINED
from recurcli.errors import UsageError, escaped
from recurcli.evaluation.metrics import METRICS
from recurcli.linear.config import LinearConfig
from recurcli.model.config import EmbeddingConfig, PairPooling, Pooling
from recurcli.training.config import FinetuningConfig, OptimizationConfig, PretrainingConfig, RuntimeConfig
from recurcli.validation import STRICT, section_of


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One experiment: a task, its data, an encoder, and how it is trained."""

    __pydantic_config__ = STRICT

    task: str
    """The name of a task: its labels, text columns and file names."""
    encoder: dict[str, Any]
    """The encoder's `name`, and the keys of its Config."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the rows are, how they are read, and the maximal length."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """The tokenizer."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """The token embedding."""
    pooling: Pooling = "mean"
    """Pooling of the hidden states of a text to one vector."""
    pair_pooling: PairPooling = "joint"
    """How the head reads a pair. joint: all hidden states pooled to one vector; sides: each text pooled to a vector, u and
    v, and [u; v; |u - v|; u * v] (Conneau et al., EMNLP 2017, section 3)."""
    ensemble: Literal["linear"] | None = None
    """linear: the logits of a linear model on n-grams of the training rows are added to those of the encoder, which is trained
    apart. null: no ensemble."""
    linear: LinearConfig = field(default_factory=LinearConfig)
    """The linear model on n-grams, a baseline and a part of the ensemble."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Settings of `recur pretrain`."""
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)
    """Settings of `recur finetune`."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Seed, device, precision."""

    @property
    def is_linear(self) -> bool:
        """Whether there is no encoder: the linear model is the whole model."""
        return bool(self.encoder["name"] == LINEAR)

    def to_dict(self) -> dict[str, Any]:
        """Return all keys and values, as in preset.yaml."""
        return dataclasses.asdict(self)


def check_encoder_length(encoder: Mapping[str, Any], max_length: int) -> None:
    """Raise UsageError if the key `max_length` of `encoder`, where it has one, is below `max_length` of the data."""
    most = encoder.get("max_length")
    if isinstance(most, int) and most < max_length:
        longer = "" if encoder["name"] == PRETRAINED else f"encoder.max_length to {max_length} or more, or "
        raise UsageError(
            f"encoder.max_length {most} is below data.max_length {max_length}: {escaped(encoder['name'])} cannot read longer "
            f"rows; set {longer}data.max_length to {most} or less",
        )


def preset_keys() -> list[str]:
    """Return all keys of a preset as dotted paths, and those of the encoders of this package."""
    keys = [f"encoder.{key.name}" for encoder in ENCODERS.values() for key in dataclasses.fields(encoder.config)]
    for entry in dataclasses.fields(Preset):
        section = section_of(entry.type)
        keys += [f"{entry.name}.{key.name}" for key in dataclasses.fields(section)] if section else [entry.name]
    return list(dict.fromkeys(keys))


def type_members(path: Sequence[str]) -> tuple[Any, ...]:
    """Return the types that a key may have, a list's as tuple and a mapping's as dict; () if it is unknown or an encoder's."""
    kinds: tuple[Any, ...] = (Preset,)
    for name in path:
        section = next(filter(dataclasses.is_dataclass, kinds), None)
        if section is not None:
            kind: Any = get_type_hints(section).get(name)
        else:
            kind = next((get_args(kind)[1] for kind in kinds if get_origin(kind) is dict), None)
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(get_origin(kind) or kind for kind in kinds if kind is not None)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a preset file, for editors. Every key is optional; `extends` names a parent preset."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Preset).json_schema()
    schema.pop("required", None)
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "The preset that this one changes: a name or path.",
    }
    # pydantic reads the descriptions of a class's own fields only, not those of the fields that it inherits.
    inherited = TypeAdapter(OptimizationConfig).json_schema()["properties"]
    for kind in (PretrainingConfig, FinetuningConfig):
        properties = schema["$defs"][kind.__name__]["properties"]
        properties |= {key: inherited[key] for key in properties.keys() & inherited.keys()}
    properties["metric"]["enum"] = list(METRICS)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
