"""The keys of the encoders with a Transformer's block."""

from dataclasses import dataclass
from typing import Literal

from recurcli.encoders.config.base import EncoderConfig, OrthogonalMap, check_probabilities, check_sizes, head_size

Activation = Literal["gelu", "relu"]


@dataclass(frozen=True, kw_only=True)
class BlockConfig(EncoderConfig):
    """Keys of the encoders with attention and a feed-forward network in each layer (`recurcli.encoders.block`)."""

    num_heads: int = 8
    """H, the number of attention heads per layer."""
    head_size: int | None = None
    """K, the size of a head; null: hidden_size / num_heads, which must be an integer."""
    feed_forward_size: int | None = None
    """Inner size of the feed-forward network; null: 4 · hidden_size."""
    activation: Activation = "gelu"
    """Activation of the feed-forward network: gelu (BERT) or relu (Vaswani et al., 2017)."""
    dropout: float = 0.1
    """Dropout probability on the embeddings and on each sublayer's output (Vaswani et al., 2017, section 5.4)."""
    feed_forward_dropout: float = 0.0
    """Dropout probability on the inner units of the feed-forward network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_heads=self.num_heads, head_size=self.head_size, feed_forward_size=self.feed_forward_size)
        check_probabilities(feed_forward_dropout=self.feed_forward_dropout)
        if self.head_size is None:
            head_size(self.hidden_size, self.num_heads)

    @property
    def size_of_head(self) -> int:
        """`head_size`, or its default if it is None."""
        return self.head_size or head_size(self.hidden_size, self.num_heads)

    @property
    def inner_size(self) -> int:
        """`feed_forward_size`, or its default if it is None."""
        return self.feed_forward_size or 4 * self.hidden_size


@dataclass(frozen=True, kw_only=True)
class NormConfig(BlockConfig):
    """Keys of the encoders with LayerNorm."""

    norm: Literal["post", "pre"] = "post"
    """Place of LayerNorm. post: after each residual sum (Vaswani et al., 2017); pre: before each sublayer, and once after the
    last layer (Xiong et al., 2020)."""


@dataclass(frozen=True, kw_only=True)
class PreNormConfig(NormConfig):
    """Keys of the efficient Transformers of the long-range table of Chen et al., 2021. They have no attention dropout."""

    norm: Literal["post", "pre"] = "pre"
    """Place of LayerNorm. pre: before each sublayer, and once after the last layer, as in that table; post: after each residual
    sum."""


@dataclass(frozen=True, kw_only=True)
class CausalConfig(BlockConfig):
    """Keys of the encoders with attention that can be causal."""

    causal: bool = False
    """Whether a position attends only to itself and earlier positions (true) or to all positions (false)."""


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(BlockConfig):
    """Keys of the encoders with softmax attention."""

    attention_dropout: float = 0.0
    """Dropout probability on the attention weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probabilities(attention_dropout=self.attention_dropout)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(CausalConfig, SoftmaxConfig, NormConfig):
    """Keys of the Transformer."""


@dataclass(frozen=True, kw_only=True)
class ReZeroConfig(CausalConfig, SoftmaxConfig):
    """Keys of the ReZero Transformer."""

    alpha_init: float = 0.0
    """Initial alpha, the weight of every sublayer's output in the residual sum; 0 in the paper."""


@dataclass(frozen=True, kw_only=True)
class OrthogonalTransformerConfig(TransformerConfig):
    """Keys of the Orthogonal Transformer."""

    orthogonal_weights: Literal["square", "query_key_value"] = "square"
    """Which weights are orthogonal: all square matrices, or only those of queries, keys and values."""
    orthogonal_map: OrthogonalMap = "cayley"
    """Map from raw parameters to orthogonal matrices: cayley, or householder, which takes three times as long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size is not None and self.head_size * self.num_heads != self.hidden_size:
            raise ValueError(
                f"head_size must be null or hidden_size / num_heads, not {self.head_size}: an orthogonal matrix is square"
            )


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig(CausalConfig, NormConfig):
    """Keys of the linear Transformer. It has no attention dropout, because it never computes attention weights."""


@dataclass(frozen=True, kw_only=True)
class RSAConfig(CausalConfig, NormConfig):
    """Keys of RSA. It has no attention dropout, which would need the (T, T) weights in memory."""

    rem_heads: tuple[int, int, int, int, int, int] | None = None
    """Number of heads with a recurrence matrix, by kind: regular, cosine, sine, dilated regular, dilated cosine, dilated
    sine. The other heads are plain attention. A cosine and a sine head form a pair. null: num_heads / 4 dilated pairs
    (ours)."""
    dilations: tuple[int, ...] | None = None
    """Dilation of each dilated head, in the order of rem_heads. A sine head has the dilation of its cosine head, so the
    sine heads may be omitted. null: 2, 4, 8 … for the regular heads, and again for the pairs (ours)."""
    gate_init: float = 0.0
    """Initial gate parameter mu of every layer, from -3 (mostly attention) to 3 (mostly recurrence); 0 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -3 <= self.gate_init <= 3:
            raise ValueError(f"gate_init must be from -3 to 3, not {self.gate_init}")
        counts = self.head_counts
        if min(counts) < 0 or not 0 < sum(counts) <= self.num_heads:
            raise ValueError(f"rem_heads must sum to 1 to {self.num_heads} (num_heads), not {list(counts)}")
        if counts[1] != counts[2] or counts[4] != counts[5]:
            raise ValueError(
                f"rem_heads must have as many sine as cosine heads, because they form pairs, not {list(counts)}"
            )
        if self.dilations is not None:
            self._check_dilations(self.dilations, dilated=counts[3] + counts[4], sines=counts[5])

    def _check_dilations(self, given: tuple[int, ...], *, dilated: int, sines: int) -> None:
        if len(given) not in (dilated, dilated + sines) or given[dilated:] not in (
            (),
            given[dilated - sines : dilated],
        ):
            raise ValueError(
                f"dilations must have {dilated} numbers, one per dilated head (sine heads excluded), not {list(given)}"
            )
        if min(given, default=1) < 1:
            raise ValueError(f"dilations must be at least 1, not {list(given)}")

    @property
    def head_counts(self) -> tuple[int, int, int, int, int, int]:
        """`rem_heads`, or its default if it is None."""
        if self.rem_heads is not None:
            return self.rem_heads
        pairs = max(1, self.num_heads // 4)
        return (0, 0, 0, 0, pairs, pairs) if self.num_heads > 1 else (1, 0, 0, 0, 0, 0)

    @property
    def head_dilations(self) -> tuple[int, ...]:
        """`dilations`, or its default if it is None: one per dilated regular head, then one per dilated pair."""
        if self.dilations is not None:
            return self.dilations
        _, _, _, regular, pairs, _ = self.head_counts
        return tuple(2 ** (index + 1) for count in (regular, pairs) for index in range(count))
