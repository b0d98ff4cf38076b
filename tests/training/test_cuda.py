"""The same commands on a GPU; skipped where there is none."""

from functools import partial
from pathlib import Path

import pytest
import torch
from logs import Kept, drop_at_step
from running import Recur
from tiny_task import TINY, tiny

from recurcli.commands.finetune import finetune
from recurcli.files import sha256_of
from recurcli.requests.training import FinetuneRequest

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
