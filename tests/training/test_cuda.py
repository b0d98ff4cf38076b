"""The same commands on a GPU; skipped where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_task import tiny

from recurcli.files import sha256_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("encoder", ["starsaber", "transformer", "rezero", "bilstm"])
def test_a_model_trained_on_cuda_predicts_the_same_on_the_cpu(
    encoder: str, recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path
) -> None:
    from recurcli import Predictor

    run = tmp_path / encoder
    options = ["--preset", f"{encoder}-tnews", "--data", tiny_tnews, "--output", run, *tiny(), "--device", "cuda"]
    code, _, err = recur("finetune", *options, "--quiet")
    assert code == 0, err
    texts = ["鼠牛虎兔", "龙", ""]
    scores = [Predictor.load(run, device=device, precision="fp32").logits(texts) for device in ("cpu", "cuda")]
    assert abs(scores[0] - scores[1]).max() < 1e-4


def test_a_run_on_cuda_resumes(recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path) -> None:
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, *tiny(), "--device", "cuda", "--quiet"]
    for name in ("a", "b"):
        code, _, err = recur("finetune", *options, "--output", tmp_path / name)
        assert code == 0, err
    assert sha256_of(tmp_path / "a" / "model.safetensors") == sha256_of(tmp_path / "b" / "model.safetensors")
