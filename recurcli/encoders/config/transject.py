"""The keys of TransJect and Random-TransJect."""

from dataclasses import dataclass

from recurcli.encoders.config.base import EncoderConfig, OrthogonalMap, check_sizes


@dataclass(frozen=True, kw_only=True)
class RandomTransJectConfig(EncoderConfig):
    """Keys of Random-TransJect."""

    num_experts: int = 4
    """E, the number of experts per layer; 4 in the paper."""
    orthogonal_map: OrthogonalMap = "cayley"
    """Map from raw parameters to orthogonal matrices: cayley, or householder, which takes three times as long."""
    dropout: float = 0.1
    """Dropout probability on the inner units of the feed-forward network; ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(num_experts=self.num_experts)


@dataclass(frozen=True, kw_only=True)
class TransJectConfig(RandomTransJectConfig):
    """Keys of TransJect."""

    auxiliary_weight: float = 1.0
    """Weight of the auxiliary loss that makes s the eigenvalues of x^T x; 0 turns it off. 1 is ours. The released code has
    0.001 for an unnormalised loss; ours is divided by the squared largest eigenvalue, where 0.001 has no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.auxiliary_weight < float("inf"):
            raise ValueError(f"auxiliary_weight must be at least 0, not {self.auxiliary_weight}")
