"""The Triton kernels of directional attention, which Triton's interpreter runs on the CPU, and when a training takes them."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from logs import Kept
from loops import training_loop

from recurcli.errors import UsageError
from recurcli.models import build
from recurcli.models.build import settle_kernel
from recurcli.preset import compose

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="there is no triton")
CUDA = torch.device("cuda")


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_triton
@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["cpu", "few"], 4),
        pytest.param(["cpu"], 8, marks=pytest.mark.slow),
        pytest.param(["cuda"], 12, marks=needs_gpu),
    ],
)
def test_the_kernels_give_what_torch_gives_and_so_do_their_gradients(arguments: list[str], number: int) -> None:
    """In a process of its own, since the interpreter is chosen when triton is imported."""
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "01"["cpu" in arguments], "PYTHONPATH": paths}
    line = [sys.executable, str(Path(__file__).with_name("kernels.py")), *arguments]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    cases = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(cases) == number
    for case in cases:
        most = 2e-2 if {"float16", "bfloat16"} & set(map(str, case["case"])) else 2e-5
        assert max(case["differences"]) < most, case


def preset_of(name: str, kernel: str, **keys: Any) -> Any:
    settings = [f"runtime.kernel={kernel}", *(f"{key}={value}" for key, value in keys.items())]
    return compose(name, settings=settings).preset


@pytest.mark.parametrize(
    ("device", "keys", "reason"),
    [
        ("cpu", {}, "it runs on CUDA, and the device is cpu"),
        ("cuda", {"runtime.compile": "true"}, "runtime.compile makes kernels of its own"),
    ],
)
def test_a_kernel_that_cannot_run_is_refused_or_left_out(
    device: str, keys: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: True)
    model, log = training_loop().model, Kept()
    model.encoder.kernel_obstacle = ""
    with pytest.raises(UsageError, match=f"runtime.kernel triton: {re.escape(reason)}; set it to plain"):
        settle_kernel(model, preset_of("starsaber-custom", "triton", **keys), torch.device(device), log)  # type: ignore[arg-type]
    settle_kernel(model, preset_of("starsaber-custom", "auto", **keys), torch.device(device), log)  # type: ignore[arg-type]
    assert log.notes == [f"runtime.kernel auto: plain, since {reason}"]


def test_an_encoder_without_a_kernel_and_a_missing_triton_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, log = training_loop().model, Kept()
    model.encoder.kernel_obstacle = "it has no kernel"
    with pytest.raises(UsageError, match=r"runtime\.kernel triton: encoder rsa: it has no kernel; set it to plain"):
        settle_kernel(model, preset_of("rsa-custom", "triton"), CUDA, log)  # type: ignore[arg-type]
    model.encoder.kernel_obstacle = ""
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"the package triton is missing \(pip install triton\)"):
        settle_kernel(model, preset_of("starsaber-custom", "triton"), CUDA, log)  # type: ignore[arg-type]


@needs_triton
@pytest.mark.parametrize(("found", "is_used"), [(1e-5, True), (0.1, False)])
def test_auto_takes_the_kernel_where_it_agrees_with_torch(
    found: float, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.ops.directional_kernel.difference", lambda device: found)
    model, log, used = training_loop().model, Kept(), []
    monkeypatch.setattr(model.encoder, "kernel_obstacle", "")
    monkeypatch.setattr(model.encoder, "use_kernel", lambda: used.append(True))
    settle_kernel(model, preset_of("starsaber-custom", "auto"), CUDA, log)  # type: ignore[arg-type]
    assert bool(used) == is_used
    assert "Triton kernel" in log.notes[0] if is_used else "the kernel differs from torch by 0.1" in log.notes[0]
