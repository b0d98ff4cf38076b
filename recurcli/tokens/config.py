"""What a preset says about tokens; importable without torch."""

from dataclasses import dataclass
from typing import Literal

from recurcli.validation import STRICT

TokenizerKind = Literal["char", "wordpiece", "bpe", "byte", "whitespace"]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How texts become tokens."""

    __pydantic_config__ = STRICT

    kind: TokenizerKind = "char"
    """What a token is: a character, a subword (wordpiece, bpe), a byte, or a word between whitespace."""
    vocab_size: int = 8000
    """Most entries that the trained vocabulary may have, special tokens included; byte has always 259."""
    min_frequency: int = 2
    """How often a token must occur in the training texts to enter the vocabulary."""
    lowercase: bool = True
    """Lower-case texts first; byte and whitespace tokens always keep their case."""
    vocabulary: str | None = None
    """A text file with one token a line, such as BERT's vocab.txt, to use instead of training one."""

    def __post_init__(self) -> None:
        if self.vocab_size < 8:
            raise ValueError(f"vocab_size must be at least 8, not {self.vocab_size}")
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency must be at least 1, not {self.min_frequency}")
        if self.vocabulary is not None and self.kind not in ("char", "wordpiece", "whitespace"):
            raise ValueError(f"vocabulary is for kind char, wordpiece or whitespace, not {self.kind}")
        if self.vocabulary == "":
            raise ValueError("vocabulary must not be empty; leave it out, or write null")
