"""The keys of every encoder and their defaults, from what encoders share to each encoder. This file does not import torch.

`presets/encoders/NAME.yaml` overrides these defaults and gives the reasons.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MultipleOf

from recurcli.validation import STRICT, Activation, Fraction, NonNegative, OrthogonalMap, Positive, Probability

Norm = Literal["post", "pre"]
Gate = Literal["gru_light", "gru", "lstm"]
SynthesizerKind = Literal["dense", "random", "factorised"]
HeadCount = NonNegative[int]
HeadCounts = tuple[HeadCount, HeadCount, HeadCount, HeadCount, HeadCount, HeadCount]
Even = Annotated[int, Ge(2), MultipleOf(2)]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The key of every encoder. The defaults here and below are ours, for a small run on a CPU, unless a comment says more."""

    __pydantic_config__ = STRICT
    hidden_size: Positive[int] = 256
    """D, the size of embeddings and hidden states."""
    freeze: bool = False
    """Whether the encoder's weights stay as they are at first, and the embeddings and the head alone are trained."""


@dataclass(frozen=True, kw_only=True)
class LayersConfig(EncoderConfig):
    """Keys of the encoders with a given number of layers."""

    num_layers: Positive[int] = 4
    """L, the number of layers."""
    dropout: Probability = 0.1
    """Dropout probability; each encoder's Config says where it applies."""


@dataclass(frozen=True, kw_only=True)
class StarSaberConfig(EncoderConfig):
    """Keys of StarSaber."""

    num_layers: Positive[int] | None = 4
    """L, the number of layers; must be null if `tied`."""
    alpha_init: float = 1.0
    """Initial alpha, the weight of a layer's update in the residual sum; 1 in the paper, 0 in ReZero."""
    alpha: Literal["learned", "fixed", "state"] = "learned"
    """Whether alpha is learned, stays alpha_init, or depends on the state of each position (the paper, section 5.1): then it is
    2 alpha σ(w · h) with a learned vector w, at first 0 (ours)."""
    position: Literal["directional", "sinusoidal"] = "directional"
    """Encoding of word order. directional: separate matrices for past and future; sinusoidal: one matrix, and sinusoidal
    positions added to x."""
    position_scale: Positive[float] | None = None
    """Factor of sinusoidal positions. null: sqrt(2 / hidden_size), with which they have the norm 1 of an embedding (ours)."""
    direct_path: bool = True
    """Whether every layer adds V x, a linear map of the embeddings."""
    bias: bool = False
    """Whether a bias is added inside tanh."""
    dropout: Probability = 0.1
    """Dropout probability on a layer's update, before the residual sum; ours."""
    tied: bool = False
    """Tied form: one layer without a residual path, iterated to convergence (the paper, section 3.2)."""
    tolerance: NonNegative[float] = 1e-6
    """Tied form: a row has converged when no state changes by more than this in one iteration (2-norm). If `causal`, a position
    stops when it and all earlier ones have converged."""
    max_iterations: Positive[int] = 100
    """Tied form: maximal number of iterations of a row, or of a position if `causal`."""
    orthogonal: bool = False
    """Tied form: whether W, U and Q are orthogonal (section 3.2 of the paper), by the Cayley map of parameters (ours). It is no
    contraction, so max_iterations may end the iteration."""
    causal: bool = False
    """Whether a position attends to earlier positions alone, with the past matrices (one-sided; ours), and reads itself through
    its state and the direct path (true), or attends to all positions (false)."""
    initial: Literal["input", "zero", "linear"] = "input"
    """The first hidden states: the embeddings (eq. 5), zeros, or a linear map of the embeddings."""

    def __post_init__(self) -> None:
        if self.tied != (self.num_layers is None):
            raise ValueError(f"num_layers must be null with tied weights, and a number without, not {self.num_layers}")
        if self.tied and self.alpha != "learned":
            raise ValueError(f"alpha must be learned with tied weights, which have no residual path, not {self.alpha}")
        if self.orthogonal and not self.tied:
            raise ValueError("orthogonal must be false unless the weights are tied")


@dataclass(frozen=True, kw_only=True)
class GatedStarSaberConfig(LayersConfig):
    """Keys of the gated StarSaber."""

    gate: Gate = "gru_light"
    """Form of the gates. gru_light: computed from the position's state, 8 D² parameters per layer; gru and lstm: computed by
    attention, 10 D² and 13 D²."""
    dropout: Probability = 0.1
    """Dropout probability on a layer's candidate state; ours."""


@dataclass(frozen=True, kw_only=True)
class BiLSTMConfig(LayersConfig):
    """Keys of the BiLSTM."""

    hidden_size: Even = 256
    """D, the size of embeddings and of the concatenated states of both directions; must be even."""
    dropout: Probability = 0.1
    """Dropout probability on the hidden states between layers; ours."""


@dataclass(frozen=True, kw_only=True)
class TruncatedConfig(LayersConfig):
    """Keys that the truncated RNN and the truncated LSTM share."""

    hidden_size: Positive[int] = 256
    """D, the size of embeddings and of the concatenated states of all directions."""
    window: Positive[int] | None = 16
    """k, the number of positions that a state depends on, including its own; 16 is ours. null: no truncation."""
    bidirectional: bool = True
    """Whether a second direction reads each text from its end (ours); hidden_size must then be even."""
    stable: bool = True
    """Whether the model is stable: recurrent weights are projected after each optimiser step, and forget gates are bounded."""
    dropout: Probability = 0.1
    """Dropout probability on the embeddings and on the output; ours."""

    def __post_init__(self) -> None:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, because each direction has half of it, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class TruncatedRNNConfig(TruncatedConfig):
    """Keys of the truncated RNN."""

    spectral_bound: Fraction = 0.95
    """Upper bound of the singular values of W in the stable model, in (0, 1); 0.95 is ours."""


@dataclass(frozen=True, kw_only=True)
class TruncatedLSTMConfig(TruncatedConfig):
    """Keys of the truncated LSTM."""

    forget_bound: Fraction = 0.64
    """f̄, the upper bound of the forget gate in the stable model, in (0, 1); 0.64 is ours. If not `stable`, f̄ is 1."""


@dataclass(frozen=True, kw_only=True)
class RandomTransJectConfig(LayersConfig):
    """Keys of Random-TransJect."""

    num_experts: Positive[int] = 4
    """E, the number of experts per layer; 4 in the paper."""
    alpha_init: float = 0.0
    """Initial alpha of a layer, whose updates have the weight tanh(alpha) / L; 0 in the released code."""
    orthogonal_map: OrthogonalMap = "cayley"
    """Map to orthogonal matrices: cayley (ours; the released code has matrix_exp), or householder, in three times the time."""
    dropout: Probability = 0.1
    """Dropout probability on the inner units of the feed-forward network; ours."""


@dataclass(frozen=True, kw_only=True)
class TransJectConfig(RandomTransJectConfig):
    """Keys of TransJect."""

    auxiliary_weight: NonNegative[float] = 1.0
    """Weight of the auxiliary loss that makes s the eigenvalues of x^T x; 0 turns it off. 1 is ours. The released code has
    0.001 for an unnormalised loss; ours is divided by the squared largest eigenvalue, where 0.001 has no effect."""


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig(LayersConfig):
    """Keys of the encoders whose layers have a feed-forward network (`recurcli.encoders.encoder.BlockLayer`)."""

    feed_forward_size: Positive[int] | None = None
    """Inner size of the feed-forward network; null: 4 · hidden_size."""
    activation: Activation = "gelu"
    """Activation of the feed-forward network: gelu (BERT) or relu (Vaswani et al., 2017)."""
    dropout: Probability = 0.1
    """Dropout probability on the embeddings and on each sublayer's output (Vaswani et al., 2017, section 5.4)."""
    feed_forward_dropout: Probability = 0.0
    """Dropout probability on the inner units of the feed-forward network."""

    @property
    def inner_size(self) -> int:
        """`feed_forward_size`, or its default if it is None."""
        return self.feed_forward_size or 4 * self.hidden_size


@dataclass(frozen=True, kw_only=True)
class BlockConfig(FeedForwardConfig):
    """Keys of the encoders with attention in each layer too."""

    num_heads: Positive[int] = 8
    """H, the number of attention heads per layer."""
    head_size: Positive[int] | None = None
    """K, the size of a head; null: hidden_size / num_heads, which must be an integer."""

    def __post_init__(self) -> None:
        if self.head_size is None and self.hidden_size % self.num_heads:
            sizes = f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}"
            raise ValueError(f"{sizes}; change one of them, or set head_size")

    @property
    def size_of_head(self) -> int:
        """`head_size`, or its default if it is None."""
        return self.head_size or self.hidden_size // self.num_heads


@dataclass(frozen=True, kw_only=True)
class NormConfig(BlockConfig):
    """Keys of the encoders with LayerNorm."""

    norm: Norm = "post"
    """Place of LayerNorm. post: after each residual sum (Vaswani et al., 2017); pre: before each sublayer, and once after the
    last layer (Xiong et al., 2020)."""


@dataclass(frozen=True, kw_only=True)
class PreNormConfig(NormConfig):
    """Keys of the efficient Transformers of the long-range table of Chen et al., 2021. They have no attention dropout."""

    norm: Norm = "pre"
    """Place of LayerNorm; pre as in that table."""


@dataclass(frozen=True, kw_only=True)
class CausalConfig(BlockConfig):
    """Keys of the encoders with attention that can be causal."""

    causal: bool = False
    """Whether a position attends only to itself and earlier positions (true) or to all positions (false)."""


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(BlockConfig):
    """Keys of the encoders with softmax attention."""

    attention_dropout: Probability = 0.0
    """Dropout probability on the attention weights."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(CausalConfig, SoftmaxConfig, NormConfig):
    """Keys of the Transformer."""

    position: Literal["sinusoidal", "rotary", "none"] = "sinusoidal"
    """Encoding of word order. sinusoidal: positions added to the embeddings; rotary: queries and keys are rotated by their
    position (Su et al., 2021); none: only a `causal` model sees an order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.position == "rotary" and self.size_of_head % 2:
            raise ValueError(
                f"position must not be rotary with an odd head size, {self.size_of_head}; change num_heads or head_size"
            )


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
    """Map to orthogonal matrices: cayley (ours; the released code has matrix_exp), or householder, in three times the time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size is not None and self.head_size * self.num_heads != self.hidden_size:
            raise ValueError(f"head_size must be null or hidden_size / num_heads, not {self.head_size}")


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig(CausalConfig, NormConfig):
    """Keys of the linear Transformer. It has no attention dropout, because it never computes attention weights."""

    feature_map: Literal["elu", "relu", "exp"] = "elu"
    """φ of queries and keys: elu(x) + 1 (Katharopoulos et al., eq. 7), relu(x), or exp(x)."""


@dataclass(frozen=True, kw_only=True)
class RSAConfig(CausalConfig, NormConfig):
    """Keys of RSA. It has no attention dropout, which would need the (T, T) weights in memory."""

    rem_heads: HeadCounts | None = None
    """Number of heads with a recurrence matrix, by kind: regular, cosine, sine, dilated regular, dilated cosine, dilated
    sine. The other heads are plain attention. A cosine and a sine head form a pair. null: num_heads / 4 dilated pairs
    (ours)."""
    dilations: tuple[Positive[int], ...] | None = None
    """Dilation of each dilated head, in the order of rem_heads. A sine head has the dilation of its cosine head, so the
    sine heads may be omitted. null: 2, 4, 8 … for the regular heads, and again for the pairs (ours)."""
    gate_init: Annotated[float, Ge(-3), Le(3)] = 0.0
    """Initial gate parameter mu of every layer, from -3 (mostly attention) to 3 (mostly recurrence); 0 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = self.head_counts
        if not 0 < sum(counts) <= self.num_heads:
            raise ValueError(f"rem_heads must sum to 1 to {self.num_heads} (num_heads), not {list(counts)}")
        if counts[1] != counts[2] or counts[4] != counts[5]:
            raise ValueError(f"rem_heads must have as many sine as cosine heads, not {list(counts)}")
        regular, dilated = counts[3], counts[3] + counts[4]
        if self.dilations is not None:
            own = self.dilations[:dilated]
            if len(own) != dilated or self.dilations not in (own, own + own[regular:]):
                needed = f"{dilated} numbers, one per dilated head (sine heads excluded)"
                raise ValueError(f"dilations must have {needed}, not {list(self.dilations)}")

    @property
    def head_counts(self) -> HeadCounts:
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


@dataclass(frozen=True, kw_only=True)
class OptionalRSAConfig(SoftmaxConfig, RSAConfig):
    """Keys of the encoders that have RSA's matrices only on demand."""

    rsa: bool = False
    """Whether the attention is RSA's (Huang et al., 2023), gated with recurrence matrices over all that a token may attend
    to. `rem_heads`, `dilations` and `gate_init` are for it."""
    causal: bool = False
    """Whether a position attends only to itself and earlier positions (true, for a language model), or to its whole segment,
    block or chunk too (false, for a classifier; ours). No position attends to a later one."""

    def __post_init__(self) -> None:
        for name in ("rem_heads", "dilations", "gate_init"):
            if not self.rsa and (value := getattr(self, name)):
                raise ValueError(f"{name} has no effect without rsa, and is {value}; leave it out")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(OptionalRSAConfig):
    """Keys of Transformer-XL."""

    segment: Positive[int] = 128
    """S, the number of tokens in a segment; 128 is ours."""
    memory: NonNegative[int] = 128
    """M, the number of tokens before a segment whose states it attends to; 0: none. As many as a segment has, as in the
    paper's training (section 3.2)."""


@dataclass(frozen=True, kw_only=True)
class BlockRecurrentConfig(OptionalRSAConfig):
    """Keys of the Block-Recurrent Transformer."""

    norm: Norm = "pre"
    """Place of LayerNorm; pre as in the released code."""
    window: Positive[int] = 128
    """W, the number of tokens in a block, and of tokens before a token that it attends to; 512 in the paper, 128 is ours."""
    num_states: Positive[int] = 32
    """Number of state vectors; 512 in the paper, 32 is ours."""
    recurrent_layer: Positive[int] | None = None
    """The layer with the recurrent cell, from 1; null: the tenth of twelve layers as in the paper, and as near to the top in
    others (ours)."""
    gate: Literal["fixed", "lstm"] = "fixed"
    """Form of the gates. fixed: one learned average for all texts, the paper's best; lstm: computed from what is attended."""
    state_feed_forward: bool = False
    """Whether the state has a feed-forward network with a gate of its own. false: the paper's configuration skip, its best;
    true: dual."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent_layer is not None and self.recurrent_layer > self.num_layers:
            raise ValueError(
                f"recurrent_layer must be at most num_layers, {self.num_layers}, not {self.recurrent_layer}"
            )

    @property
    def segment(self) -> int:
        """`window`, by Transformer-XL's name for it."""
        return self.window

    @property
    def memory(self) -> int:
        """`window`, by Transformer-XL's name for the tokens before a segment."""
        return self.window

    @property
    def place_of_recurrence(self) -> int:
        """The index of `recurrent_layer`, from 0."""
        return (self.recurrent_layer or max(1, self.num_layers * 10 // 12)) - 1


@dataclass(frozen=True, kw_only=True)
class LatentBottleneckConfig(OptionalRSAConfig):
    """Keys of the Temporal Latent Bottleneck."""

    norm: Norm = "pre"
    """Place of LayerNorm in the fast stream (ours). The slow stream has it before each sublayer."""
    chunk_size: Positive[int] = 64
    """C, the number of tokens in a chunk; 64 is ours."""
    num_states: Positive[int] = 16
    """S, the number of vectors of the slow stream; 16 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rsa and self.attention_dropout:
            raise ValueError(f"attention_dropout must be 0 with rsa, not {self.attention_dropout}")


@dataclass(frozen=True, kw_only=True)
class LinformerConfig(PreNormConfig):
    """Keys of Linformer."""

    projected_length: Positive[int] = 128
    """k, the number of rows to which keys and values are projected; 128 in the long-range table."""
    max_length: Positive[int] = 512
    """Largest number of tokens of a row, at least `data.max_length`; E has a column for each. 512 is ours."""


@dataclass(frozen=True, kw_only=True)
class PerformerConfig(PreNormConfig):
    """Keys of the Performer."""

    num_features: Positive[int] = 128
    """M, the number of random features per head; 128 in the long-range table."""


@dataclass(frozen=True, kw_only=True)
class NystromformerConfig(PreNormConfig):
    """Keys of Nyströmformer."""

    num_landmarks: Positive[int] = 128
    """M, the number of landmarks of a row; a row of fewer tokens has one per token. 128 in the long-range table."""
    iterations: Annotated[int, Ge(1), Le(16)] = 6
    """Number of iterations of the pseudo-inverse; 6 in the paper, and at most 16, because each one multiplies rounding errors
    by about 3: in float32 the attention is off by 0.00002 after 14, and by 0.7 after 30."""
    convolution_size: Positive[int] | None = None
    """Kernel size of a depth-wise convolution over the values, added to the attention; must be odd. null: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.convolution_size is not None and self.convolution_size % 2 == 0:
            raise ValueError(f"convolution_size must be odd, not {self.convolution_size}")


@dataclass(frozen=True, kw_only=True)
class SynthesizerConfig(PreNormConfig):
    """Keys of the Synthesizer."""

    kind: SynthesizerKind = "dense"
    """Where the attention weights come from. dense: each token's state; random: learned, one (T, T) matrix per head for all
    texts; factorised: learned, the product of two matrices of rank `rank`. The default is ours."""
    rank: Positive[int] = 32
    """Rank of the factorised kind; 8 in the paper."""
    max_length: Positive[int] = 512
    """Largest number of tokens of a row, at least `data.max_length`; the learned weights have a row for each. 512 is ours."""


@dataclass(frozen=True, kw_only=True)
class SkyformerConfig(PreNormConfig):
    """Keys of Skyformer."""

    num_landmarks: Even = 128
    """M, the number of landmarks of a row, half queries and half keys; must be even. A row of fewer than M / 2 tokens has two
    per token. 128 in the long-range table."""
    iterations: Positive[int] = 6
    """Number of iterations of the inverse; 6 leave a relative error of 0.001 to 0.02."""
    gamma: NonNegative[float] = 0.1
    """Added to the diagonal of the landmarks' kernel, so that it can be inverted; 0.1 in the released code."""


@dataclass(frozen=True, kw_only=True)
class ReformerConfig(PreNormConfig):
    """Keys of the Reformer."""

    chunk_size: Positive[int] = 64
    """m, the number of tokens in a chunk, which attends to itself and to the chunk before it."""
    num_hashes: Positive[int] = 2
    """Number of hash rounds. Each sorts the tokens into buckets of its own."""
    max_buckets: Literal[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096] = 128
    """Largest number of buckets, a power of 2; a text of n tokens has 2^⌊log2(2 n / chunk_size)⌋. 128 is ours, for texts of
    4,096 tokens."""


@dataclass(frozen=True, kw_only=True)
class BigBirdConfig(PreNormConfig):
    """Keys of BigBird."""

    block_size: Positive[int] = 64
    """m, the number of tokens in a block."""
    num_random_blocks: NonNegative[int] = 3
    """r, the number of random blocks that a block attends to, besides the first, the last, itself and its two neighbours. A
    text below (5 + 2 r) block_size tokens, 704 by default, has full attention."""


@dataclass(frozen=True, kw_only=True)
class InformerConfig(PreNormConfig):
    """Keys of the Informer."""

    sampling_factor: Positive[int] = 17
    """c; a text of n tokens has c ⌈ln n⌉ queries with attention of their own, chosen by as many sampled keys. 17 is
    ⌈128 / ln 2000⌉, for ListOps; the Informer's own paper has 5."""


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(FeedForwardConfig):
    """Keys of the encoders with a recurrence in place of attention (`recurcli.encoders.encoder.Mixer`)."""

    norm: Norm = "pre"
    """Place of LayerNorm, as in the Transformer; pre is ours."""
    causal: bool = False
    """Whether all channels read the text from its first token (true), or half of them from its last one (false; ours)."""

    def __post_init__(self) -> None:
        if not self.causal and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even for two directions, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class MinGRUConfig(RecurrentConfig):
    """Keys of minGRU."""

    signed: bool = False
    """Whether the state's factor a is 1 - 2 z, in (-1, 1), and that of the input 1 - |a| (Grazzi et al., 2025, for gates that
    do not read the state; the factor of the input is ours), or they are 1 - z and z."""


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(RecurrentConfig):
    """Keys of the encoders with a recurrence for each head."""

    num_heads: Positive[int] = 4
    """H, the number of heads, which divides hidden_size. Half of them read the text backwards if it is not `causal`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_heads or (not self.causal and self.num_heads % 2):
            even = "" if self.causal else "be even and "
            raise ValueError(
                f"num_heads must {even}divide hidden_size, {self.hidden_size}, not {self.num_heads}; change one of them"
            )


@dataclass(frozen=True, kw_only=True)
class DeltaNetConfig(HeadsConfig):
    """Keys of DeltaNet, Gated DeltaNet and DeltaProduct."""

    gate: Literal["none", "scalar"] = "none"
    """Whether the state decays by a factor for each head and position (scalar, Gated DeltaNet), or not."""
    negative_eigenvalues: bool = False
    """Whether β is in (0, 2), so that I - β k k^T has the eigenvalue 1 - β in (-1, 1) (Grazzi et al., 2025), or in (0, 1)."""
    products: Positive[int] = 1
    """n, the updates of the state for each position, each with a key, a value and a β of its own (DeltaProduct)."""
    short_convolution: Positive[int] = 4
    """Positions that a query, key or value reads, its own included; 4 in the papers, 1 is none."""


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(HeadsConfig):
    """Keys of Mamba-2."""

    state_size: Positive[int] = 64
    """N, the size of the state of a channel; 64 in the paper."""
    signed: bool = False
    """Whether the decay a of a state is 2 exp(-Δ A) - 1, in (-1, 1) (Grazzi et al., 2025), or exp(-Δ A), in (0, 1)."""
    short_convolution: Positive[int] = 4
    """Positions that an input of the recurrence reads, its own included; 4 in the paper, 1 is none."""


@dataclass(frozen=True, kw_only=True)
class MLSTMConfig(HeadsConfig):
    """Keys of the mLSTM."""

    short_convolution: Positive[int] = 4
    """Positions that a query or key reads, its own included; 4 in the paper, 1 is none."""


@dataclass(frozen=True, kw_only=True)
class SLSTMConfig(HeadsConfig):
    """Keys of the sLSTM."""


@dataclass(frozen=True, kw_only=True)
class S4DConfig(RecurrentConfig):
    """Keys of S4D."""

    state_size: Even = 64
    """N, the size of the state of a channel; 64 in the paper."""
    step_min: Positive[float] = 0.001
    """The smallest initial step Δ; 0.001 in the paper."""
    step_max: Positive[float] = 0.1
    """The largest initial step Δ; 0.1 in the paper. Steps are log-uniform between both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_min > self.step_max:
            raise ValueError(f"step_min must be at most step_max, {self.step_max}, not {self.step_min}")


@dataclass(frozen=True, kw_only=True)
class GatedLinearAttentionConfig(RecurrentConfig):
    """Keys of gated linear attention."""

    num_heads: Positive[int] = 4
    """H, the number of heads; 4 in the paper. Half of them read the text backwards if it is not `causal`."""
    gate_rank: Positive[int] = 16
    """Rank of the map to the gates; 16 in the paper."""
    gate_temperature: Positive[float] = 16.0
    """τ, the root of the gates, which makes the state forget slowly; 16 in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = 1 if self.causal else 2
        if self.hidden_size % (2 * self.num_heads) or self.num_heads % sides:
            even, half = "" if self.causal else "be even and ", f"{self.hidden_size / 2:g}"
            raise ValueError(
                f"num_heads must {even}divide half of hidden_size, {half}, not {self.num_heads}; change one of them"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainedConfig:
    """Keys of a pre-trained encoder in Hugging Face's layout. All but the first three are those of its config.json."""

    __pydantic_config__ = STRICT
    path: str | None = None
    """Its folder, or its name on the Hugging Face Hub; null: a training must name one."""
    dropout: Probability | None = None
    """Dropout probability of all places that have one; null: those of its config.json (0.1 in BERT, 0 in ModernBERT)."""
    freeze: bool = False
    """Whether its weights stay as they are, and the embeddings and the head alone are trained."""
    hidden_size: Positive[int] | None = None
    """D, the size of the hidden states."""
    num_layers: Positive[int] | None = None
    """L, the number of layers."""
    max_length: Positive[int] | None = None
    """Largest number of tokens of a row."""
    architecture: dict[str, Any] | None = None
    """What its config.json says of its architecture."""


@dataclass(frozen=True, kw_only=True)
class NoEncoderConfig:
    """The keys of LINEAR: none."""

    __pydantic_config__ = STRICT
