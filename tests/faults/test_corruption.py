"""Every flipped bit and every cut in a file that a manifest covers is found, the manifest's own too."""

import json
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cases import slow_but
from forked import ForkServer
from safetensors.torch import load, save_file
from small_runs import options

from recurcli.errors import ModelError
from recurcli.files import OpenedFile
from recurcli.runs.network_files import load_tensors, read_model
from recurcli.training.session import newest_checkpoint

MODEL = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "predictions.dev.jsonl",
    "linear.safetensors",
    "kept.json",
    "manifest.json",
)
CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json", "manifest.json")
FLIPS = (20, pytest.param(100, marks=pytest.mark.slow))
"""For each file; and a tenth as many cuts, at least its two ends."""


def damages(path: Path, draw: random.Random, flips: int) -> Iterator[str]:
    """Damage a file in one place after the other, saying where; what it held is put back after each."""
    whole = path.read_bytes()
    places = [draw.randrange(len(whole) * 8) for _ in range(flips)]
    for place in places:
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        yield f"bit {place} of {path.name}"
    for length in [0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(flips // 10 - 2))]:
        path.write_bytes(whole[:length])
        yield f"{path.name} cut to {length} bytes"
    path.write_bytes(whole)


def is_harmless(path: Path, before: object) -> bool:
    """Whether a manifest still says what it said: blanks between its words, or the line end after them, mean nothing."""
    try:
        return path.name == "manifest.json" and json.loads(path.read_bytes()) == before
    except ValueError:
        return False


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("name", MODEL)
def test_every_flip_and_cut_in_a_model_is_found(name: str, flips: int, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    before = json.loads((run / "manifest.json").read_bytes())
    found = harmless = 0
    for where in damages(run / name, random.Random(name), flips):
        if is_harmless(run / name, before):
            harmless += 1
            read_model(run)
            continue
        with pytest.raises(ModelError, match=f"{run}/(.*): (is damaged|is missing|does not list|is not a plain file)"):
            pytest.fail(f"{where}: {read_model(run)}")
        found += 1
    read_model(run)
    assert found + harmless == flips + flips // 10
    assert not harmless or name == "manifest.json"


@pytest.fixture(scope="module")
def checkpoints(forks: ForkServer, tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a training, the newest with best weights of an earlier step beside its own."""
    output = tmp_path_factory.mktemp("damaged") / "run"
    settings = ("finetuning.evaluate_every=2", "finetuning.checkpoint_every=1")
    shim = ("die_at", {"moment": "a step", "call": 10, "delay": 0})
    forks.run("finetune", *options(tiny_tnews, output, *settings), shims=(shim,))
    newest = max((output / "checkpoints").iterdir())
    assert {path.name for path in newest.iterdir()} == set(CHECKPOINT)
    return output / "checkpoints"


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("name", slow_but(["model.safetensors", "manifest.json"], CHECKPOINT))
def test_every_flip_and_cut_in_a_checkpoint_falls_back_to_the_one_before(
    name: str, flips: int, checkpoints: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoints, tmp_path / "checkpoints")
    older, newest = sorted(folder.iterdir())
    before = json.loads((newest / "manifest.json").read_bytes())
    found = harmless = 0
    for where in damages(newest / name, random.Random(name), flips):
        if is_harmless(newest / name, before):
            harmless += 1
            continue
        checkpoint, warnings = newest_checkpoint(folder)
        assert checkpoint is not None
        assert f"step-{checkpoint.state.step:08d}" == older.name, where
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{newest}")
        assert warnings[0].endswith(f"; resuming from {older.name}")
        if name != "manifest.json":
            assert warnings[0].startswith(f"{newest / name}: is damaged"), where
        (folder / f"{newest.name}.damaged").rename(newest)
        found += 1
    assert newest_checkpoint(folder)[1] == []
    assert found + harmless == flips + flips // 10
    assert not harmless or name == "manifest.json"
    shutil.rmtree(older)
    for _ in damages(newest / name, random.Random(name), flips):
        if not is_harmless(newest / name, before):
            with pytest.raises(ModelError, match="no checkpoint is left to resume from; start again with --overwrite"):
                newest_checkpoint(folder)


def test_what_is_not_listed_is_not_read(checkpoints: Path, trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoints, tmp_path / "checkpoints")
    newest = max(folder.iterdir())
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest["files"] = [entry for entry in manifest["files"] if entry["name"] != "best.safetensors"]
    (newest / "manifest.json").write_text(json.dumps(manifest))
    (newest / "notes.txt").write_text("mine")
    (newest / "model.py").write_text("raise SystemExit")
    (folder / "step-00000099").write_text("no folder")
    (folder / "step-1").mkdir()
    (folder / "README").write_text("mine")
    checkpoint, warnings = newest_checkpoint(folder)
    assert checkpoint is not None
    assert checkpoint.best is None, "a file that the manifest does not list is foreign"
    assert warnings == [
        f"{folder / 'step-00000099'}: is a file or a symbolic link, not a folder; links are not followed; put a folder there; "
        f"resuming from {newest.name}"
    ]
    assert (folder / "README").read_text() == (newest / "notes.txt").read_text() == "mine"
    run = shutil.copytree(trained, tmp_path / "run")
    for name in ("pytorch_model.bin", "model.safetensors.index.json", "adapter.py", ".tmpdir"):
        (run / name).write_bytes(b"\x80\x04.")
    read_model(run)


def test_no_mutation_of_a_header_is_more_than_an_error_and_none_that_safetensors_refuses_is_read(
    tmp_path: Path,
) -> None:
    path, draw = tmp_path / "model.safetensors", random.Random(3)
    save_file({"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.int64)}, path)
    whole = path.read_bytes()
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    refused = 0
    for _ in range(600):
        mutated = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            mutated[draw.randrange(length)] = draw.choice(b'0123456789-"[]{},:eE.F' + bytes(range(256)))
        path.write_bytes(mutated)
        try:
            read = load_tensors(OpenedFile(path))
        except ModelError:
            refused += 1
            continue
        for name, tensor in load(bytes(mutated)).items():  # of another dtype of the same size, if not the same
            assert torch.equal(read[name].view(torch.uint8), tensor.view(torch.uint8))
            assert (read[name].dtype, read[name].shape) == (tensor.dtype, tensor.shape)
    assert refused > 300
