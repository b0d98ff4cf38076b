"""The keys of every encoder and their defaults, without torch: `recur presets` shows them at once.

`presets/encoders/NAME.yaml` holds what differs from here, and why.
"""

from dataclasses import dataclass
from typing import Literal

from recurcli.validation import STRICT

Activation = Literal["gelu", "relu"]
Gate = Literal["gru_light", "gru", "lstm"]
OrthogonalMap = Literal["cayley", "householder"]


def check_sizes(**sizes: int | None) -> None:
    """Raise ValueError for the first size below 1, by its name; None passes."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def check_probabilities(**probabilities: float) -> None:
    """Raise ValueError for the first that is not a probability below 1, by its name."""
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {probability}")


def head_size(hidden_size: int, num_heads: int) -> int:
    """hidden_size / num_heads. Raises ValueError where that is no whole number."""
    if hidden_size % num_heads:
        raise ValueError(
            f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}; "
            f"give head_size too, such as {-(-hidden_size // num_heads)}"
        )
    return hidden_size // num_heads


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Keys that every encoder has. The defaults are ours: sizes for a small CPU run."""

    __pydantic_config__ = STRICT
    hidden_size: int = 256
    """D, the size of embeddings and hidden states."""
    num_layers: int = 4
    """L, the number of layers."""
    dropout: float = 0.1
    """Probability to drop a unit; the encoder's file says of what."""

    def __post_init__(self) -> None:
        check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers)
        check_probabilities(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class BlockConfig(EncoderConfig):
    """Keys of encoders whose layer is attention and a feed-forward network (`recurcli.encoders.block`)."""

    num_heads: int = 8
    """H, the attention heads of a layer."""
    head_size: int | None = None
    """K, the size of a head; null: hidden_size / num_heads, which must then be a whole number."""
    feed_forward_size: int | None = None
    """Width of the feed-forward network; null: four times hidden_size."""
    activation: Activation = "gelu"
    """Nonlinearity of the feed-forward network: gelu (BERT's) or relu (the 2017 paper's)."""
    dropout: float = 0.1
    """Probability to drop a unit of the embeddings or of a sublayer's output (Vaswani et al., 2017, section 5.4)."""
    feed_forward_dropout: float = 0.0
    """Probability to drop an inner unit of the feed-forward network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_heads=self.num_heads, head_size=self.head_size, feed_forward_size=self.feed_forward_size)
        check_probabilities(feed_forward_dropout=self.feed_forward_dropout)
        if self.head_size is None:
            head_size(self.hidden_size, self.num_heads)

    @property
    def size_of_head(self) -> int:
        """`head_size`, or what stands for null."""
        return self.head_size or head_size(self.hidden_size, self.num_heads)

    @property
    def inner_size(self) -> int:
        """`feed_forward_size`, or what stands for null."""
        return self.feed_forward_size or 4 * self.hidden_size


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(BlockConfig):
    """Keys of the Transformer."""

    attention_dropout: float = 0.0
    """Probability to drop an attention weight."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(attention_dropout=self.attention_dropout)


@dataclass(frozen=True, kw_only=True)
class ReZeroConfig(TransformerConfig):
    """Keys of the ReZero Transformer."""

    alpha_init: float = 0.0
    """Initial weight of every sublayer beside its residual path; 0 is the paper's."""


@dataclass(frozen=True, kw_only=True)
class OrthogonalTransformerConfig(TransformerConfig):
    """Keys of the Orthogonal Transformer."""

    orthogonal_weights: Literal["square", "query_key_value"] = "square"
    """Which weights are orthogonal: every square one, or those of queries, keys and values alone."""
    orthogonal_map: OrthogonalMap = "cayley"
    """How parameters become orthogonal matrices: cayley, or householder, which takes three times as long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size is not None and self.head_size * self.num_heads != self.hidden_size:
            raise ValueError(
                f"head_size must be hidden_size / num_heads, not {self.head_size}: only a square matrix is orthogonal"
            )


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig(BlockConfig):
    """Keys of the linear Transformer. It has no attention weights that could be dropped."""

    causal: bool = False
    """Whether a position sees itself and the past only, or the whole text."""


@dataclass(frozen=True, kw_only=True)
class RSAConfig(BlockConfig):
    """Keys of RSA. Attention weights are never dropped, which would need all of them in memory."""

    rem_heads: tuple[int, int, int, int, int, int] | None = None
    """How many heads are regular, cosine, sine, dilated regular, dilated cosine, dilated sine; the others are
    ordinary. A cosine and a sine head make a pair. null: num_heads / 4 dilated pairs (ours)."""
    dilations: tuple[int, ...] | None = None
    """Dilation of each dilated head, in the order of rem_heads; the sine heads have their cosine heads' and may be
    left out. null: 2, 4, 8 … for the regular heads and again for the pairs (ours)."""
    gate_init: float = 0.0
    """Initial mu of every layer, from -3 (nearly plain attention) to 3 (nearly recurrence alone); 0 is ours."""
    causal: bool = False
    """Whether a position sees itself and the past only, or the whole text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -3 <= self.gate_init <= 3:
            raise ValueError(f"gate_init must be from -3 to 3, not {self.gate_init}")
        counts = self.head_counts
        if min(counts) < 0 or not 0 < sum(counts) <= self.num_heads:
            raise ValueError(f"rem_heads must be 1 to {self.num_heads} heads in all, not {list(counts)}")
        if counts[1] != counts[2] or counts[4] != counts[5]:
            raise ValueError(f"rem_heads must have as many sine as cosine heads, they make pairs, not {list(counts)}")
        if self.dilations is not None:
            self._check_dilations(self.dilations, dilated=counts[3] + counts[4], sines=counts[5])

    def _check_dilations(self, given: tuple[int, ...], *, dilated: int, sines: int) -> None:
        if len(given) not in (dilated, dilated + sines) or given[dilated:] not in (
            (),
            given[dilated - sines : dilated],
        ):
            raise ValueError(
                f"dilations must be one for each of {dilated} dilated heads, sine heads aside, not {list(given)}"
            )
        if min(given, default=1) < 1:
            raise ValueError(f"dilations must be at least 1, not {list(given)}")

    @property
    def head_counts(self) -> tuple[int, int, int, int, int, int]:
        """`rem_heads`, or what stands for null."""
        if self.rem_heads is not None:
            return self.rem_heads
        pairs = max(1, self.num_heads // 4)
        return (0, 0, 0, 0, pairs, pairs) if self.num_heads > 1 else (1, 0, 0, 0, 0, 0)

    @property
    def head_dilations(self) -> tuple[int, ...]:
        """`dilations`, or what stands for null: one a dilated regular head, then one a dilated pair."""
        if self.dilations is not None:
            return self.dilations
        _, _, _, regular, pairs, _ = self.head_counts
        return tuple(2 ** (index + 1) for count in (regular, pairs) for index in range(count))


@dataclass(frozen=True, kw_only=True)
class StarSaberConfig:
    """Keys of StarSaber."""

    __pydantic_config__ = STRICT
    hidden_size: int = 256
    """D, the size of embeddings and hidden states."""
    num_layers: int | None = 4
    """L, the number of layers; null with tied weights."""
    alpha_init: float = 1.0
    """Initial weight of a layer's update beside its residual path; 1 is the paper's, 0 is ReZero's."""
    position: Literal["directional", "sinusoidal"] = "directional"
    """How order enters: separate matrices for past and future, or one matrix and a sine table added to x."""
    direct_path: bool = True
    """Whether every layer sees the embeddings through V."""
    bias: bool = False
    """Whether a bias is added inside tanh."""
    dropout: float = 0.1
    """Probability to drop a unit of a layer's update, before it is added to the residual path; ours."""
    tied: bool = False
    """One set of weights, no residual path, iterated to convergence (the paper's section 3.2)."""
    tolerance: float = 1e-6
    """Tied form: a sequence has converged when no position moves further than this, in the 2-norm."""
    max_iterations: int = 100
    """Tied form: the most iterations that a sequence may take."""
    initial: Literal["input", "zero", "linear"] = "input"
    """The first hidden states: the embeddings (eq. 5), zeros, or a linear map of the embeddings."""

    def __post_init__(self) -> None:
        check_sizes(hidden_size=self.hidden_size, max_iterations=self.max_iterations, num_layers=self.num_layers)
        check_probabilities(dropout=self.dropout)
        if self.tied and self.num_layers is not None:
            raise ValueError(f"num_layers must be null with tied weights, not {self.num_layers}")
        if not self.tied and self.num_layers is None:
            raise ValueError("num_layers is required unless the weights are tied")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must be at least 0, not {self.tolerance}")


@dataclass(frozen=True, kw_only=True)
class GatedStarSaberConfig(EncoderConfig):
    """Keys of the gated StarSaber."""

    gate: Gate = "gru_light"
    """gru_light: gates of a position's own state, 8 D² parameters; gru, lstm: gates that attend, 10 D² and 13 D²."""
    dropout: float = 0.1
    """Probability to drop a unit of a layer's new content; ours."""


@dataclass(frozen=True, kw_only=True)
class RandomTransJectConfig(EncoderConfig):
    """Keys of Random-TransJect."""

    num_experts: int = 4
    """E, the experts of a layer; 4 is the paper's."""
    orthogonal_map: OrthogonalMap = "cayley"
    """How parameters become orthogonal matrices: cayley, or householder, which takes three times as long."""
    dropout: float = 0.1
    """Probability to drop an inner unit of the feed-forward network; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_experts=self.num_experts)


@dataclass(frozen=True, kw_only=True)
class TransJectConfig(RandomTransJectConfig):
    """Keys of TransJect."""

    auxiliary_weight: float = 1.0
    """Weight of the loss that makes s the eigenvalues of x^T x; 0 leaves it out. Ours: the released code's 0.001 is
    for a loss that is not divided by the square of the greatest eigenvalue, and here has no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.auxiliary_weight < float("inf"):
            raise ValueError(f"auxiliary_weight must be at least 0, not {self.auxiliary_weight}")


@dataclass(frozen=True, kw_only=True)
class BiLSTMConfig(EncoderConfig):
    """Keys of the BiLSTM."""

    hidden_size: int = 256
    """D, the size of embeddings and of both directions' states together: an even number."""
    dropout: float = 0.1
    """Probability to drop a hidden state between two layers; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, half for each direction, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class TruncatedConfig(EncoderConfig):
    """Keys of both truncated recurrent models."""

    hidden_size: int = 256
    """D, the size of embeddings and of both directions' states together."""
    window: int | None = 16
    """k, the positions that a state sees, itself included (16 is ours); null: all before it, step by step."""
    bidirectional: bool = True
    """Whether a second model runs from each text's end (ours); hidden_size is then even, half for each."""
    stable: bool = True
    """Whether the recurrent weights are projected after every optimiser step, and an LSTM's forget gate is bounded."""
    dropout: float = 0.1
    """Probability to drop a unit of the embeddings or of the output; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(window=self.window)
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, half for each direction, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class TruncatedRNNConfig(TruncatedConfig):
    """Keys of the truncated RNN."""

    spectral_bound: float = 0.95
    """Largest singular value of stable recurrent weights, above 0 and below 1; 0.95 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.spectral_bound < 1:
            raise ValueError(f"spectral_bound must be above 0 and below 1, not {self.spectral_bound}")


@dataclass(frozen=True, kw_only=True)
class TruncatedLSTMConfig(TruncatedConfig):
    """Keys of the truncated LSTM."""

    forget_bound: float = 0.64
    """f̄, the largest value of a stable model's forget gate, above 0 and below 1 (0.64 is ours); 1 where it is not stable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.forget_bound < 1:
            raise ValueError(f"forget_bound must be above 0 and below 1, not {self.forget_bound}")
