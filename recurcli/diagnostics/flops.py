"""Floating-point operations of a forward pass, counted by torch on shapes alone: no memory, no time."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from recurcli.model.config import ModelConfig
from recurcli.model.models import Backbone


def forward_flops_per_token(config: ModelConfig, length: int) -> float:
    """FLOPs (a multiplication and an addition are two) of embedding and encoder for one token of a row of `length`.

    Only matrix products and attention count; element-wise work does not.
    """
    with torch.device("meta"):
        model = Backbone(config).eval()
        ids, mask = torch.zeros(1, length, dtype=torch.long), torch.ones(1, length, dtype=torch.bool)
        with torch.no_grad():
            model.encode(ids, mask)  # what evaluation makes once and keeps is not a token's work
            with FlopCounterMode(display=False) as counter:
                model.encode(ids, mask)
    return counter.get_total_flops() / length
