"""A GPU without numbers, on a CPU build of torch with the stub, that keeps what the CPU would wait for.

A tensor on it is one of torch's fake tensors: it has a shape, a dtype and a device, and raises what a GPU raises where these do
not fit. Tensors on the CPU are real, and what comes back from the GPU is 0. Attention runs in its mathematical form, and packed
rows have the full length. A shape that depends on numbers raises. A wait inside an operation is seen only where WAITS has it.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

WAITS = {"_linalg_svd": 2, "_linalg_check_errors": 1, "equal": 1, "coalesce": 1}
"""How often the CPU waits inside an operation. torch's SVD was seen to wait twice on an H200."""
ONE_DTYPE = ("mm", "addmm", "mv", "addmv", "dot", "convolution", "native_layer_norm", "_cudnn_rnn")
"""Kernels of a GPU that take numbers of one dtype. Fake tensors do not check it."""
COMPOSITE = "CompositeImplicitAutograd"
"""The key under which torch has an operation that is made of others."""


@contextmanager
def fake_gpu() -> Iterator["Watch"]:
    """The GPU is there, with all that a GPU of capability 8.0 can do."""
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # else it would move weights to one place
    watch = Watch()
    with watch.fake, watch, OfCudnn(watch):
        yield watch


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each operation where its tensors are, and keeps what the CPU waits for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.waits: list[str] = []
        self.recurrent: set[torch.dtype] = set()
        """The dtypes in which cuDNN ran recurrent layers."""

    def wait(self, what: str, times: int = 1) -> None:
        """Keep a wait, and the line of recurcli that it comes from."""
        lines = [frame for frame in traceback.extract_stack() if "/recurcli/" in frame.filename]
        place = f"{lines[-1].filename.rpartition('/recurcli/')[2]}:{lines[-1].lineno}" if lines else "a backward pass"
        self.waits += [f"{what} in {place}"] * times

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            with self:  # in inference mode it comes in one piece
                return func.decompose(*args, **kwargs)
        name, device = func.overloadpacket.__name__, kwargs.get("device")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        real = [tensor for tensor in tensors if not isinstance(tensor, FakeTensor)]
        if name == "is_pinned":
            return hasattr(args[0], "pinned")
        if len(real) == len(tensors) and (device is None or device.type == "cpu"):
            with unset_fake_temporarily():
                result = func(*args, **kwargs)
            if name == "_pin_memory":
                result.pinned = True
            return result
        if name in WAITS:
            self.wait(name, WAITS[name])
        if name in ONE_DTYPE and len({tensor.dtype for tensor in tensors}) > 1:
            raise TypeError(f"{name} of {', '.join(str(tensor.dtype) for tensor in tensors)}")
        if name == "_local_scalar_dense":
            self.wait("a number is read")
            return 0.5 if args[0].dtype.is_floating_point else args[0].dtype == torch.bool or 1
        if name == "_to_copy" and device is not None and device.type != args[0].device.type:
            return self._copied(args[0], **kwargs)
        if name == "copy_" and args[0].device.type != args[1].device.type:
            self._copied(args[1], args[0].device, *args[2:])
            return args[0]
        if name.strip("_").startswith("index") and real:
            self.wait("an index comes from the CPU")
        if name == "_cudnn_rnn":
            self.recurrent.add(args[0].dtype)
        if name == "_cudnn_rnn_backward":
            return _cudnn_gradients(*args)
        if real:
            args, kwargs = tree_map_only(Tensor, self._faked, (args, kwargs))
        return func(*args, **kwargs)

    def _copied(
        self,
        source: Tensor,
        device: torch.device,
        non_blocking: bool = False,
        dtype: torch.dtype | None = None,
        **_: object,
    ) -> Tensor:
        """The copy on the other device. Only one from pinned memory, which nothing asks for at once, lets the CPU go on."""
        if device.type == "cpu":
            self.wait("a copy to the CPU")
            with unset_fake_temporarily():
                return torch.zeros(source.shape, dtype=dtype or source.dtype)
        if not (non_blocking and hasattr(source, "pinned")):
            self.wait("a copy to the GPU")
        return torch.empty_strided(source.shape, source.stride(), dtype=dtype or source.dtype, device=device)

    def _faked(self, tensor: Tensor) -> Tensor:
        return tensor if isinstance(tensor, FakeTensor) else self.fake.from_tensor(tensor)


def _cudnn_gradients(data: Tensor, weights: list[Tensor], *args: Any) -> tuple[Any, ...]:
    """The gradients of input, h, c and weights. cuDNN has none of a layer that was not told that it trains."""
    hidden, memory, training = args[2], args[3], args[14]
    if not training:
        raise RuntimeError("cuDNN has no backward pass of a recurrent layer with train=False")
    gradients = [None if tensor is None else torch.empty_like(tensor) for tensor in (data, hidden, memory)]
    return *gradients, [torch.empty_like(weight) for weight in weights]


class OfCudnn(TorchFunctionMode):
    """Functions of which a CPU build has no form for a GPU: recurrent layers by cuDNN, packed rows, sparse gradients."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], FakeTensor):
            if name == "coalesce":  # of a fake tensor, which has no values, it does nothing
                self.watch.wait(name, WAITS[name])
            func = REPLACED.get(name, func)
        return func(*args, **(kwargs or {}))


def _recurrent(data: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """torch.lstm and torch.rnn_tanh by cuDNN: the states, and h (and c) at the end. Autocast makes everything float16."""
    packed = isinstance(args[2], list)  # then the batch sizes come second, and no batch_first at the end
    batch_sizes, (start, weights, _, layers, dropout, training, both, *batch_first) = (
        (args[0].tolist(), args[1:]) if packed else ([], args)
    )
    is_lstm = not isinstance(start, Tensor)
    tensors = [data, *weights, *(start if is_lstm else [start])]
    if torch.is_autocast_enabled("cuda"):
        tensors = [tensor.half() for tensor in tensors]
    count = len(weights) + 1
    (data, *weights), (hidden, *memory) = tensors[:count], tensors[count:]
    states, *ends = torch.ops.aten._cudnn_rnn(
        *(data, weights, 4, data.new_empty(0), hidden, memory[0] if is_lstm else None),
        *(2 if is_lstm else 1, hidden.shape[2], 0, layers, any(batch_first), dropout, training, both),
        *(batch_sizes, None),
    )
    return states, *ends[: 1 + is_lstm]


def _packed(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Rows (B, T, D) as (T B, D), one position after the other, and the number of rows at each (T,)."""
    assert batch_first
    assert lengths.device.type == "cpu", "torch packs rows by lengths on the CPU"
    return x.transpose(0, 1).flatten(0, 1), torch.full((x.shape[1],), len(x))


def _padded(data: Tensor, batch_sizes: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    """Undo `_packed`: rows (B, T, D) and their lengths (B,)."""
    positions, rows = len(batch_sizes), int(batch_sizes[0])
    return data.view(positions, rows, -1).transpose(0, 1), torch.full((rows,), positions)


REPLACED = {
    "lstm": _recurrent,
    "rnn_tanh": _recurrent,
    "_pack_padded_sequence": _packed,
    "_pad_packed_sequence": _padded,
}
