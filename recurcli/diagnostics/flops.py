"""Floating-point operations of a forward pass, counted by torch: on shapes alone where the encoder allows it."""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from recurcli.model.config import ModelConfig
from recurcli.model.models import Backbone


def forward_flops_per_token(config: ModelConfig, length: int) -> float:
    """FLOPs (a multiplication and an addition are two) of embedding and encoder for one token of a row of `length`.

    Only matrix products and attention count; element-wise work does not. An encoder whose work depends on values, such
    as the tied StarSaber, is counted on one row of zeros with fresh weights.
    """
    try:
        return _count(config, length, "meta")
    except (NotImplementedError, RuntimeError):  # values were asked for, and the meta device has none
        return _count(config, length, "cpu")


def _count(config: ModelConfig, length: int, device: str) -> float:
    with torch.device(device), torch.no_grad():
        model = Backbone(config).eval()
        x = model.embedding(torch.zeros(1, length, dtype=torch.long))
        model.encoder(x)  # what evaluation makes once and keeps is not a token's work
        with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: _in_place_product}) as counter:
            model.encoder(x)
    return counter.get_total_flops() / length


def _in_place_product(total: Any, left: Any, right: Any, **_: Any) -> int:
    """FLOPs of baddbmm_ by the shapes of its tensors: torch's own counter does not know the product added in place."""
    batch, rows, inner = left
    return int(2 * batch * rows * inner * right[2])
