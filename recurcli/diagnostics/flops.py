"""Floating-point operations of a forward pass, by torch's formulas."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode  # private to torch: a move breaks this import
from torch.utils.flop_counter import flop_registry

from recurcli.config import ModelConfig
from recurcli.encoders import build_encoder
from recurcli.layers import normal_


def forward_flops_per_token(config: ModelConfig, length: int) -> float:
    """FLOPs (a multiplication and an addition are two) of the encoder for one token of a row of `length`.

    Only matrix products and attention count; element-wise work does not. An encoder whose work depends on values, such
    as the tied StarSaber, is counted on one row of equal tokens with fresh weights.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        encoder = build_encoder(config.encoder).eval()
        token = normal_(torch.empty(1, 1, config.hidden_size), std=config.hidden_size**-0.5)
        x = token.repeat(1, length, 1)
        encoder(x)  # what evaluation makes once and keeps is not a token's work
        with _Counter() as counter:
            encoder(x)
    return counter.total / length


def _lstm_layer(x: Tensor, of_input: Tensor, of_hidden: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of the products of an LSTM layer in one direction: x (T, B, D)."""
    return 2 * x.shape[0] * x.shape[1] * (of_input.numel() + of_hidden.numel())


_ATEN = torch.ops.aten
_FORMULAS = {
    **flop_registry,
    _ATEN.baddbmm_: flop_registry[_ATEN.baddbmm],
    # Two that only CPUs have.
    _ATEN._scaled_dot_product_flash_attention_for_cpu: flop_registry[_ATEN._scaled_dot_product_flash_attention],
    _ATEN.mkldnn_rnn_layer: _lstm_layer,
}


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up FLOPs as torch's FlopCounterMode does, which imports torch._dynamo to stay out of compiled graphs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    # Private to torch: where it is renamed, counts stay right, and torch._dynamo is imported.
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if formula := _FORMULAS.get(func.overloadpacket):
            self.total += formula(*args, **kwargs, out_val=result)
        return result
