"""Compares the kernels of directional attention with `directional_attention` in Triton's interpreter: a line of JSON a case.

TRITON_INTERPRET=1 python kernels.py
"""

import json
import warnings

import torch

from recurcli.ops.attention import directional_attention
from recurcli.ops.directional_kernel import difference, kernel_attention

CASES = [  # B, T, D, lengths, dtype; the interpreter multiplies no bfloat16, and float16 takes the same way
    (2, 33, 16, [33, 20], "float32"),
    (2, 128, 32, [128, 1], "float32"),
    (1, 70, 64, [64], "float32"),
    (2, 64, 16, None, "float32"),
    (1, 1, 16, None, "float32"),
    (1, 20, 256, [13], "float32"),
    (2, 40, 32, [40, 17], "float16"),
]

if __name__ == "__main__":
    warnings.simplefilter("error", RuntimeWarning)
    generator = torch.Generator().manual_seed(0)
    for batch, length, size, lengths, name in CASES:
        dtype = getattr(torch, name)
        parts = [torch.randn(batch, length, size, generator=generator).to(dtype) for _ in range(5)]
        mask = None if lengths is None else torch.arange(length) < torch.tensor(lengths)[:, None]
        results = []
        for attend, kind in ((kernel_attention, dtype), (directional_attention, torch.float32)):
            query, key, past, future = inputs = [part.to(kind).requires_grad_() for part in parts[:4]]
            out = attend(query, key, past, future, mask)
            results.append([out.detach(), *torch.autograd.grad(out, inputs, parts[4].to(kind))])
        found = [float((one.float() - other).abs().max()) for one, other in zip(*results, strict=True)]
        print(json.dumps({"case": [batch, length, size, lengths, name], "differences": found}))
    print(json.dumps({"case": "auto", "differences": [difference(torch.device("cpu"))]}))
