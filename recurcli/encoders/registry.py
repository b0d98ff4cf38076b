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

from recurcli.encoders import LINEAR, PRETRAINED
from recurcli.encoders import config as configs
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.validation import parse_config

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder


class BuiltIn(NamedTuple):
    """An encoder of this package: its Config, and the names of its module and class, which needs torch."""

    config: type[configs.EncoderConfig] | type[configs.PretrainedConfig]
    module: str
    name: str


ENCODERS = {
    "starsaber": BuiltIn(configs.StarSaberConfig, "starsaber", "StarSaber"),
    "gated-starsaber": BuiltIn(configs.GatedStarSaberConfig, "gated_starsaber", "GatedStarSaber"),
    "rsa": BuiltIn(configs.RSAConfig, "rsa", "RSA"),
    "transject": BuiltIn(configs.TransJectConfig, "transject", "TransJect"),
    "random-transject": BuiltIn(configs.RandomTransJectConfig, "transject", "RandomTransJect"),
    "transformer": BuiltIn(configs.TransformerConfig, "transformer", "Transformer"),
    "orthogonal-transformer": BuiltIn(
        configs.OrthogonalTransformerConfig, "orthogonal_transformer", "OrthogonalTransformer"
    ),
    "rezero": BuiltIn(configs.ReZeroConfig, "rezero", "ReZero"),
    "bilstm": BuiltIn(configs.BiLSTMConfig, "bilstm", "BiLSTM"),
    "linear-transformer": BuiltIn(configs.LinearTransformerConfig, "linear_transformer", "LinearTransformer"),
    "truncated-rnn": BuiltIn(configs.TruncatedRNNConfig, "truncated", "TruncatedRNN"),
    "truncated-lstm": BuiltIn(configs.TruncatedLSTMConfig, "truncated", "TruncatedLSTM"),
    "linformer": BuiltIn(configs.LinformerConfig, "efficient.linformer", "Linformer"),
    "performer": BuiltIn(configs.PerformerConfig, "efficient.performer", "Performer"),
    "nystromformer": BuiltIn(configs.NystromformerConfig, "efficient.nystromformer", "Nystromformer"),
    "synthesizer": BuiltIn(configs.SynthesizerConfig, "efficient.synthesizer", "Synthesizer"),
    "skyformer": BuiltIn(configs.SkyformerConfig, "efficient.skyformer", "Skyformer"),
    "reformer": BuiltIn(configs.ReformerConfig, "efficient.reformer", "Reformer"),
    "bigbird": BuiltIn(configs.BigBirdConfig, "efficient.bigbird", "BigBird"),
    "informer": BuiltIn(configs.InformerConfig, "efficient.informer", "Informer"),
    "transformer-xl": BuiltIn(configs.TransformerXLConfig, "transformer_xl", "TransformerXL"),
    "block-recurrent-transformer": BuiltIn(
        configs.BlockRecurrentConfig, "block_recurrent", "BlockRecurrentTransformer"
    ),
    "temporal-latent-bottleneck": BuiltIn(
        configs.LatentBottleneckConfig, "latent_bottleneck", "TemporalLatentBottleneck"
    ),
    "mingru": BuiltIn(configs.MinGRUConfig, "mingru", "MinGRU"),
    "s4d": BuiltIn(configs.S4DConfig, "s4d", "S4D"),
    "gated-linear-attention": BuiltIn(
        configs.GatedLinearAttentionConfig, "gated_linear_attention", "GatedLinearAttention"
    ),
    "delta-net": BuiltIn(configs.DeltaNetConfig, "delta_net", "DeltaNet"),
    "mamba2": BuiltIn(configs.Mamba2Config, "mamba2", "Mamba2"),
    "mlstm": BuiltIn(configs.MLSTMConfig, "mlstm", "MLSTM"),
    "slstm": BuiltIn(configs.SLSTMConfig, "slstm", "SLSTM"),
    PRETRAINED: BuiltIn(configs.PretrainedConfig, "pretrained", "Pretrained"),
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
        return configs.NoEncoderConfig
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
