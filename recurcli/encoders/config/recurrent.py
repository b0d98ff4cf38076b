"""The keys of the recurrent networks."""

from dataclasses import dataclass

from recurcli.encoders.config.base import EncoderConfig, check_sizes


@dataclass(frozen=True, kw_only=True)
class BiLSTMConfig(EncoderConfig):
    """Keys of the BiLSTM."""

    hidden_size: int = 256
    """D, the size of embeddings and of the concatenated states of both directions; must be even."""
    dropout: float = 0.1
    """Dropout probability on the hidden states between layers; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, because each direction has half of it, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class TruncatedConfig(EncoderConfig):
    """Keys that the truncated RNN and the truncated LSTM share."""

    hidden_size: int = 256
    """D, the size of embeddings and of the concatenated states of all directions."""
    window: int | None = 16
    """k, the number of positions that a state depends on, including its own; 16 is ours. null: no truncation."""
    bidirectional: bool = True
    """Whether a second direction reads each text from its end (ours); hidden_size must then be even."""
    stable: bool = True
    """Whether the model is stable: recurrent weights are projected after each optimiser step, and forget gates are bounded."""
    dropout: float = 0.1
    """Dropout probability on the embeddings and on the output; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(window=self.window)
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, because each direction has half of it, not {self.hidden_size}")


@dataclass(frozen=True, kw_only=True)
class TruncatedRNNConfig(TruncatedConfig):
    """Keys of the truncated RNN."""

    spectral_bound: float = 0.95
    """Upper bound of the singular values of W in the stable model, in (0, 1); 0.95 is ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.spectral_bound < 1:
            raise ValueError(f"spectral_bound must be above 0 and below 1, not {self.spectral_bound}")


@dataclass(frozen=True, kw_only=True)
class TruncatedLSTMConfig(TruncatedConfig):
    """Keys of the truncated LSTM."""

    forget_bound: float = 0.64
    """f̄, the upper bound of the forget gate in the stable model, in (0, 1); 0.64 is ours. If not `stable`, f̄ is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.forget_bound < 1:
            raise ValueError(f"forget_bound must be above 0 and below 1, not {self.forget_bound}")
