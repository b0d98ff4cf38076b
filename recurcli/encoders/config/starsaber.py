"""The keys of StarSaber and gated StarSaber."""

from dataclasses import dataclass
from typing import Literal

from recurcli.encoders.config.base import EncoderConfig, check_probabilities, check_sizes
from recurcli.validation import STRICT

Gate = Literal["gru_light", "gru", "lstm"]


@dataclass(frozen=True, kw_only=True)
class StarSaberConfig:
    """Keys of StarSaber."""

    __pydantic_config__ = STRICT
    hidden_size: int = 256
    """D, the size of embeddings and hidden states."""
    num_layers: int | None = 4
    """L, the number of layers; must be null if `tied`."""
    alpha_init: float = 1.0
    """Initial alpha, the weight of a layer's update in the residual sum; 1 in the paper, 0 in ReZero."""
    position: Literal["directional", "sinusoidal"] = "directional"
    """Encoding of word order. directional: separate matrices for past and future; sinusoidal: one matrix, and sinusoidal
    positions added to x."""
    direct_path: bool = True
    """Whether every layer adds V x, a linear map of the embeddings."""
    bias: bool = False
    """Whether a bias is added inside tanh."""
    dropout: float = 0.1
    """Dropout probability on a layer's update, before the residual sum; ours."""
    tied: bool = False
    """Tied form: one layer without a residual path, iterated to convergence (the paper, section 3.2)."""
    tolerance: float = 1e-6
    """Tied form: a row has converged when no state changes by more than this in one iteration (2-norm). If `causal`, a position
    stops when it and all earlier ones have converged."""
    max_iterations: int = 100
    """Tied form: maximal number of iterations of a row, or of a position if `causal`."""
    causal: bool = False
    """Whether a position attends to earlier positions alone, with the past matrices (one-sided; ours), and reads itself through
    its state and the direct path (true), or attends to all positions (false)."""
    initial: Literal["input", "zero", "linear"] = "input"
    """The first hidden states: the embeddings (eq. 5), zeros, or a linear map of the embeddings."""

    def __post_init__(self) -> None:
        check_sizes(hidden_size=self.hidden_size, max_iterations=self.max_iterations, num_layers=self.num_layers)
        check_probabilities(dropout=self.dropout)
        if self.tied and self.num_layers is not None:
            raise ValueError(f"num_layers must be null with tied weights, not {self.num_layers}")
        if not self.tied and self.num_layers is None:
            raise ValueError("num_layers must be a number unless the weights are tied, not null")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must be at least 0, not {self.tolerance}")


@dataclass(frozen=True, kw_only=True)
class GatedStarSaberConfig(EncoderConfig):
    """Keys of the gated StarSaber."""

    gate: Gate = "gru_light"
    """Form of the gates. gru_light: computed from the position's state, 8 D² parameters per layer; gru and lstm: computed by
    attention, 10 D² and 13 D²."""
    dropout: float = 0.1
    """Dropout probability on a layer's candidate state; ours."""
