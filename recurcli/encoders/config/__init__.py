"""The keys of every encoder and their defaults. This package does not import torch, so that `recur presets` is fast.

`presets/encoders/NAME.yaml` overrides these defaults and gives the reasons.
"""

from recurcli.encoders.config.attention import (
    BlockConfig,
    LinearTransformerConfig,
    NormConfig,
    OrthogonalTransformerConfig,
    ReZeroConfig,
    RSAConfig,
    TransformerConfig,
)
from recurcli.encoders.config.low_rank import (
    LinformerConfig,
    NystromformerConfig,
    PerformerConfig,
    SkyformerConfig,
    SynthesizerConfig,
)
from recurcli.encoders.config.recurrent import BiLSTMConfig, TruncatedConfig, TruncatedLSTMConfig, TruncatedRNNConfig
from recurcli.encoders.config.sparse import BigBirdConfig, InformerConfig, ReformerConfig
from recurcli.encoders.config.starsaber import Gate, GatedStarSaberConfig, StarSaberConfig
from recurcli.encoders.config.transject import RandomTransJectConfig, TransJectConfig

__all__ = [
    "BiLSTMConfig",
    "BigBirdConfig",
    "BlockConfig",
    "Gate",
    "GatedStarSaberConfig",
    "InformerConfig",
    "LinearTransformerConfig",
    "LinformerConfig",
    "NormConfig",
    "NystromformerConfig",
    "OrthogonalTransformerConfig",
    "PerformerConfig",
    "RSAConfig",
    "RandomTransJectConfig",
    "ReZeroConfig",
    "ReformerConfig",
    "SkyformerConfig",
    "StarSaberConfig",
    "SynthesizerConfig",
    "TransJectConfig",
    "TransformerConfig",
    "TruncatedConfig",
    "TruncatedLSTMConfig",
    "TruncatedRNNConfig",
]
