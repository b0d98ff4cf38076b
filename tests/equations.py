"""What tests of encoders and ops against their equations share: small encoders, batches, and two forms that must be one."""

from typing import Any

from recurcli.encoders import contract
from recurcli.encoders.contract import batch, check_same

__all__ = ["batch", "built", "check_same"]


def built(name: str, *, moved: float = 0.0, seed: int = 3, **keys: Any) -> Any:
    """The contract's encoder, whose parameters were moved by N(0, moved²); of no type, so that tests read its parts."""
    return contract.moved(name, by=moved, seed=seed, **keys)
