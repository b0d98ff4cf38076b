"""The section `prior` of a preset."""

from dataclasses import dataclass
from typing import Literal

from recurcli.validation import STRICT


@dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """A second classifier whose logits are added to those of the encoder."""

    __pydantic_config__ = STRICT

    kind: Literal["linear"] = "linear"
    """linear: the linear model on n-grams of the training rows, trained apart from the encoder."""
