"""What tests of encoders and ops against their equations share: small encoders, batches, and two forms that must be one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recurcli.encoders import build_encoder
from recurcli.encoders.contract import check_same

__all__ = ["batch", "built", "check_same"]


def built(name: str, *, moved: float = 0.0, seed: int = 3, **keys: Any) -> Any:
    """A float64 encoder in evaluation; each parameter was moved by N(0, moved²), because a start may hide terms."""
    torch.manual_seed(seed)
    encoder = build_encoder({"name": name, **keys}).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(moved * torch.randn_like(parameter))
    return encoder


def batch(lengths: Sequence[int], size: int, filler: float = 1e4) -> tuple[Tensor, Tensor]:
    """Random embeddings (B, T, D) with `filler` behind each length, and their mask (B, T)."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    x = torch.randn(*mask.shape, size, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    return x.masked_fill(~mask[..., None], filler), mask
