"""The keys `tokenizer.*` of a preset; importable without torch."""

from dataclasses import dataclass
from typing import Literal

from recurcli.validation import STRICT

TokenizerKind = Literal["auto", "char", "wordpiece", "bpe", "byte", "whitespace"]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How texts are tokenised."""

    __pydantic_config__ = STRICT

    kind: TokenizerKind = "char"
    """What a token is: a character, a subword (wordpiece, bpe), a byte, or a word between whitespace. auto: wordpiece, or
    char where the script of the training texts has no spaces between words."""
    vocab_size: int = 8000
    """Largest size of the trained vocabulary, special tokens included; byte always has 259."""
    min_frequency: int = 2
    """Least number of times that a token of the vocabulary occurs in the training texts."""
    lowercase: bool = True
    """Convert texts to lower case; byte and whitespace tokens keep their case."""
    vocabulary: str | None = None
    """A text file with one token a line, such as BERT's vocab.txt; null: the vocabulary is trained."""

    def __post_init__(self) -> None:
        if self.vocab_size < 8:
            raise ValueError(f"vocab_size must be at least 8, not {self.vocab_size}")
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency must be at least 1, not {self.min_frequency}")
        if self.vocabulary is not None and self.kind not in ("auto", "char", "wordpiece", "whitespace"):
            raise ValueError(f"vocabulary is for kind char, wordpiece or whitespace, not {self.kind}")
        if self.vocabulary == "":
            raise ValueError("vocabulary must not be empty; leave it out, or write null")
