"""`runtime.precision: auto` in training: the hardware decides, and nothing else."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from running import Recur, result_of
from small_runs import fingerprint
from tiny_task import tiny

from recurcli import device
from recurcli.device import choose_precision, multiplies_bf16

CPU = torch.device("cpu")
PLAIN = ("encoder.num_layers=1", "finetuning.linear_baseline=false", "ensemble=null")


def finetuning(data: Path, output: Path, precision: str, *settings: str) -> list[object]:
    line = ["finetune", "--preset", "starsaber-tnews", "--data", data, "--output", output, "--keep-checkpoints"]
    return [*line, *tiny(*PLAIN, f"runtime.precision={precision}", *settings)]


def answer(patch: pytest.MonkeyPatch, yes: bool) -> None:
    """Let the hardware multiply bf16, or not."""
    patch.setattr(device, "multiplies_bf16", lambda device: yes)


@pytest.mark.parametrize(("amx", "avx512"), [(True, False), (False, True), (False, False)])
def test_a_cpu_multiplies_bf16_by_amx_or_by_avx512(monkeypatch: pytest.MonkeyPatch, amx: bool, avx512: bool) -> None:
    features = {"_is_amx_tile_supported": lambda: amx, "_is_avx512_bf16_supported": lambda: avx512}
    monkeypatch.setattr(torch, "cpu", SimpleNamespace(**features))
    assert multiplies_bf16(CPU) == (amx or avx512)


@pytest.mark.parametrize(("capability", "yes"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_multiplies_bf16_from_8_0(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], yes: bool
) -> None:
    second = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", {second: capability}.__getitem__)
    assert multiplies_bf16(second) == yes


@pytest.mark.parametrize("yes", [True, False])
def test_auto_is_what_the_hardware_multiplies_and_a_name_is_itself(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    answer(monkeypatch, yes)
    assert choose_precision("auto", CPU) == ("bf16" if yes else "fp32")
    assert (choose_precision("fp32", CPU), choose_precision("bf16", CPU)) == ("fp32", "bf16")


@pytest.mark.parametrize("yes", [True, False])
def test_a_training_has_the_precision_of_the_hardware_and_repeats(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answer(monkeypatch, yes)
    found = []
    for name, precision in (("auto", "auto"), ("named", "bf16" if yes else "fp32")):
        _, err = recur.ok(*finetuning(tiny_tnews, tmp_path / name, precision, "finetuning.max_steps=2"))
        assert "runtime.precision" not in err, "nothing is timed"
        found.append((result_of(tmp_path / name)["machine"]["precision"], fingerprint(tmp_path / name)))
    assert found[0] == found[1]
    assert found[0][0] == ("bf16" if yes else "fp32")


def test_a_resume_on_other_hardware_warns(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, True)
    line = finetuning(tiny_tnews, tmp_path / "x", "auto", "finetuning.max_steps=8", "finetuning.checkpoint_every=4")
    recur.ok(*line)
    (tmp_path / "x" / "result.json").unlink()
    shutil.rmtree(tmp_path / "x" / "checkpoints" / "step-00000008")
    answer(monkeypatch, False)
    _, err = recur.ok(*line, "--resume")
    assert "precision was 'bf16' and is now 'fp32': the run continues, but its result is not bit-identical" in err
    assert result_of(tmp_path / "x")["machine"]["precision"] == "fp32"
