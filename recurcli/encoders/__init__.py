"""The encoders by name. Packages add their own through entry points of the group `recurcli.encoders`."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from recurcli.encoders.bilstm import BiLSTM
from recurcli.encoders.encoder import Encoder
from recurcli.encoders.gated_starsaber import GatedStarSaber
from recurcli.encoders.linear_transformer import LinearTransformer
from recurcli.encoders.orthogonal_transformer import OrthogonalTransformer
from recurcli.encoders.rezero import ReZero
from recurcli.encoders.rsa import RSA
from recurcli.encoders.starsaber import StarSaber
from recurcli.encoders.transformer import Transformer
from recurcli.encoders.transject import RandomTransJect, TransJect
from recurcli.encoders.truncated import TruncatedLSTM, TruncatedRNN
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.validation import parse_config

__all__ = ["ENCODERS", "Encoder", "build_encoder", "encoder_class"]

ENCODERS: dict[str, type[Encoder]] = {
    "starsaber": StarSaber,
    "gated-starsaber": GatedStarSaber,
    "rsa": RSA,
    "transject": TransJect,
    "random-transject": RandomTransJect,
    "transformer": Transformer,
    "orthogonal-transformer": OrthogonalTransformer,
    "rezero": ReZero,
    "bilstm": BiLSTM,
    "linear-transformer": LinearTransformer,
    "truncated-rnn": TruncatedRNN,
    "truncated-lstm": TruncatedLSTM,
}


def encoder_class(name: str) -> type[Encoder]:
    """The class of the encoder `name`, from here or from an entry point, which is loaded only when asked for.

    Raises UsageError for a name that nobody has, and for an entry point that is no encoder.
    """
    if name in ENCODERS:
        return ENCODERS[name]
    offered = {entry.name: entry for entry in entry_points(group="recurcli.encoders")}
    if name not in offered:
        raise UsageError(f"encoder '{escaped(name)}' is unknown{did_you_mean(str(name), ENCODERS.keys() | offered)}")
    found = offered[name].load()
    if not (isinstance(found, type) and issubclass(found, Encoder)):
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
