"""Which device computes, and in which precision."""

import contextlib
from typing import Literal

import torch

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import UsageError, escaped

Precision = Literal["auto", "fp32", "bf16"]


def choose_device(name: str, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N` as a device that is really there; UsageError otherwise.

    Of several processes on a machine each has a CUDA device of its own.
    """
    if ranks.local_world_size > 1 and (name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())):
        return _own_device(name, ranks)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device '{escaped(name)}' is unknown; use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device '{escaped(name)}' is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device '{name}' is not here: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _own_device(name: str, ranks: Ranks) -> torch.device:
    if name not in ("auto", "cuda"):
        raise UsageError(
            f"device '{escaped(name)}' is one for {ranks.local_world_size} processes; say cuda: each takes its own"
        )
    if ranks.local_world_size > (count := torch.cuda.device_count()):
        raise UsageError(
            f"{ranks.local_world_size} processes and {count} CUDA devices; start {count}, or use --device cpu"
        )
    return torch.device("cuda", ranks.local_rank)


def choose_precision(name: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """What `auto` means on `device`: bf16 where the hardware multiplies it, else fp32."""
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # torch tells only by functions it calls private; without them the safe answer is fp32.
    tests = (getattr(torch.cpu, f"_is_{feature}_supported", None) for feature in ("amx_tile", "avx512_bf16"))
    return "bf16" if any(test() for test in tests if test) else "fp32"


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """The context in which a model computes: bf16 autocast, or nothing."""
    if choose_precision(precision, device) == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
