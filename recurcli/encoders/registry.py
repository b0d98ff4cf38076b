"""The table of encoders, and what is found by an encoder's name.

An encoder's module, and torch with it, is imported on first use: `recur presets` and a preset's composition read the
Config alone. Other packages register encoders as entry points of the
group `recurcli.encoders`.
"""

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.encoders.config import (
    BigBirdConfig,
    BiLSTMConfig,
    BlockRecurrentConfig,
    DeltaNetConfig,
    EncoderConfig,
    GatedLinearAttentionConfig,
    GatedStarSaberConfig,
    InformerConfig,
    LatentBottleneckConfig,
    LinearTransformerConfig,
    LinformerConfig,
    Mamba2Config,
    MinGRUConfig,
    MLSTMConfig,
    NoEncoderConfig,
    NystromformerConfig,
    OrthogonalTransformerConfig,
    PerformerConfig,
    PretrainedConfig,
    RandomTransJectConfig,
    ReformerConfig,
    ReZeroConfig,
    RSAConfig,
    S4DConfig,
    SkyformerConfig,
    SLSTMConfig,
    StarSaberConfig,
    SynthesizerConfig,
    TransformerConfig,
    TransformerXLConfig,
    TransJectConfig,
    TruncatedLSTMConfig,
    TruncatedRNNConfig,
)
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.validation import parse_config

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder

PRETRAINED = "pretrained"
"""The name in `encoder.name` of an encoder in Hugging Face's layout, which has a path in place of sizes."""
LINEAR = "linear"
"""The name in `encoder.name` of a preset without an encoder, whose model is the linear one. It is not one of ENCODERS."""


class BuiltIn(NamedTuple):
    """An encoder of this package: its Config, and the names of its module and class, which needs torch."""

    config: type[EncoderConfig] | type[PretrainedConfig]
    module: str
    name: str


ENCODERS = {
    "starsaber": BuiltIn(StarSaberConfig, "starsaber", "StarSaber"),
    "gated-starsaber": BuiltIn(GatedStarSaberConfig, "gated_starsaber", "GatedStarSaber"),
    "rsa": BuiltIn(RSAConfig, "rsa", "RSA"),
    "transject": BuiltIn(TransJectConfig, "transject", "TransJect"),
    "random-transject": BuiltIn(RandomTransJectConfig, "transject", "RandomTransJect"),
    "transformer": BuiltIn(TransformerConfig, "transformer", "Transformer"),
    "orthogonal-transformer": BuiltIn(OrthogonalTransformerConfig, "orthogonal_transformer", "OrthogonalTransformer"),
    "rezero": BuiltIn(ReZeroConfig, "rezero", "ReZero"),
    "bilstm": BuiltIn(BiLSTMConfig, "bilstm", "BiLSTM"),
    "linear-transformer": BuiltIn(LinearTransformerConfig, "linear_transformer", "LinearTransformer"),
    "truncated-rnn": BuiltIn(TruncatedRNNConfig, "truncated", "TruncatedRNN"),
    "truncated-lstm": BuiltIn(TruncatedLSTMConfig, "truncated", "TruncatedLSTM"),
    "linformer": BuiltIn(LinformerConfig, "efficient.linformer", "Linformer"),
    "performer": BuiltIn(PerformerConfig, "efficient.performer", "Performer"),
    "nystromformer": BuiltIn(NystromformerConfig, "efficient.nystromformer", "Nystromformer"),
    "synthesizer": BuiltIn(SynthesizerConfig, "efficient.synthesizer", "Synthesizer"),
    "skyformer": BuiltIn(SkyformerConfig, "efficient.skyformer", "Skyformer"),
    "reformer": BuiltIn(ReformerConfig, "efficient.reformer", "Reformer"),
    "bigbird": BuiltIn(BigBirdConfig, "efficient.bigbird", "BigBird"),
    "informer": BuiltIn(InformerConfig, "efficient.informer", "Informer"),
    "transformer-xl": BuiltIn(TransformerXLConfig, "transformer_xl", "TransformerXL"),
    "block-recurrent-transformer": BuiltIn(BlockRecurrentConfig, "block_recurrent", "BlockRecurrentTransformer"),
    "temporal-latent-bottleneck": BuiltIn(LatentBottleneckConfig, "latent_bottleneck", "TemporalLatentBottleneck"),
    "mingru": BuiltIn(MinGRUConfig, "mingru", "MinGRU"),
    "s4d": BuiltIn(S4DConfig, "s4d", "S4D"),
    "gated-linear-attention": BuiltIn(GatedLinearAttentionConfig, "gated_linear_attention", "GatedLinearAttention"),
    "delta-net": BuiltIn(DeltaNetConfig, "delta_net", "DeltaNet"),
    "mamba2": BuiltIn(Mamba2Config, "mamba2", "Mamba2"),
    "mlstm": BuiltIn(MLSTMConfig, "mlstm", "MLSTM"),
    "slstm": BuiltIn(SLSTMConfig, "slstm", "SLSTM"),
    PRETRAINED: BuiltIn(PretrainedConfig, "pretrained", "Pretrained"),
}


def encoder_class(name: str) -> "type[Encoder]":
    """Return the class of the encoder `name`, from ENCODERS or from an entry point of the group `recurcli.encoders`.

    Raises UsageError if the name is unknown, or if the entry point is not a subclass of Encoder.
    """
    if (known := ENCODERS.get(name)) is not None:
        kind: type[Encoder] = getattr(import_module(f"recurcli.encoders.{known.module}"), known.name)
        return kind
    offered = {entry.name: entry for entry in entry_points(group="recurcli.encoders")}
    if name not in offered:
        raise UsageError(f"encoder '{escaped(name)}' is unknown{did_you_mean(str(name), ENCODERS.keys() | offered)}")
    found = offered[name].load()
    if not (isinstance(found, type) and issubclass(found, import_module("recurcli.encoders.encoder").Encoder)):
        raise UsageError(f"encoder '{name}': {offered[name].value} is not a subclass of recurcli.encoders.Encoder")
    return found


def encoder_config(name: str) -> type[Any]:
    """Return the Config of the encoder `name`, or of LINEAR; torch is imported for those of other packages only.

    Raises UsageError as `encoder_class`.
    """
    if name == LINEAR:
        return NoEncoderConfig
    known = ENCODERS.get(name)
    return encoder_class(name).Config if known is None else known.config


def causal_key(name: str) -> tuple[str, bool] | None:
    """Return the key, and its value, with which no position of the encoder `name` sees a later one; None: there is none.

    It is `causal` or, for a recurrent network that can be `bidirectional`, one direction. Raises UsageError as `encoder_class`.
    """
    known = {field.name for field in fields(encoder_config(name))}
    return next((pair for pair in (("causal", True), ("bidirectional", False)) if pair[0] in known), None)


def build_encoder(config: Mapping[str, Any]) -> "Encoder":
    """Build an encoder. `config` has the encoder's `name` and the keys of its Config.

    Raises UsageError for an unknown name, an unknown or missing key, or an invalid value.
    """
    if not isinstance(config.get("name"), str):
        raise UsageError(f"encoder.name is missing{did_you_mean('', ENCODERS)}")
    keys = dict(config)
    kind = encoder_class(keys.pop("name"))
    return kind(parse_config(kind.Config, keys))
