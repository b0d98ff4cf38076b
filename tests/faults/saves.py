"""One save each, for a process of its own that dies in the middle of it."""

from functools import partial
from pathlib import Path

import torch

from recurcli.config import ModelConfig, RunConfig, TokenizerConfig
from recurcli.files import MANIFEST
from recurcli.runs.model_files import Files, known_to_bytes, write_model
from recurcli.runs.network_files import save_tensors
from recurcli.runs.run_directory import KNOWN_ROWS, RunDirectory
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.fit import TrainingState
from recurcli.training.session import Checkpoint, save_checkpoint


def checkpoint(arguments: list[str]) -> int:
    """Save checkpoint number `step` (its weights are that number) in `folder`, and keep two: [folder, step]."""
    folder, step = Path(arguments[0]), int(arguments[1])
    weights = {"weight": torch.full((64,), float(step))}
    save_checkpoint(
        folder,
        Checkpoint(
            model=weights,
            optimizer={"exp_avg/weight": weights["weight"]},
            best=weights,
            state=TrainingState(step=step),
            resume_key={},
            environment={},
        ),
        keep=2,
    )
    return 0


def result(arguments: list[str]) -> int:
    """Finish the run in `folder`, whose model is there: [folder], and its seed if it is not 1."""
    seed = int(arguments[1]) if len(arguments) > 1 else 1
    RunDirectory(Path(arguments[0])).write_result({"seed": seed}, "# A model\n")
    return 0


def replacement(arguments: list[str]) -> int:
    """Put the finished new training of the run in `folder` in its place: [folder]."""
    with RunDirectory(Path(arguments[0])).lock():
        return 0


def model(arguments: list[str]) -> int:
    """Make the weights of the model in `folder` that number: [folder, number]. The first one of a folder brings all files."""
    folder, number = Path(arguments[0]), int(arguments[1])
    tokenizer = Tokenizer.train(["鼠牛虎兔"], TokenizerConfig(min_frequency=1))
    config = ModelConfig(
        encoder={"name": "starsaber", "hidden_size": 8, "num_layers": 1},
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        separator_id=tokenizer.separator_id,
        max_length=8,
        num_classes=2,
    )
    weights = partial(save_tensors, {"weight": torch.full((64,), float(number))})
    files: Files = {"model.safetensors": weights}
    if first := not (folder / MANIFEST).exists():
        files = {**files, "tokenizer.json": tokenizer.to_json(), KNOWN_ROWS: known_to_bytes(None)}
    write_model(folder, RunConfig(task="tnews", labels=("a", "b"), network=config), files, first=first)
    return 0


def thresholds(arguments: list[str]) -> int:
    """Write thresholds of the run in `folder`, whose cross-validated score is that number: [folder, number]."""
    facts = {"metric": "f1:a", "thresholds": {"a": 0.5, "b": 0.5}, "most_probable": 0.0}
    RunDirectory(Path(arguments[0])).write_thresholds({**facts, "cross_validated": float(arguments[1])})
    return 0
