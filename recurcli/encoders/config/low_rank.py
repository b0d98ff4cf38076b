"""The keys of the efficient Transformers whose attention has a low rank or a learned pattern."""

from dataclasses import dataclass
from typing import Literal

from recurcli.encoders.config.attention import PreNormConfig
from recurcli.encoders.config.base import check_sizes

MAX_ITERATIONS = 16
SynthesizerKind = Literal["dense", "random", "factorised"]


@dataclass(frozen=True, kw_only=True)
class LinformerConfig(PreNormConfig):
    """Keys of Linformer."""

    projected_length: int = 128
    """k, the number of rows to which keys and values are projected; 128 in the long-range table."""
    max_length: int = 512
    """Largest number of tokens of a row, at least `data.max_length`; E has a column for each. 512 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(projected_length=self.projected_length, max_length=self.max_length)


@dataclass(frozen=True, kw_only=True)
class PerformerConfig(PreNormConfig):
    """Keys of the Performer."""

    num_features: int = 128
    """M, the number of random features per head; 128 in the long-range table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_features=self.num_features)


@dataclass(frozen=True, kw_only=True)
class NystromformerConfig(PreNormConfig):
    """Keys of Nyströmformer."""

    num_landmarks: int = 128
    """M, the number of landmarks of a row; a row of fewer tokens has one per token. 128 in the long-range table."""
    iterations: int = 6
    """Number of iterations of the pseudo-inverse; 6 in the paper, and at most 16, because each one multiplies rounding errors
    by about 3: in float32 the attention is off by 0.00002 after 14, and by 0.7 after 30."""
    convolution_size: int | None = None
    """Kernel size of a depth-wise convolution over the values, added to the attention; must be odd. null: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(
            num_landmarks=self.num_landmarks, iterations=self.iterations, convolution_size=self.convolution_size
        )
        if self.iterations > MAX_ITERATIONS:
            raise ValueError(
                f"iterations must be at most {MAX_ITERATIONS}, not {self.iterations}: rounding errors grow with each"
            )
        if self.convolution_size is not None and self.convolution_size % 2 == 0:
            raise ValueError(f"convolution_size must be odd, not {self.convolution_size}")


@dataclass(frozen=True, kw_only=True)
class SynthesizerConfig(PreNormConfig):
    """Keys of the Synthesizer."""

    kind: SynthesizerKind = "dense"
    """Where the attention weights come from. dense: each token's state; random: learned, one (T, T) matrix per head for all
    texts; factorised: learned, the product of two matrices of rank `rank`. The default is ours."""
    rank: int = 32
    """Rank of the factorised kind; 8 in the paper."""
    max_length: int = 512
    """Largest number of tokens of a row, at least `data.max_length`; the learned weights have a row for each. 512 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(rank=self.rank, max_length=self.max_length)


@dataclass(frozen=True, kw_only=True)
class SkyformerConfig(PreNormConfig):
    """Keys of Skyformer."""

    num_landmarks: int = 128
    """M, the number of landmarks of a row, half queries and half keys; must be even. A row of fewer than M / 2 tokens has two
    per token. 128 in the long-range table."""
    iterations: int = 6
    """Number of iterations of the inverse; 6 leave a relative error of 0.001 to 0.02."""
    gamma: float = 0.1
    """Added to the diagonal of the landmarks' kernel, so that it can be inverted; 0.1 in the released code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_landmarks=self.num_landmarks, iterations=self.iterations)
        if self.num_landmarks % 2:
            raise ValueError(f"num_landmarks must be even, not {self.num_landmarks}")
        if not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma must be at least 0, not {self.gamma}")
