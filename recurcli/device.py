"""Choice of device and precision."""

import contextlib
from typing import Literal

import torch
from torch import Tensor

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import UsageError, escaped

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
        return torch.device("cuda", ranks.local_rank)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device '{escaped(name)}' is unknown; use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device '{escaped(name)}' is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device '{name}' is not available; torch sees {torch.cuda.device_count()} CUDA devices; use auto or cpu"
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


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on `device`. A GPU copies it from pinned memory, so the CPU need not wait."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the autocast context for `precision`; a null context for fp32."""
    if choose_precision(precision, device) == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
