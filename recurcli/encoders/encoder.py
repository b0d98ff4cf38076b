"""The base class of every encoder.

Shapes here and in every encoder: B batch, T positions, D hidden size, L layers, H heads, K head size.
"""

from typing import Any, ClassVar

from torch import Tensor, nn

LayerStats = dict[str, Any]
"""Numbers and lists of numbers by name. `attention` is a tensor (B, T, C) or (B, H, T, C) of weights on C keys, whose rows sum
to 1."""

PADDING_LIMIT = 1e10
"""The largest magnitude of values at padded positions. Ours: squares of much larger ones overflow float32, and a mask does not
stop the NaN that they become. TokenEmbedding gives padding the vector of a token."""


class Encoder(nn.Module):
    """Maps embeddings (B, T, D) to hidden states (B, T, D).

    `mask` (B, T) is bool and True at real tokens; None: all tokens are real. Padding is on the right. What padded positions
    hold, up to PADDING_LIMIT in magnitude, never changes the states of real tokens, and a row without real tokens gives finite
    numbers. An encoder adds positions in `forward`, if it needs them. Initial weights are drawn from torch's global generator,
    which the caller seeds.
    """

    Config: ClassVar[type[Any]]
    """The frozen dataclass that `__init__` takes."""
    concatenates_positions: ClassVar[bool] = False
    """Whether TokenEmbedding concatenates a position vector to each token vector (TransJect)."""
    adds_positions: bool = False
    """Whether `forward` adds sinusoidal positions, or attends to them. TokenEmbedding then scales its rows to their norm."""
    scalar_names: ClassVar[tuple[str, ...]] = ()
    """Names of vector parameters that hold one scalar for each head. They have the scalars' learning rate."""
    scratch_learning_rate: ClassVar[float] = 1e-3
    """Learning rate from fresh weights where the preset says null; ours."""
    pretrained_learning_rate: ClassVar[float] = 1e-4
    """Learning rate after pre-training where the preset says null (Xu, Hu & Tang, 2021, section 4: StarSaber)."""
    full_below: int | None = None
    """The number of tokens below which a text does not reach what distinguishes the encoder; None: there is no such number."""
    when_full: ClassVar[tuple[str, str]] = ("its attention is full", "the Transformer with its encoder.norm computes")
    """What holds below `full_below`, and what the encoder then computes, for a note."""
    export_obstacle: str = ""
    """The reason why this encoder cannot be exported to ONNX, for error messages; empty if it can."""
    layers: nn.ModuleList
    """A layer may have a method `stats` with the arguments of its `forward`, which returns `LayerStats`. `recur eval
    --diagnose` calls it without gradients and shows its numbers, the entropy of `attention`, and that of the values of each of
    `experts` (E, B, T, D)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of the embeddings `x` (B, T, D)."""
        raise NotImplementedError

    def auxiliary_losses(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return weighted scalars by name. Training adds them to its loss and logs them."""
        return {}

    def stats(self) -> LayerStats:
        """Return numbers and lists of numbers by name about the whole encoder, after a forward pass; `recur eval --diagnose`
        shows them."""
        return {}

    def project_(self) -> None:
        """Project the weights onto their constraint set; called without gradients after each optimiser step."""
