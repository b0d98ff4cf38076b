"""Compares the kernels of directional attention with `directional_attention`: a line of JSON a case.

TRITON_INTERPRET=1 python kernels.py cpu        in Triton's interpreter
TRITON_INTERPRET=1 python kernels.py cpu few    with and without a mask and in half precision there, and no more
python kernels.py cuda                          on a GPU
python kernels.py cuda time                     milliseconds and memory there, forward and backward
"""

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from recurcli.ops.attention import directional_attention
from recurcli.ops.directional_kernel import difference, kernel_attention

CASES: list[tuple[Any, ...]] = [  # B, T, D, lengths, dtype
    (2, 33, 16, [33, 20], "float32"),
    (2, 128, 32, [128, 1], "float32"),
    (1, 70, 64, [64], "float32"),
    (2, 64, 16, None, "float32"),
    (1, 1, 16, None, "float32"),
    (1, 20, 256, [13], "float32"),
    (2, 40, 32, [40, 17], "float16"),
]
ON_GPU: list[tuple[Any, ...]] = [  # the interpreter multiplies no bfloat16, and is slow
    (2, 40, 32, [40, 17], "bfloat16"),
    (4, 128, 256, [128, 1, 77, 64], "bfloat16"),
    (2, 513, 512, [513, 300], "bfloat16"),
    (2, 513, 512, [513, 300], "float32"),
]
KINDS = kernel_attention, directional_attention


def inputs_of(shape: Sequence[Any], device: torch.device) -> tuple[list[Any], Any]:
    """Return query, key, past, future and the gradient of the output (B, T, D), and the mask (B, T) or None."""
    batch, length, size, lengths = shape
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(batch, length, size, generator=generator).to(device) for _ in range(5)]
    mask = (
        None if lengths is None else torch.arange(length, device=device) < torch.tensor(lengths, device=device)[:, None]
    )
    return parts, mask


def passes(attend: Callable[..., Any], parts: list[Any], mask: Any, dtype: torch.dtype) -> list[Any]:
    """Return the output and the gradients of the four inputs, each (B, T, D)."""
    inputs = [part.to(dtype).requires_grad_() for part in parts[:4]]
    out = attend(*inputs, mask)
    return [out.detach(), *torch.autograd.grad(out, inputs, parts[4].to(dtype))]


def compare(device: torch.device, cases: Sequence[tuple[Any, ...]]) -> None:
    """Print the largest differences, in units of the largest value where that is above 1."""
    for *shape, name in cases:
        dtype = getattr(torch, name)
        parts, mask = inputs_of(shape, device)
        parts = [part.to(dtype).float() for part in parts]
        of_kernel, of_torch = (
            passes(attend, parts, mask, kind) for attend, kind in zip(KINDS, (dtype, torch.float32), strict=True)
        )
        found = [
            float((one.float() - other).abs().max() / other.abs().max().clamp(min=1))
            for one, other in zip(of_kernel, of_torch, strict=True)
        ]
        print(json.dumps({"case": [*shape, name], "differences": found}))
    print(json.dumps({"case": "auto", "differences": [difference(device)]}))


def time(device: torch.device) -> None:
    """Print the median of 20 passes."""
    for length in (32, 128, 512, 2048):
        parts, mask = inputs_of([32, length, 256, [length] * 32], device)
        for attend in KINDS:
            spent = []
            for _ in range(25):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                start.record()
                passes(attend, parts, mask, torch.bfloat16)
                end.record()
                torch.cuda.synchronize()
                spent.append(start.elapsed_time(end))
            found = {"milliseconds": sorted(spent[5:])[10], "bytes": torch.cuda.max_memory_allocated() - before}
            print(json.dumps({"length": length, "by": attend.__name__, **found}))


if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    if "time" in sys.argv:
        time(device)
    else:
        compare(device, [*CASES, *ON_GPU] if device.type == "cuda" else CASES[::3] if "few" in sys.argv else CASES)
