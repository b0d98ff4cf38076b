"""Choice of device and precision."""

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import UsageError, escaped, pluralize

Precision = Literal["auto", "fp32", "bf16"]
SettledPrecision = Literal["fp32", "bf16"]


def choose_device(name: str, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:N`. Raises UsageError if it is unknown or not available.

    If several processes share a machine, each gets its own CUDA device.
    """
    if ranks.local_world_size > 1 and (name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())):
        count = torch.cuda.device_count()
        if name not in ("auto", "cuda") or ranks.local_world_size > count:
            raise UsageError(
                f"{ranks.local_world_size} processes need a CUDA device each, of which there are {count}, and not "
                f"'{escaped(name)}'; start fewer, or use --device cuda or cpu"
            )
        return checked(torch.device("cuda", ranks.local_rank))
    if name == "auto":
        return checked(torch.device("cuda")) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device '{escaped(name)}' is unknown; use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device '{escaped(name)}' is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = pluralize(torch.cuda.device_count(), "CUDA device")
        raise UsageError(f"device '{name}' is not available; torch sees {seen}; use auto or cpu")
    return checked(device)


def checked(device: torch.device) -> torch.device:
    """Return `device`. Raises UsageError for a GPU that is too old for this build of torch."""
    known = [int(arch.removeprefix("sm_")) for arch in torch.cuda.get_arch_list() if re.fullmatch(r"sm_\d+", arch)]
    if device.type == "cuda" and known:
        major, minor = torch.cuda.get_device_capability(device)
        if 10 * major + minor < (least := min(known)):
            oldest = f"torch {torch.__version__} needs {least // 10}.{least % 10} or later"
            raise UsageError(
                f"device '{device}': its CUDA capability is {major}.{minor}, and {oldest}; use --device cpu, or an older torch"
            )
    return device


def choose_precision(name: Precision, device: torch.device) -> SettledPrecision:
    """Return the precision; `auto` is bf16 if `device` multiplies bf16 in hardware, else fp32."""
    return ("bf16" if multiplies_bf16(device) else "fp32") if name == "auto" else name


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether the hardware of `device` multiplies bf16: AMX, AVX512-BF16, or CUDA of capability 8.0."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # torch has only private functions for this; without them fp32 is safe, and bool() is False.
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", bool)
    has_avx512 = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)
    return has_amx() or has_avx512()


@contextlib.contextmanager
def cuda_settings(device: torch.device, encoder: str, *, deterministic: bool, tf32: bool) -> Iterator[None]:
    """Compute on a GPU with or without TF32 and `deterministic` algorithms within the block; on a CPU change nothing.

    Raises UsageError for an operation that has no deterministic algorithm, which names the `encoder` and the operation.
    """
    if device.type != "cuda":
        yield
        return
    backends: tuple[Any, Any] = torch.backends.cuda.matmul, torch.backends.cudnn
    before, only_warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    allowed = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = tf32
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts; torch demands it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        operation, found, _ = str(error).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise UsageError(
            f"runtime.deterministic: encoder {encoder}: torch's {operation} has no deterministic form on CUDA; set it to false"
        ) from error
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)
        for backend, value in zip(backends, allowed, strict=True):
            backend.allow_tf32 = value


@contextlib.contextmanager
def own_random_state() -> Iterator[None]:
    """Leave torch's global generators, those of GPUs too, as they were before the block."""
    was_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if was_used else ()):
        yield
    if not was_used:  # the seed that the first use of a GPU would have found
        torch.cuda.manual_seed_all(torch.initial_seed())


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on `device`. A GPU copies it from pinned memory, so the CPU need not wait."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def mask_to_device(mask: Tensor, device: torch.device) -> Tensor | None:
    """Return a mask of the CPU on `device`; None on a GPU if all tokens are real, so that kernels without a mask run."""
    return None if device.type == "cuda" and mask.all() else to_device(mask, device)


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the autocast context for `precision`; a null context for fp32."""
    if choose_precision(precision, device) == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
