"""The options of `recur bench`; importable without torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recurcli.errors import UsageError, did_you_mean, escaped

MODES = ("training", "inference")
PRECISIONS = ("fp32", "bf16", "auto")
HIDDEN_SIZE, LAYERS, DROPOUT = 256, 4, 0.1
"""The width, depth and dropout if neither an option nor a preset gives them. They are the defaults of the encoders."""
LARGEST = 1 << 20
"""The largest number in a list of widths, depths, batch sizes or lengths."""


@dataclass(frozen=True)
class BenchRequest:
    """The options of `recur bench`.

    A setting is one combination of mode, precision, width, depth, batch size and length.
    """

    encoders: Sequence[str] = ()
    """The names of the encoders. Without names, the encoder of the preset is measured or, without a preset, every encoder."""
    preset: str | None = None
    """The preset whose encoder is measured with its own settings. None if there is no preset."""
    lengths: tuple[int, ...] = (32, 128)
    batch_sizes: tuple[int, ...] = (32,)
    hidden_sizes: tuple[int, ...] | None = None
    """The widths; None means the width of the preset, or HIDDEN_SIZE without a preset."""
    layers: tuple[int, ...] | None = None
    """The depths; None means the depth of the preset, or LAYERS without a preset."""
    precisions: tuple[str, ...] = ("auto",)
    modes: tuple[str, ...] = MODES
    dropout: float | None = None
    """The dropout probability of encoders and peers; None means that of the preset, or DROPOUT without a preset."""
    attention_dropout: float = 0.0
    """The dropout probability on attention weights, in the peers and in the encoders that have this dropout."""
    match: str | None = None
    """The number of encoder parameters, or a preset that has it. None if all candidates are equally wide."""
    rounds: int = 7
    peers: bool = True
    device: str = "auto"

    def __post_init__(self) -> None:
        for option, value in (("--dropout", self.dropout), ("--attention-dropout", self.attention_dropout)):
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"{option}: must be at least 0 and below 1, not {value}")
        if self.match is not None and self.hidden_sizes is not None:
            raise UsageError("--match-parameters solves for the width, so it excludes --hidden-size; leave out one")


@dataclass(frozen=True)
class Setting:
    """The mode, the precision and the sizes that all candidates of one comparison share."""

    mode: Literal["training", "inference"]
    precision: Literal["fp32", "bf16"]
    hidden_size: int | None
    """The width of all candidates. None if each one has its own (`--match-parameters`)."""
    num_layers: int | None
    """The depth of all candidates. None if each one iterates a layer."""
    batch_size: int
    length: int

    def to_json(self) -> dict[str, Any]:
        """Return the setting for `--json`, with the number of tokens of a step."""
        return {**vars(self), "tokens": self.batch_size * self.length}


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 32,128 in ascending order. Raises UsageError with the name `option`."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,7}", part) or not 1 <= int(part) <= LARGEST:
            raise UsageError(
                f"{option}: '{escaped(part)}' is not a whole number from 1 to {LARGEST:,}; a list is written 32,128"
            )
    return tuple(sorted({int(part) for part in parts}))


def words(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a list such as fp32,bf16 without repetitions.

    Raises UsageError with the name `option` for a word that is not among the `known` ones.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in known:
            raise UsageError(f"{option}: no '{escaped(part)}'" + did_you_mean(part, known))
    return tuple(dict.fromkeys(parts))
