"""The keys of a preset."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from recurcli.data.config import DataConfig
from recurcli.evaluation.metrics import METRICS
from recurcli.model.config import EmbeddingConfig, Pooling
from recurcli.tokens.config import TokenizerConfig
from recurcli.training.config import FinetuningConfig, OptimizationConfig, PretrainingConfig, RuntimeConfig
from recurcli.validation import STRICT


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One experiment: a task, its data, an encoder, and how it is trained."""

    __pydantic_config__ = STRICT

    task: str
    """The name of a task: its labels, text columns and file names."""
    encoder: dict[str, Any]
    """`name`, and the keys of that encoder's own Config."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the rows are and how much of each is read."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """How text becomes tokens."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """How tokens become vectors."""
    pooling: Pooling = "mean"
    """How the states of a text become one vector."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """`recur pretrain`."""
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)
    """`recur finetune`."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Seed, device, precision."""

    def to_dict(self) -> dict[str, Any]:
        """All keys and values, as preset.yaml has them."""
        return dataclasses.asdict(self)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a preset file, for editors. A file may leave out every key, and may name what it `extends`."""
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
