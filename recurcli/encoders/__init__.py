"""The encoders by name, none of them imported before it is asked for: the table needs no torch.

Packages add their own through entry points of the group `recurcli.encoders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.encoders import config as keys
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.validation import parse_config

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder

__all__ = ["ENCODERS", "Encoder", "build_encoder", "encoder_class"]


class BuiltIn(NamedTuple):
    """An encoder's `Config`, and the module and class that it configures."""

    config: type[Any]
    module: str
    name: str


ENCODERS = {
    "starsaber": BuiltIn(keys.StarSaberConfig, "starsaber", "StarSaber"),
    "gated-starsaber": BuiltIn(keys.GatedStarSaberConfig, "gated_starsaber", "GatedStarSaber"),
    "rsa": BuiltIn(keys.RSAConfig, "rsa", "RSA"),
    "transject": BuiltIn(keys.TransJectConfig, "transject", "TransJect"),
    "random-transject": BuiltIn(keys.RandomTransJectConfig, "transject", "RandomTransJect"),
    "transformer": BuiltIn(keys.TransformerConfig, "transformer", "Transformer"),
    "orthogonal-transformer": BuiltIn(
        keys.OrthogonalTransformerConfig, "orthogonal_transformer", "OrthogonalTransformer"
    ),
    "rezero": BuiltIn(keys.ReZeroConfig, "rezero", "ReZero"),
    "bilstm": BuiltIn(keys.BiLSTMConfig, "bilstm", "BiLSTM"),
    "linear-transformer": BuiltIn(keys.LinearTransformerConfig, "linear_transformer", "LinearTransformer"),
    "truncated-rnn": BuiltIn(keys.TruncatedRNNConfig, "truncated", "TruncatedRNN"),
    "truncated-lstm": BuiltIn(keys.TruncatedLSTMConfig, "truncated", "TruncatedLSTM"),
}


def __getattr__(name: str) -> Any:
    """`Encoder`, imported with torch when it is asked for."""
    if name == "Encoder":
        return import_module("recurcli.encoders.encoder").Encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def encoder_class(name: str) -> type[Encoder]:
    """The class of the encoder `name`, from here or from an entry point.

    Raises UsageError for an unknown name, and for an entry point that is no encoder.
    """
    if name in ENCODERS:
        entry = ENCODERS[name]
        built_in: type[Encoder] = getattr(import_module(f"recurcli.encoders.{entry.module}"), entry.name)
        return built_in
    offered = {entry.name: entry for entry in entry_points(group="recurcli.encoders")}
    if name not in offered:
        raise UsageError(f"encoder '{escaped(name)}' is unknown{did_you_mean(str(name), ENCODERS.keys() | offered)}")
    found = offered[name].load()
    if not (isinstance(found, type) and issubclass(found, import_module("recurcli.encoders.encoder").Encoder)):
        raise UsageError(f"encoder '{name}': {offered[name].value} is no subclass of recurcli.encoders.Encoder")
    return found


def build_encoder(config: Mapping[str, Any]) -> Encoder:
    """The encoder that `config` describes: its `name` and the keys of that encoder's Config.

    Raises UsageError for an unknown name or key, a missing key, or a value that does not fit.
    """
    if not isinstance(config.get("name"), str):
        raise UsageError(f"an encoder needs a name{did_you_mean('', ENCODERS)}")
    kind = encoder_class(config["name"])
    return kind(parse_config(kind.Config, {key: value for key, value in config.items() if key != "name"}))
