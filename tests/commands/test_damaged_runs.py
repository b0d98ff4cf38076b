"""A run that is damaged, foreign or unsafe ends eval, predict and export with 4 and one line, and nothing written."""

import json
import pickle
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import slow_but
from safetensors.torch import load_file, save_file
from test_evaluate import copy_of
from tiny_task import tiny

from recurcli.cli import run
from recurcli.data.config import TokenizerConfig
from recurcli.errors import ModelError
from recurcli.evaluation.inference import Predictor
from recurcli.files import read_manifest, write_atomically, write_manifest
from recurcli.runs.run_directory import open_run
from recurcli.tokens.tokenizer import Tokenizer

Recur = Callable[..., tuple[int, str, str]]
MODEL = ("config.json", "model.safetensors", "tokenizer.json")
FILES = (*MODEL, "predictions.dev.jsonl", "manifest.json")


def refused(recur: Recur, path: Path, reason: str, work: Path) -> None:
    """All three commands that use a model refuse the one at `path`."""
    work.mkdir(exist_ok=True)
    (work / "x.tsv").write_text("a\n")
    for command in (
        ("eval", path),
        ("predict", path, work / "x.tsv", "--output", work / "out"),
        ("export", path, "--output", work / "clue.zip"),
    ):
        code, out, err = recur(*command)
        assert (code, out) == (4, ""), err
        assert err.startswith("recur: error: ")
        assert reason in err
        assert err.count("\n") == 1
    assert [path.name for path in work.iterdir()] == ["x.tsv"]


@pytest.mark.parametrize("name", slow_but(["model.safetensors", "manifest.json"], FILES))
def test_a_flipped_bit_is_found_in_every_file(name: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    damaged = copy_of(trained, tmp_path / "run")
    content = bytearray((damaged / name).read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / name).write_bytes(content)
    reason = "is damaged" if name != "manifest.json" else str(damaged)
    refused(recur, damaged, reason, tmp_path / "work")


@pytest.mark.parametrize("name", slow_but(["model.safetensors", "manifest.json"], FILES))
def test_a_missing_file_is_named(name: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    damaged = copy_of(trained, tmp_path / "run")
    (damaged / name).unlink()
    reason = f"{damaged / name}: is missing" if name != "manifest.json" else "has no complete model yet"
    refused(recur, damaged, reason, tmp_path / "work")


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("/tmp/recur-was-here"),)  # type: ignore[return-value]


def forged(trained: Path, target: Path, name: str, content: bytes) -> Path:
    """A run with another file in it, and a manifest that fits."""
    path = copy_of(trained, target)
    (path / name).write_bytes(content)
    write_manifest(path, MODEL)
    return path


def test_weights_are_read_as_safetensors_or_not_at_all(recur: Recur, trained: Path, tmp_path: Path) -> None:
    whole = (trained / "model.safetensors").read_bytes()
    header = b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    for number, (content, reason) in enumerate(
        (
            (whole[: len(whole) // 2], "is damaged"),
            (whole[:100], "is not a safetensors file, or is truncated"),
            (b"", "is not a safetensors file, or is truncated"),
            (pickle.dumps(Trap()), "is not a safetensors file"),
            (b"PK\x03\x04" + b"\0" * 100, "is not a safetensors file"),
            (struct.pack("<Q", 1 << 40) + whole[8:], "is not a safetensors file"),
            (
                struct.pack("<Q", len(header)) + header + b"\0" * 8,
                "encoder.num_layers is 2, but the weights have 0 layers",
            ),
            (whole[:8] + whole[8:].replace(b"F32", b"F99", 1), "is damaged"),
            (struct.pack("<Q", 60_000) + b"[" * 60_000, "header is damaged"),
        )
    ):
        path = forged(trained, tmp_path / str(number), "model.safetensors", content)
        refused(recur, path, reason, tmp_path / "work")
    assert not Path("/tmp/recur-was-here").exists()


def test_a_tokenizer_of_another_vocabulary_does_not_fit(recur: Recur, trained: Path, tmp_path: Path) -> None:
    other = Tokenizer.train(["abc", "def"], TokenizerConfig(min_frequency=1)).to_json()
    path = forged(trained, tmp_path / "run", "tokenizer.json", other.encode())
    refused(recur, path, "the tokenizer does not fit the model", tmp_path / "work")
    for number, content in enumerate((b"{}", b"\xff", b'{"version": "1.0"}', b"[" * 99_999)):
        path = forged(trained, tmp_path / str(number), "tokenizer.json", content)
        refused(recur, path, "tokenizer.json: is damaged", tmp_path / "work")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model_type", "bert", "is not the config.json of a recur model"),
        ("format_version", 99, "has format version 99"),
        ("encoder", {"name": "unheard-of", "hidden_size": 16, "num_layers": 2}, "unheard-of"),
        ("encoder", {"name": "rezero", "hidden_size": 16, "num_layers": 2}, "belongs to another architecture"),
        ("encoder", {"name": "starsaber", "hidden_size": 16, "num_layers": 2, "x": 1}, "x: unknown key"),
        ("encoder", {"name": "starsaber", "hidden_size": "16", "num_layers": 2}, "hidden_size"),
        ("encoder", {"name": "starsaber"}, "hidden_size"),
        (
            "encoder",
            {"name": "transformer", "hidden_size": 10**9, "num_layers": 2},
            "config.json: encoder.hidden_size is 1000000000, but",
        ),
        ("encoder", [], "encoder"),
        ("id2label", {"0": "100", "2": "101"}, "is damaged"),
        ("id2label", {"0": "a", "1": "a"}, "labels: must differ"),
        ("id2label", {"0": "a", "1": "b"}, "head.output.bias has the shape (15,), but the architecture has (2,)"),
        ("vocab_size", 10**9, "the tokenizer does not fit the model"),
        ("max_length", 0, "max_length"),
    ],
)
def test_a_config_of_something_else_is_refused(
    key: str, value: object, reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    config = json.loads((trained / "config.json").read_text())
    path = forged(trained, tmp_path / "run", "config.json", json.dumps({**config, key: value}).encode())
    refused(recur, path, reason, tmp_path / "work")


def test_a_file_outside_the_run_is_not_followed_to(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for name in MODEL:
        path = copy_of(trained, tmp_path / name / "run")
        (path / name).rename(tmp_path / name / "elsewhere")
        (path / name).symlink_to(tmp_path / name / "elsewhere")
        refused(recur, path, f"{path / name}: is not a plain file of its folder", tmp_path / "work")
    path = copy_of(trained, tmp_path / "run")
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(manifest.replace('"predictions.dev.jsonl"', '"../../x"'))
    refused(recur, path, "is not a plain file of its folder", tmp_path / "work")


def test_what_is_no_finished_classifier_says_what_it_is(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    pretrained = tmp_path / "pretrained"
    options = ["--preset", "rezero-tnews", "--data", str(tiny_tnews), "--output", str(pretrained), "--quiet"]
    assert run(["pretrain", *options, *tiny("pretraining.max_steps=1")]) == 0
    refused(recur, pretrained, "is a pretrained run without classes; `recur finetune --init`", tmp_path / "work")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(pretrained / "preset.yaml", unfinished)
    refused(
        recur,
        unfinished,
        "has no complete model yet; continue its training with the same command and --resume",
        tmp_path / "work",
    )
    (tmp_path / "empty").mkdir()
    refused(recur, tmp_path / "empty", "is not a run of recur", tmp_path / "work")
    refused(recur, tmp_path / "nowhere", "is not a run directory (it does not exist)", tmp_path / "work")
    refused(recur, tmp_path / "work" / "x.tsv", "is not a run directory", tmp_path / "work")


def test_debug_shows_where(recur: Recur, tmp_path: Path) -> None:
    code, _, err = recur("eval", tmp_path / "nowhere", "--debug")
    assert code == 4
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1].startswith("recur: error: ")


class Swap:
    """An audit hook that puts another run in the place of one, file by file, just before its n-th file is opened."""

    def __init__(self) -> None:
        self.run, self.other, self.left = Path(), Path(), 0
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.left and str(arguments[0]).startswith(f"{self.run}/"):
            self.left -= 1
            if not self.left:
                for path in [*self.other.iterdir()]:
                    path.replace(self.run / path.name)


def test_a_run_that_is_replaced_while_it_is_read_is_never_mixed(trained: Path, tmp_path: Path) -> None:
    """Each part of the other run gives other logits: its weights, its linear model and the weights of the sum."""
    texts, swap, seen = ["鼠牛虎", "兔龙蛇马"], Swap(), []

    def runs(folder: Path) -> list[Path]:
        one, other = copy_of(trained, folder / "one"), copy_of(trained, folder / "other")
        ensemble = json.loads((one / "ensemble.json").read_text())
        write_atomically(one / "ensemble.json", json.dumps({**ensemble, "encoder_weight": 1.0, "linear_weight": 1.0}))
        write_atomically(other / "ensemble.json", json.dumps({**ensemble, "encoder_weight": 2.0, "linear_weight": 3.0}))
        for name, factor in (("model.safetensors", 0.5), ("linear.safetensors", 4.0)):
            tensors = {key: tensor.clone() for key, tensor in load_file(other / name).items()}
            changed = "head.output.bias" if name == "model.safetensors" else "weights"
            tensors[changed] = tensors[changed] * factor + (0.25 if factor < 1 else 0)
            save_file(tensors, other / name)
        for each in (one, other):
            write_manifest(each, [*read_manifest(each)])
        return [one, other]

    whole = [Predictor.load(run, precision="fp32").logits(texts).tolist() for run in runs(tmp_path / "whole")]
    assert whole[0] != whole[1]
    for number in range(1, 40):
        swap.run, swap.other = runs(tmp_path / str(number))
        swap.left = number
        try:
            seen.append(Predictor.load(swap.run, precision="fp32").logits(texts).tolist())
        except ModelError as error:
            assert "is damaged (its size or sha256 is not what manifest.json says)" in str(error)
            continue
        assert seen[-1] in whole, f"a mixture, after {number} files were opened"
        if swap.left:
            break
    assert swap.left and seen[0] == whole[1] and seen[-1] == whole[0]


def test_what_is_read_is_what_was_opened_though_the_run_was_replaced_since(trained: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    before = Predictor.load(run, precision="fp32").logits(["鼠牛虎"]).tolist()
    opened = open_run(run)
    for path in run.iterdir():
        if path.is_file():
            write_atomically(path, b"another run")
    assert Predictor.load(opened, precision="fp32").logits(["鼠牛虎"]).tolist() == before
    with pytest.raises(ModelError, match=r"manifest\.json: is damaged"):
        Predictor.load(run)
