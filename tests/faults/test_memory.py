"""A lack of memory ends a command with 5, and a compiler that is not there with 2; each line names the way out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from recurcli.cli.app import explained


def fail(error: Exception) -> None:
    raise error


FULL = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


@pytest.mark.parametrize(
    ("failing", "whose"),
    [
        (lambda: torch.empty(1 << 50), "the"),
        (lambda: bytearray(1 << 60), "the"),
        (lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")), "the GPU's"),
        (lambda: fail(RuntimeError(FULL)), "the GPU's"),
    ],
)
def test_a_lack_of_memory_names_what_makes_a_command_smaller(failing: Callable[[], object], whose: str) -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        failing()
    code, line = explained(caught.value)
    assert (code, line.startswith(f"{whose} memory is full; use a smaller --batch-size")) == (5, True), line
    assert "data.max_length" in line and "gradient_accumulation_steps" in line


def test_another_error_of_torch_is_still_a_bug() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert explained(caught.value)[0] == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own tracing
def test_without_a_compiler_the_line_names_the_setting_that_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(config.cpp, "cxx", (None, str(tmp_path / "nowhere")))
    with pytest.raises(RuntimeError) as caught:
        torch.compile(lambda x: x.sin() + x.cos())(torch.ones(7))
    code, line = explained(caught.value)
    assert (code, "No working C++ compiler found" in line) == (2, True), line
    assert line.endswith("; set runtime.compile=false") and "TORCH_LOGS" not in line
