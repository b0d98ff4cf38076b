"""The settings of the linear model."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from recurcli.validation import STRICT

Range = tuple[int, int]
"""Shortest and longest n-gram."""
MAX_NGRAM = 16
"""Longest n-gram that is counted."""


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """The linear model on n-grams. What is `auto` is chosen by cross-validation on the training rows."""

    __pydantic_config__ = STRICT

    c: Annotated[float, Ge(1e-6), Le(1e6)] | Literal["auto"] = "auto"
    """LinearSVC's C: the smaller, the stronger the regularization."""
    characters: Range | Literal["auto"] | None = "auto"
    """Shortest and longest n-gram of characters. null means none."""
    words: Range | Literal["auto"] | None = "auto"
    """Shortest and longest n-gram of words. null means none."""
    across_words: bool | Literal["auto"] = "auto"
    """Whether n-grams of characters go across words; false: they lie in one word and a space before and after it."""

    def __post_init__(self) -> None:
        for name in ("characters", "words"):
            given = getattr(self, name)
            if given not in ("auto", None) and not 1 <= given[0] <= given[1] <= MAX_NGRAM:
                raise ValueError(f"{name} must be [shortest, longest] from 1 to {MAX_NGRAM}, not {list(given)}")
        if self.characters is None and self.words is None:
            raise ValueError("characters must not be null where words is null too; a linear model counts one of them")
