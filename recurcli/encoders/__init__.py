"""Encoders by name. An encoder's module, and torch with it, is imported on first use; its Config needs neither.

Other packages register encoders as entry points of the group `recurcli.encoders`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from recurcli.encoders.config import ENCODERS, LINEAR, PRETRAINED, built_in
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.validation import parse_config

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder

__all__ = ["ENCODERS", "LINEAR", "PRETRAINED", "Encoder", "build_encoder", "encoder_class"]


def __getattr__(name: str) -> Any:
    """Import `Encoder`, and torch with it, on first access."""
    if name == "Encoder":
        return import_module("recurcli.encoders.encoder").Encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def encoder_class(name: str) -> type[Encoder]:
    """Return the class of the encoder `name`, from ENCODERS or from an entry point.

    Raises UsageError if the name is unknown, or if the entry point is not a subclass of Encoder.
    """
    if (known := built_in(name)) is not None:
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
    """Return the Config of the encoder `name`; torch is imported for those of other packages only.

    Raises UsageError as `encoder_class`.
    """
    known = built_in(name)
    return encoder_class(name).Config if known is None else known.config


def causal_key(name: str) -> tuple[str, bool] | None:
    """Return the key, and its value, with which no position of the encoder `name` sees a later one; None: there is none.

    It is `causal` or, for a recurrent network that can be `bidirectional`, one direction. Raises UsageError as `encoder_class`.
    """
    known = {field.name for field in dataclasses.fields(encoder_config(name))}
    return next((pair for pair in (("causal", True), ("bidirectional", False)) if pair[0] in known), None)


def build_encoder(config: Mapping[str, Any]) -> Encoder:
    """Build an encoder. `config` has the encoder's `name` and the keys of its Config.

    Raises UsageError for an unknown name, an unknown or missing key, or an invalid value.
    """
    if not isinstance(config.get("name"), str):
        raise UsageError(f"encoder.name is missing{did_you_mean('', ENCODERS)}")
    kind = encoder_class(config["name"])
    return kind(parse_config(kind.Config, {key: value for key, value in config.items() if key != "name"}))
