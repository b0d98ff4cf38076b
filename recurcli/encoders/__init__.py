"""Encoders by name. An encoder's module, and torch with it, is imported on first use; its Config needs neither.

Other packages register encoders as entry points of the group `recurcli.encoders`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from recurcli.encoders.registry import ENCODERS, LINEAR, PRETRAINED, build_encoder, encoder_class

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder

__all__ = ["ENCODERS", "LINEAR", "PRETRAINED", "Encoder", "build_encoder", "encoder_class"]


def __getattr__(name: str) -> Any:
    """Import `Encoder`, and torch with it, on first access."""
    if name == "Encoder":
        return import_module("recurcli.encoders.encoder").Encoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
