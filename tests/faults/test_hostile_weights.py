"""Weights are read as safetensors or not at all, whatever their header says, and written as others read them."""

import json
import random
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from recurcli.errors import ModelError
from recurcli.files import OpenedFile, commit_directory
from recurcli.runs.model_files import load_tensors, save_tensors

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def safetensors(header: object, data: bytes = b"\0" * 8) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + data


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
