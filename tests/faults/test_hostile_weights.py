"""Weights that are a trap: safetensors with a hostile header, pickles under its name, tensors of another kind."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from recurcli.errors import ModelError
from recurcli.files import OpenedFile, commit_directory, write_manifest
from recurcli.model.saved import load_tensors, save_tensors
from recurcli.runs.model_files import build_trained_classifier, read_model

Recur = Callable[..., tuple[int, str, str]]
F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def safetensors(header: object, data: bytes = b"\0" * 8) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + data


class Trap:
    """Unpickled it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def zipped(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.")
    return path.read_bytes()


HEADERS: dict[str, bytes] = {
    "above 1 MB": safetensors({"x": F32, "__metadata__": {"a": "b" * (1 << 20)}}),
    "more than 10,000 tensors": safetensors({f"t{i}": F32 for i in range(10_001)}),
    "an unknown kind of number": safetensors({"x": {**F32, "dtype": "F33"}}),
    "no kind of number": safetensors({"x": {**F32, "dtype": 3}}),
    "offsets outside": safetensors({"x": {**F32, "data_offsets": [8, 16]}}),
    "offsets below zero": safetensors({"x": {**F32, "data_offsets": [-8, 0]}}),
    "offsets backwards": safetensors({"x": {**F32, "data_offsets": [8, 0]}}),
    "offsets beyond all numbers": safetensors({"x": {**F32, "data_offsets": [0, 1 << 70]}}),
    "overlapping tensors": safetensors({"x": F32, "y": F32}),
    "a hole between tensors": safetensors({"x": F32, "y": {**F32, "data_offsets": [16, 24]}}, b"\0" * 24),
    "bytes after the last tensor": safetensors({"x": F32}, b"\0" * 64),
    "a shape of another size": safetensors({"x": {**F32, "shape": [3]}}),
    "a shape beyond all memory": safetensors({"x": {**F32, "shape": [1 << 31, 1 << 31, 1 << 31]}}),
    "a shape below zero": safetensors({"x": {**F32, "shape": [-1, -2]}}),
    "a header that is a list": safetensors([F32]),
    "a header that is no JSON": safetensors(b"{" * 64),
    "a header that is not UTF-8": safetensors(b'{"\xff": 1}'),
    "a header as long as a file can be": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "a header longer than the file": struct.pack("<Q", 100) + b"{}",
    "names in the order of a bomb": safetensors(b'{"a":' * 5000 + b"1" + b"}" * 5000),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(HEADERS[name])
    with pytest.raises(ModelError, match=r"model\.safetensors: "):
        load_tensors(OpenedFile(tmp_path / "model.safetensors"))


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


def test_what_is_written_is_what_safetensors_reads_and_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    whole = torch.arange(-30.0, 30.0).reshape(5, 12)
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool)
    tensors = {f"é{kind}": whole.to(kind) for kind in (*kinds, torch.int64, torch.int32, torch.int16, torch.uint64)}
    tensors |= {"turned": whole.T, "part": whole[1:3], "same": whole, "none": torch.zeros(0, 3), "one": torch.tensor(7)}
    before = os.umask(0o027)
    try:
        commit_directory(tmp_path / "x", {"weights": lambda path: save_tensors(tensors, path)})
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "x" / "weights").stat().st_mode & 0o777 == 0o640
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


def rewritten(trained: Path, target: Path, content: bytes | dict[str, torch.Tensor]) -> Path:
    """A run with other weights, and a manifest that fits them."""
    run = shutil.copytree(trained, target, ignore=shutil.ignore_patterns("checkpoints"))
    if isinstance(content, bytes):
        (run / "model.safetensors").write_bytes(content)
    else:
        save_file(content, run / "model.safetensors")
    write_manifest(run, ("config.json", "model.safetensors", "tokenizer.json"))
    return run


def test_pickles_under_the_name_of_weights_are_refused_unopened(recur: Recur, trained: Path, tmp_path: Path) -> None:
    mark = tmp_path / "opened"
    torch.save({"x": Trap(mark)}, tmp_path / "zip.bin")
    torch.save({"x": Trap(mark)}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    contents = [(tmp_path / "zip.bin").read_bytes(), (tmp_path / "old.bin").read_bytes(), zipped(tmp_path / "x.zip")]
    for number, content in enumerate(contents):
        run = rewritten(trained, tmp_path / str(number), content)
        code, out, err = recur("eval", run)
        assert (code, out) == (4, "")
        assert err == f"recur: error: {run / 'model.safetensors'}: is not a safetensors file, or is truncated\n"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (torch.Tensor.double, "has dtype torch.float64, but must have torch.float32"),
        (torch.Tensor.half, "has dtype torch.float16, but must have torch.float32"),
        (torch.Tensor.long, "has dtype torch.int64, but must have torch.float32"),
        (lambda tensor: tensor.to(torch.float8_e4m3fn), "has dtype torch.float8_e4m3fn, but must have torch.float32"),
        (lambda tensor: tensor * torch.nan, "has values that are not finite"),
        (lambda tensor: tensor.flatten().contiguous(), "has the shape"),
    ],
)
def test_weights_of_another_kind_are_refused(change: Any, reason: str, trained: Path, tmp_path: Path) -> None:
    tensors = dict(read_model(trained).tensors)
    name = "embedding.weight"
    run = rewritten(trained, tmp_path / "run", {**tensors, name: change(tensors[name])})
    with pytest.raises(ModelError, match=f"{name} {reason}"):
        build_trained_classifier(read_model(run), torch.device("cpu"))


@pytest.mark.parametrize("odd", [torch.zeros(3), torch.zeros(1, dtype=torch.int32)])
def test_optimizer_state_of_another_kind_is_refused(
    odd: torch.Tensor, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").unlink()
    newest = max((run / "checkpoints").iterdir())
    tensors = load_tensors(OpenedFile(newest / "optimizer.safetensors"))
    name = "exp_avg_sq/embedding.weight"
    changed = odd if odd.is_floating_point() else odd.expand_as(tensors[name]).contiguous()
    save_file({**tensors, name: changed}, newest / "optimizer.safetensors")
    write_manifest(newest, [path.name for path in newest.iterdir() if path.name != "manifest.json"])
    code, _, err = recur("finetune", "--preset", run / "preset.yaml", "--output", run, "--resume", "--quiet")
    assert (code, err.count("\n")) == (4, 1)
    assert f"optimizer state does not fit the model: {name}" in err


CHILD = """
import json, re, sys, time
from recurcli.cli import run
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
code, usual = run(["predict", sys.argv[1], sys.argv[2], "--quiet", "--output", "-", "--no-header"]), peak()
started, code = time.process_time(), run(["eval", sys.argv[3]])
print(json.dumps({"code": code, "seconds": time.process_time() - started, "megabytes": peak() - usual}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["num_layers", "hidden_size"])
def test_a_config_that_claims_a_giant_is_refused_before_it_is_built(key: str, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("鼠牛虎\n")
    run = claiming(trained, tmp_path / "run", **{key: 10**6})
    command = [sys.executable, "-c", CHILD, str(trained), str(tmp_path / "x.txt"), str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["code"] == 4
    assert done.stderr.startswith(f"recur: error: {run}/")
    assert done.stderr.count("\n") == 1
    assert answer["seconds"] < 1
    assert answer["megabytes"] < 50


@pytest.mark.parametrize("size", [10**9, 10**18, 10**19, 10**400])
def test_a_size_beyond_all_memory_is_one_line(size: int, recur: Recur, trained: Path, tmp_path: Path) -> None:
    code, out, err = recur("eval", claiming(trained, tmp_path / "run", hidden_size=size))
    assert (code, out, err.count("\n")) == (4, "", 1), err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("num_layers", 99, "encoder.num_layers is 99, but the weights have 2 layers"),
        ("hidden_size", 10**6, "encoder.hidden_size is 1000000, but no tensor of the weights has this size"),
    ],
)
def test_a_config_is_compared_with_the_tensors_before_a_model_is_built(
    key: str, value: int, told: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    code, _, err = recur("eval", claiming(trained, tmp_path / "run", **{key: value}))
    assert (code, told in err) == (4, True), err


def claiming(trained: Path, target: Path, **encoder: object) -> Path:
    """A copy of a run whose config.json claims other sizes, and whose manifest fits."""
    run = shutil.copytree(trained, target, ignore=shutil.ignore_patterns("checkpoints"))
    config = json.loads((run / "config.json").read_text())
    config["encoder"] |= encoder
    (run / "config.json").write_text(json.dumps(config))
    write_manifest(run, ("config.json", "model.safetensors", "tokenizer.json"))
    return run
