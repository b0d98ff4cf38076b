"""Building a module from saved weights: nothing is drawn or allocated twice, and every kind of module comes back whole."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_contents import F32, safetensors
from safetensors.torch import load_file
from sized_encoders import SIZED
from torch import Tensor, nn

from recurcli.config import ModelConfig, TokenizerConfig
from recurcli.errors import ModelError
from recurcli.files import OpenedFile, commit_directory
from recurcli.network import Classifier
from recurcli.runs.network_files import NetworkFiles, build_from_weights, build_trained, load_tensors, save_tensors
from recurcli.tokens.tokenizer import Tokenizer

SOURCE = Path("model.safetensors")


class Scaled(nn.Linear):
    """A layer with a scale of 2 that is no parameter."""

    scale: Any

    def __init__(self, kind: str) -> None:
        super().__init__(3, 3)
        if kind == "a buffer that is not saved":
            self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)
        elif kind == "a buffer that ignores the meta device":
            self.register_buffer("scale", torch.from_numpy(np.full(3, 2.0, np.float32)), persistent=False)
        elif kind == "an attribute":
            self.scale = torch.full((3,), 2.0)
        else:
            self.scale = float(self.weight.detach().abs().max()) * 0 + 2

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


KINDS = (
    "a buffer that is not saved",
    "a buffer that ignores the meta device",
    "an attribute",
    "a number of its weights",
)


@pytest.mark.parametrize("kind", ["", *KINDS])
def test_a_module_that_the_meta_device_cannot_hold_is_built_too(kind: str) -> None:
    def build() -> nn.Module:
        return Scaled(kind) if kind else nn.Linear(3, 3)

    trained, x = build(), torch.randn(2, 3)
    loaded = build_from_weights(build, trained.state_dict(), SOURCE)
    assert torch.equal(loaded(x), trained(x))


@pytest.mark.parametrize("name", SIZED)
def test_a_classifier_comes_back_without_drawing_weights(name: str, tmp_path: Path) -> None:
    encoder = {"name": name, "hidden_size": 8, "num_layers": 2}
    config = ModelConfig(encoder=encoder, vocab_size=11, pad_id=0, max_length=9, num_classes=2)
    trained = Classifier(config).eval()
    drawn = torch.get_rng_state()
    tokenizer = Tokenizer.train(["a"], TokenizerConfig(kind="char", min_frequency=1))
    files = NetworkFiles(config, tokenizer, trained.state_dict(), tmp_path)
    loaded = build_trained(Classifier, files, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), drawn)
    ids, mask = torch.randint(1, 11, (3, 5)), torch.ones(3, 5, dtype=torch.bool)
    assert torch.equal(loaded(ids, mask)[0], trained(ids, mask)[0])
    assert [parameter.requires_grad for parameter in loaded.parameters()] == [
        parameter.requires_grad for parameter in trained.parameters()
    ]


def test_an_error_of_the_module_is_not_hidden() -> None:
    def build() -> nn.Module:
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        build_from_weights(build, {}, SOURCE)
    with pytest.raises(ModelError, match=r"model\.safetensors: has no tensor bias"):
        build_from_weights(lambda: nn.Linear(2, 2), {"weight": torch.zeros(2, 2)}, SOURCE)


def test_what_is_written_is_what_safetensors_reads_and_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    whole = torch.arange(-30.0, 30.0).reshape(5, 12)
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool)
    tensors = {f"é{kind}": whole.to(kind) for kind in (*kinds, torch.int64, torch.int32, torch.int16, torch.uint64)}
    tensors |= {"turned": whole.T, "part": whole[1:3], "same": whole, "none": torch.zeros(0, 3), "one": torch.tensor(7)}
    commit_directory(tmp_path / "x", {"weights": lambda path: save_tensors(tensors, path)})
    (tmp_path / "plain").touch()
    assert (tmp_path / "x" / "weights").stat().st_mode == (tmp_path / "plain").stat().st_mode
    theirs, ours = load_file(tmp_path / "x" / "weights"), load_tensors(OpenedFile(tmp_path / "x" / "weights"))
    assert theirs.keys() == ours.keys() == tensors.keys()
    for name, tensor in tensors.items():
        for read in (theirs[name], ours[name]):
            assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(read.double(), tensor.double())


def test_tensors_that_are_not_aligned_are_read(tmp_path: Path) -> None:
    header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "x": {**F32, "data_offsets": [1, 9]}}
    (tmp_path / "x").write_bytes(safetensors(header, b"\1" + struct.pack("<2f", 1.5, -2)))
    assert load_tensors(OpenedFile(tmp_path / "x"))["x"].tolist() == [1.5, -2]
