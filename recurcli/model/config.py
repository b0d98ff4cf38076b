"""What a preset says of the parts of a model around its encoder, and what config.json says of a saved model."""

from dataclasses import dataclass, field
from typing import Any, Literal

from recurcli.validation import STRICT

Pooling = Literal["mean", "max", "first", "last"]
FORMAT_VERSION = 2
"""Of preset.yaml, config.json and the checkpoints of a run; another one is refused."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The token embedding."""

    __pydantic_config__ = STRICT

    vectors: str | None = None
    """Pre-trained word vectors: a word2vec text file whose vectors are as long as encoder.hidden_size (half as long for an
    encoder that wants positions beside them); null = learned."""
    freeze: bool = False
    """Keep the embedding as it is, for training on pre-trained vectors."""
    orthonormal: bool = False
    """Make the columns of the embedding orthonormal, scaled by sqrt(vocabulary / 2) (TransJect); distinct tokens stay so."""
    dropout: float = 0.0
    """Share of the embedding's values set to 0 in training."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), not {self.dropout}")
        if self.freeze and self.vectors is None:
            raise ValueError("freeze needs vectors: a random embedding that never learns is of no use")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All that is needed to build a model again: the contents of config.json (its labels are `id2label` there)."""

    __pydantic_config__ = STRICT

    encoder: dict[str, Any]
    """The encoder's name and keys, as `recurcli.encoders.build_encoder` takes them."""
    vocab_size: int
    """Rows of the embedding."""
    pad_id: int
    """The id that fills up short rows."""
    max_length: int
    """Longest row in tokens that the model was made for."""
    embedding_dropout: float = 0.0
    """Dropout on the embedding."""
    embedding_orthonormal: bool = False
    """Whether the embedding's columns are made orthonormal."""
    pooling: Pooling = "mean"
    """How the states of a row become one vector."""
    labels: tuple[str, ...] = ()
    """Class names in the order of the outputs; empty for a pretrained model."""
    task: str = ""
    """The task that the model was trained on."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """Which columns of the training data made `text` and `pair`; what `predict` looks for first."""

    def __post_init__(self) -> None:
        if self.vocab_size < 1 or self.max_length < 1:
            raise ValueError("vocab_size and max_length must be at least 1")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(f"pad_id {self.pad_id} is no row of an embedding of {self.vocab_size}")

    @property
    def hidden_size(self) -> int:
        """D, of embedding, encoder and head alike."""
        return int(self.encoder["hidden_size"])
