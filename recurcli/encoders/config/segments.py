"""The keys of the encoders that read a text in segments."""

from dataclasses import dataclass

from recurcli.encoders.config.attention import RSAConfig, SoftmaxConfig
from recurcli.encoders.config.base import check_sizes


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(SoftmaxConfig, RSAConfig):
    """Keys of Transformer-XL."""

    segment: int = 128
    """S, the number of tokens in a segment; 128 is ours."""
    memory: int = 128
    """M, the number of tokens before a segment whose states it attends to; 0: none. As many as a segment has, as in the
    paper's training (section 3.2)."""
    causal: bool = False
    """Whether a position attends only to itself and earlier positions (true, the paper's language model), or to its whole
    segment too (false, ours, for a classifier). No position attends to a later segment."""
    rsa: bool = False
    """Whether the attention is RSA's (Huang et al., 2023), gated with recurrence matrices over memory and segment.
    `rem_heads`, `dilations` and `gate_init` are for it."""

    def __post_init__(self) -> None:
        for name, value in {"rem_heads": self.rem_heads, "dilations": self.dilations}.items():
            if not self.rsa and value is not None:
                raise ValueError(f"{name} must be null without rsa, not {list(value)}")
        if not self.rsa and self.gate_init:
            raise ValueError(f"gate_init must be 0 without rsa, not {self.gate_init}")
        super().__post_init__()
        check_sizes(segment=self.segment)
        if self.memory < 0:
            raise ValueError(f"memory must be at least 0, not {self.memory}")
