"""What the keys of several encoders have in common."""

from dataclasses import dataclass
from typing import Literal

from recurcli.validation import STRICT

OrthogonalMap = Literal["cayley", "householder"]


def check_sizes(**sizes: int | None) -> None:
    """Raise ValueError with the name of the first size below 1; None is accepted."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def check_probabilities(**probabilities: float) -> None:
    """Raise ValueError with the name of the first value outside [0, 1)."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {probability}")


def head_size(hidden_size: int, num_heads: int) -> int:
    """Return hidden_size / num_heads. Raises ValueError if the division has a remainder."""
    if hidden_size % num_heads:
        raise ValueError(
            f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}; "
            f"change one of them, or set head_size, for example to {-(-hidden_size // num_heads)}"
        )
    return hidden_size // num_heads


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Keys that most encoders share. The defaults are ours, for a small run on a CPU."""

    __pydantic_config__ = STRICT
    hidden_size: int = 256
    """D, the size of embeddings and hidden states."""
    num_layers: int = 4
    """L, the number of layers."""
    dropout: float = 0.1
    """Dropout probability; each encoder's Config says where it applies."""

    def __post_init__(self) -> None:
        check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers)
        check_probabilities(dropout=self.dropout)
