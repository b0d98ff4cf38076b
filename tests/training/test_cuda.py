"""The same commands on a GPU; skipped where there is none."""

import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from logs import Kept, drop_at_step
from running import Recur
from sized_encoders import SIZED
from tiny_task import TINY, tiny

from recurcli.commands.finetune import finetune
from recurcli.errors import NumericError
from recurcli.files import sha256_of
from recurcli.requests.training import FinetuneRequest
from recurcli.training import fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("encoder", ["starsaber", "transformer", "rezero", "bilstm"])
def test_a_model_trained_on_cuda_predicts_the_same_on_the_cpu(
    encoder: str, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    from recurcli import Predictor

    run = tmp_path / encoder
    options = ["--preset", f"{encoder}-tnews", "--data", tiny_tnews, "--output", run, *tiny(), "--device", "cuda"]
    recur.ok("finetune", *options, "--quiet")
    texts = ["鼠牛虎兔", "龙", ""]
    scores = [Predictor.load(run, device=device).logits(texts) for device in ("cpu", "cuda")]
    assert abs(scores[0] - scores[1]).max() < 1e-4


def test_a_run_on_cuda_resumes(tiny_tnews: Path, tmp_path: Path) -> None:
    settings = [*TINY, "encoder.dropout=0.2", "finetuning.checkpoint_every=3", "runtime.device=cuda"]
    asked = partial(FinetuneRequest, preset="starsaber-tnews", data=tiny_tnews, settings=settings)
    finetune(asked(output=tmp_path / "whole"), Kept())
    drop_at_step(5, finetune, asked(output=tmp_path / "x"))
    log = Kept()
    finetune(asked(output=tmp_path / "x", resume=True), log)
    assert any("resumed at step 3" in note for note in log.notes)
    assert sha256_of(tmp_path / "x" / "model.safetensors") == sha256_of(tmp_path / "whole" / "model.safetensors")


@pytest.mark.parametrize("encoder", SIZED)
def test_a_deterministic_training_on_cuda_repeats_to_the_bit(encoder: str, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = [*TINY, "encoder.dropout=0.2", "finetuning.max_steps=4", "runtime.deterministic=true"]
    asked = partial(FinetuneRequest, preset=f"{encoder}-tnews", data=tiny_tnews)
    for name in ("one", "two"):
        finetune(asked(settings=[*settings, "runtime.device=cuda"], output=tmp_path / name), Kept())
    assert sha256_of(tmp_path / "one" / "model.safetensors") == sha256_of(tmp_path / "two" / "model.safetensors")
    assert not torch.are_deterministic_algorithms_enabled()


WAITS = {"truncated-rnn": 8}
"""torch's SVD waits twice for each of four matrices."""


@pytest.mark.parametrize("encoder", SIZED)
def test_a_step_in_bf16_does_not_wait_for_the_gpu(
    encoder: str, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, waits = fit.take_step, [0]

    def counted(loop: fit.TrainingLoop, *rows: Any) -> None:
        if loop.state.step != 2:
            return honest(loop, *rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                honest(loop, *rows)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits[0] = sum("synchronizing" in str(warning.message) for warning in caught)

    monkeypatch.setattr(fit, "take_step", counted)
    settings = [*TINY, "runtime.precision=bf16", "finetuning.max_steps=4", "runtime.device=cuda"]
    finetune(
        FinetuneRequest(preset=f"{encoder}-tnews", data=tiny_tnews, settings=settings, output=tmp_path / "x"), Kept()
    )
    assert waits[0] <= WAITS.get(encoder, 1)


@pytest.mark.parametrize("encoder", ["truncated-rnn", "truncated-lstm"])
def test_a_recurrent_layer_without_a_window_trains_on_cuda(encoder: str, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = [*TINY, "encoder.window=null", "runtime.precision=bf16", "finetuning.max_steps=4", "runtime.device=cuda"]
    finetune(
        FinetuneRequest(preset=f"{encoder}-tnews", data=tiny_tnews, settings=settings, output=tmp_path / "x"), Kept()
    )
    assert (tmp_path / "x" / "model.safetensors").is_file()


def test_a_loss_that_is_not_finite_is_named_by_its_step_and_leaves_no_checkpoint(
    tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = fit.compute_gradients

    def poisoned(loop: fit.TrainingLoop, *arguments: Any) -> dict[str, torch.Tensor]:
        losses = honest(loop, *arguments)
        return {name: value * torch.nan if loop.state.step == 6 else value for name, value in losses.items()}

    monkeypatch.setattr(fit, "compute_gradients", poisoned)
    settings = [*TINY, "finetuning.log_every=100", "finetuning.checkpoint_every=5", "runtime.device=cuda"]
    asked = FinetuneRequest(preset="starsaber-tnews", data=tiny_tnews, settings=settings, output=tmp_path / "x")
    with pytest.raises(NumericError, match="step 7: loss nan"):
        finetune(asked, Kept())
    steps = [int(re.sub(r"\D", "", path.name)) for path in (tmp_path / "x" / "checkpoints").iterdir()]
    assert steps and max(steps) == 5
