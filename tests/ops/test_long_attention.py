"""Directional attention in O(T) memory is directional attention."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from recurcli.ops import directional_attention, directional_attention_loop
from recurcli.ops.long_attention import directional_attention_long, long_attention_available

pytestmark = pytest.mark.skipif(not long_attention_available(torch.zeros(1)), reason="this torch lacks the operator")


def inputs(length: int, masked: bool) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(length)
    drawn = torch.randn(4, 3, length, 8, dtype=torch.float64, generator=generator)
    query, key, past, future = (tensor.requires_grad_() for tensor in drawn.unbind())
    lengths = torch.tensor([length, max(1, length // 2), 1] if masked else [length] * 3)
    return (query, key, past, future), torch.arange(length) < lengths[:, None]


@pytest.mark.parametrize("length", [1, 2, 7, 33])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loop_and_its_gradients(length: int, masked: bool) -> None:
    tensors, mask = inputs(length, masked)
    weights = (
        torch.randn(3, length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(9)) * mask[..., None]
    )
    query, key, past, future = tensors
    forms = (directional_attention_long, directional_attention_loop)
    outputs = [form(query, key, past, future, mask) for form in forms]
    torch.testing.assert_close(outputs[0][mask], outputs[1][mask], atol=1e-12, rtol=0)
    gradients = [
        torch.autograd.grad((output * weights).sum(), tensors, allow_unused=True, materialize_grads=True)
        for output in outputs
    ]
    for fast, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-11, rtol=0)


def test_no_mask_means_that_all_are_real() -> None:
    tensors, mask = inputs(9, masked=False)
    assert torch.equal(directional_attention_long(*tensors), directional_attention_long(*tensors, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_is_as_exact_as_its_type(dtype: torch.dtype) -> None:
    tensors, mask = inputs(200, masked=True)
    exact = directional_attention(*tensors, mask)
    query, key, past, future = (tensor.to(dtype) for tensor in tensors)
    fast = directional_attention_long(query, key, past, future, mask)
    assert fast.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(fast[mask].double(), exact[mask], atol=tolerance, rtol=0)


def test_a_row_without_a_real_token_is_finite() -> None:
    tensors, mask = inputs(5, masked=False)
    mask[1] = False
    output = directional_attention_long(*tensors, mask)
    assert torch.isfinite(output).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(output[mask].sum(), tensors))


@pytest.mark.slow
def test_memory_doubles_with_the_length() -> None:
    """Peak memory of a training step of starsaber, D 128, beyond that of a process that has done a short one."""
    code = """
import re, sys, torch
from recurcli.encoders import build_encoder
encoder = build_encoder({"name": "starsaber", "hidden_size": 128, "num_layers": 2})
def step(length):
    encoder(torch.randn(4, length, 128)).sum().backward()
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # getrusage's is the parent's
before = step(256)
print(step(int(sys.argv[1])) - before)
"""
    used = {}
    for length in (2048, 4096, 8192):
        done = subprocess.run([sys.executable, "-c", code, str(length)], capture_output=True, text=True, check=True)
        used[length] = int(done.stdout)
    print(f"\nKiB beyond a short step: {used}")
    assert used[4096] <= 2.1 * used[2048]
    assert used[8192] <= 2.1 * used[4096], "one (T, T) tensor a row alone would be 1 GiB"
