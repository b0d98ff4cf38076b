"""The contract of every encoder: a module from embeddings to hidden states, and its frozen `Config`.

Shapes here and in every encoder: B batch, T positions, D hidden size, L layers, H heads, K head size.
"""

from typing import Any, ClassVar

from torch import Tensor, nn

LayerStats = dict[str, Any]
"""Numbers and lists of numbers by name; `attention`, weights (B, T, T) or (B, H, T, T) whose rows sum to 1."""


class Encoder(nn.Module):
    """Turns embeddings (B, T, D) into hidden states (B, T, D).

    `mask` (B, T) is bool and True at real tokens; None means that all are real; padding is on the right. What padded
    positions hold never changes a real one, and a row with no real token gives finite numbers. Encoders that add
    positions do so in `forward`. Initial weights come from torch's global generator, which the caller seeds.
    """

    Config: ClassVar[type[Any]]
    """The frozen dataclass that `__init__` takes."""
    concatenates_positions: ClassVar[bool] = False
    """Whether the embedding concatenates a position vector instead of leaving positions to the encoder."""
    adds_positions: bool = False
    """Whether `forward` adds sinusoidal positions: the embedding then makes its rows as long as theirs."""
    layers: nn.ModuleList
    """A layer may have a method `stats` that takes what its `forward` takes and returns `LayerStats`: diagnosis calls it
    beside each forward pass, without gradients, and shows the numbers and the entropy of `attention`."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, D) of the embeddings `x` (B, T, D)."""
        raise NotImplementedError

    def auxiliary_losses(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Weighted scalars that training adds to its loss and logs by name."""
        return {}

    def project_(self) -> None:
        """Bring the weights back to where they must be; called without gradients after each optimiser step."""
