"""What a model makes of its parameters before it computes, such as orthogonal matrices: once a step, or once for good."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

_held: ContextVar[dict[int, list[Tensor]] | None] = ContextVar("_held", default=None)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The autocast type on the device of `x` where autocast is on, else the type of `x`."""
    kind = x.device.type
    enabled = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not so on the meta device
    return torch.get_autocast_dtype(kind) if enabled else x.dtype


@contextmanager
def computed_once() -> Iterator[None]:
    """Compute every `CachedMap` at most once inside the block, in training too: for one forward pass and its losses."""
    token = _held.set({})
    try:
        yield
    finally:
        _held.reset(token)


class CachedMap(nn.Module):
    """A pure function of parameters. Evaluation caches its value until a parameter changes.

    In training mode, or with gradients enabled, the function runs at every call, or once per block of `computed_once`.
    The cached value is then dropped: the step of a fused optimiser cannot be detected, but it always follows such a
    call. A change of mode drops the value too, and so does a parameter that was written to, replaced or moved. A
    write through `parameter.data` in evaluation is not detected. `torch.export` uses the cached value, so run an
    evaluation first. A graph of `torch.compile` runs the function at every call.
    """

    def __init__(self, function: Callable[[Sequence[Tensor]], list[Tensor]]) -> None:
        super().__init__()
        self.function = function
        self._kept: list[Tensor] = []
        self._state: object = None

    def train(self, mode: bool = True) -> "CachedMap":
        """As every module's."""
        if mode != self.training:
            self._kept = []
        return super().train(mode)

    def held(self) -> list[Tensor] | None:
        """The value that the block of `computed_once` holds; None outside of one, and before the first call in it."""
        return (_held.get() or {}).get(id(self))

    def forward(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """function(parameters), perhaps from an earlier call."""
        if torch.compiler.is_exporting():  # an exported model is constant, and its parameters cannot be looked at
            return self._kept or self.function(parameters)
        if torch.compiler.is_compiling():  # a graph cannot look at them either
            return self.function(parameters)
        if self.training or torch.is_grad_enabled() or any(p.is_inference() for p in parameters):
            self._kept = []
            held = _held.get()
            if held is None:
                return self.function(parameters)
            if id(self) not in held:
                held[id(self)] = self.function(parameters)
            return held[id(self)]
        state = [(p.data_ptr(), p._version, p.shape, p.device, p.dtype, compute_dtype(p)) for p in parameters]
        if not self._kept or state != self._state:
            with torch.inference_mode(False), torch.no_grad():  # an inference tensor can never take part in a backward
                self._kept, self._state = self.function(parameters), state
        return self._kept
