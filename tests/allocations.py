"""What a computation makes and holds: the size of every tensor that an operator of torch returns, backward pass included."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context whose `made` are shape and type of every new tensor; views of older ones do not count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[tuple[torch.Size, torch.dtype]] = []
        self.bytes_held = self.peak_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in given:
                self.made.append((leaf.shape, leaf.dtype))
                self._hold(leaf.untyped_storage())
        return result

    def _hold(self, storage: torch.UntypedStorage) -> None:
        """Count the bytes of a new tensor until they are freed."""
        self.bytes_held += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.bytes_held)
        weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size: int) -> None:
        self.bytes_held -= size


def elements_made(compute: Callable[[int], Tensor], length: int) -> int:
    """Elements of all tensors that `compute(length)` and the backward pass of its sum make."""
    with Allocations() as allocations:
        compute(length).sum().backward()  # type: ignore[no-untyped-call]
    return sum(shape.numel() for shape, _ in allocations.made)
