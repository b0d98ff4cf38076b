"""Encoders by name. The table of them is imported on first use, and so is an encoder's module, and torch with it.

Other packages register encoders as entry points of the group `recurcli.encoders`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recurcli.encoders.encoder import Encoder
    from recurcli.encoders.registry import ENCODERS, build_encoder, encoder_class

__all__ = ["ENCODERS", "LINEAR", "PRETRAINED", "Encoder", "build_encoder", "encoder_class"]

PRETRAINED = "pretrained"
"""The name in `encoder.name` of an encoder in Hugging Face's layout, which has a path in place of sizes."""
LINEAR = "linear"
"""The name in `encoder.name` of a preset without an encoder, whose model is the linear one. It is not one of ENCODERS."""


def __getattr__(name: str) -> Any:
    """Import `Encoder`, and torch with it, or a part of the table on first access."""
    if name in __all__:
        return getattr(import_module(f"recurcli.encoders.{'encoder' if name == 'Encoder' else 'registry'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
