"""The section `embedding` of a preset, and the keys of config.json."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Lt, MinLen

from recurcli.encoders.config import LINEAR
from recurcli.errors import ModelError, escaped
from recurcli.validation import STRICT, NonNegative, Positive, Probability

Pooling = Literal["mean", "max", "first", "last"]
PairPooling = Literal["joint", "sides"]
LabelType = Literal["str", "int", "float", "bool"]
Label = str | float
"""A label as Python is given it: a string, a number or a bool."""
Buckets = Annotated[int, Ge(1), Lt(2**31)]
NgramLength = Annotated[int, Ge(1), Le(16)]
FORMAT_VERSION = 5
"""Format version of preset.yaml, config.json and checkpoints."""


def check_format(version: object, path: Path) -> None:
    """Raise ModelError if `version`, the format version in the file at `path`, is not FORMAT_VERSION."""
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: has format version {escaped(version)}; this recur reads {FORMAT_VERSION}: "
            "train the run again, or use the recur that wrote it"
        )


@dataclass(frozen=True, kw_only=True)
class NgramEmbeddingConfig:
    """Embeddings of token n-grams, added to those of the tokens."""

    __pydantic_config__ = STRICT

    lengths: Annotated[tuple[Annotated[int, Ge(2), Le(16)], ...], MinLen(1)] = (2, 3)
    """Numbers of tokens of the n-grams."""
    buckets: Buckets = 65536
    """Rows of the table that all n-grams share by their hash."""
    dropout: Probability = 0.5
    """Dropout probability on the sum of the n-gram embeddings of a token."""

    def __post_init__(self) -> None:
        if len(set(self.lengths)) < len(self.lengths):
            raise ValueError(f"lengths must be different numbers, not {list(self.lengths)}")


@dataclass(frozen=True, kw_only=True)
class NgramBagConfig:
    """A bag of n-grams of the whole text; its logits and those of the head are averaged."""

    __pydantic_config__ = STRICT

    tokens: Annotated[tuple[NgramLength, ...], MinLen(1)] = (1, 2)
    """Numbers of tokens of the n-grams of tokens."""
    characters: tuple[NgramLength, ...] = (3, 4, 5)
    """Numbers of characters of the n-grams inside a token; [] means none."""
    buckets: Buckets = 65536
    """Rows of the table that all n-grams share by their hash."""
    size: Positive[int] = 64
    """Columns of the table."""
    dropout: Probability = 0.5
    """Probability that an n-gram is left out of the bag, drawn anew in each step."""

    def __post_init__(self) -> None:
        for name, lengths in (("tokens", self.tokens), ("characters", self.characters)):
            if len(set(lengths)) < len(lengths):
                raise ValueError(f"{name} must be different numbers, not {list(lengths)}")


REQUIRED_VECTORS = "required"
"""`embedding.vectors` of a preset that cannot be trained before a file is named."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The token embedding."""

    __pydantic_config__ = STRICT

    vectors: str | None = None
    """Path of pre-trained vectors of tokens: a text file of word2vec, GloVe or fastText (.vec), or a folder of Model2Vec. Their
    size must be encoder.hidden_size, or half of it if the encoder concatenates positions; null = random initial vectors;
    required = a training must name a file."""
    freeze: bool = False
    """Do not train the rows that the file `vectors` has a vector for. The others are random and are trained."""
    orthonormal: bool = False
    """Make the columns of the embedding orthonormal, scaled by sqrt(V / 2), so that tokens stay distinct (TransJect)."""
    scaled: bool = False
    """Scale the rows to the norm sqrt(W / 2), as if the encoder added sinusoidal positions. false: only where it does, or
    concatenates them; the rows of others have a norm of about 1."""
    dropout: Probability = 0.0
    """Dropout probability on the embeddings."""
    segments: bool = False
    """Add a learned vector to the tokens of the second text of a pair (BERT; Devlin et al., 2019, section 3)."""
    matches: bool = False
    """Add a learned vector to each token of a pair that stands in the other text too (exact match; Chen et al.,
    Reading Wikipedia to Answer Open-Domain Questions, ACL 2017, section 3.2)."""
    ngrams: NgramEmbeddingConfig | None = None
    """Embeddings of token n-grams, added to those of the tokens. null means none."""
    bag: NgramBagConfig | None = None
    """A bag of n-grams of tokens and of characters inside them (fastText), beside the encoder; null: none. Pairs and
    pre-training have none."""

    def __post_init__(self) -> None:
        if self.freeze and self.vectors is None:
            raise ValueError("freeze needs vectors: set embedding.vectors, or freeze to false")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that is needed to rebuild a model; the content of config.json, where `labels` is stored as `id2label`."""

    __pydantic_config__ = STRICT

    encoder: dict[str, Any]
    """The encoder's name and keys, as `recurcli.encoders.build_encoder` takes them."""
    vocab_size: Positive[int]
    """V, the number of rows of the embedding."""
    pad_id: NonNegative[int]
    """The token id of padding."""
    max_length: Positive[int]
    """Maximal number of tokens per row; longer rows are truncated."""
    embedding_dropout: Probability = 0.0
    """Dropout probability on the embeddings."""
    embedding_orthonormal: bool = False
    """Whether the columns of the embedding are orthonormal."""
    embedding_scaled: bool = False
    """Whether the rows of the embedding are scaled even if the encoder has no positions."""
    embedding_segments: bool = False
    """Whether the tokens of the second text of a pair have a learned vector added."""
    embedding_matches: bool = False
    """Whether tokens that stand in both texts of a pair have a learned vector added."""
    embedding_ngrams: NgramEmbeddingConfig | None = None
    """The n-gram embeddings. None means none."""
    embedding_bag: NgramBagConfig | None = None
    """The bag of n-grams. None means none."""
    separator_id: int = -1
    """The token id between the texts of a pair; -1: not known."""
    unknown_id: int = -1
    """The token id of all unknown tokens; -1: there is none."""
    pooling: Pooling = "mean"
    """Pooling of the hidden states of a text to one vector."""
    pair_pooling: PairPooling = "joint"
    """Whether a pair is pooled as one text, or each side for itself."""
    labels: tuple[str, ...] = ()
    """Labels in the order of the logits. It is empty for a pretrained model."""
    label_type: LabelType = "str"
    """Python's type of the labels that a fit in Python was given; `labels` are their names. Those of files are strings."""
    task: str = ""
    """The task that the model was trained on."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """The columns of the training data that were read as `text` and `pair`. `recur predict` looks for these columns first."""

    def __post_init__(self) -> None:
        if not (self.is_linear or isinstance(self.encoder.get("hidden_size"), int)):
            raise ValueError("encoder has no hidden_size")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        if len(set(self.classes)) != len(self.labels):
            raise ValueError(f"labels must be of the type that label_type says, {self.label_type}")
        if self.pad_id >= self.vocab_size:
            raise ValueError(f"pad_id must be below vocab_size, {self.vocab_size}, not {self.pad_id}")

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels as Python gave them. Raises ValueError if a label is not the name of one of this type."""
        read: dict[str, Callable[[str], Label]] = {
            "str": str,
            "int": int,
            "float": float,
            "bool": lambda name: bool(("false", "true").index(name)),
        }
        return tuple(map(read[self.label_type], self.labels))

    @property
    def hidden_size(self) -> int:
        """D, the size of the embeddings and the hidden states."""
        return 1 if self.is_linear else int(self.encoder["hidden_size"])

    @property
    def is_linear(self) -> bool:
        """Whether there is no encoder: the linear model is the whole model."""
        return self.encoder.get("name") == LINEAR
