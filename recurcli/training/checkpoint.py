"""Checkpoints. Each is a folder that is written atomically; a resume loads the newest one whose manifest verifies."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from recurcli.errors import ModelError, NumericError, UsageError, escaped
from recurcli.files import commit_directory, read_limited, remove, to_json, verify_manifest, writing
from recurcli.model.config import FORMAT_VERSION, check_format
from recurcli.model.saved import load_tensors, save_tensors
from recurcli.runs.run_directory import checkpoint_folders
from recurcli.training.fit import TrainingState
from recurcli.validation import parse_config

_REQUIRED = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training run after one optimiser step."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    best: Mapping[str, Tensor] | None
    """The weights with the best dev metric; None before the first evaluation, or if they equal `model`."""
    state: TrainingState
    must_match: Mapping[str, Any]
    """Facts that a resume must match. A different value raises UsageError."""
    should_match: Mapping[str, Any]
    """Facts that a resume should match. A different value gives a warning, and the result is not bit-identical."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write `folder/step-NNNNNNNN`, then delete all but the newest `keep` checkpoints.

    An existing checkpoint of the same step is not replaced. Raises NumericError before writing if a weight is not finite.
    """
    _check_no_link(folder)
    for name, tensor in checkpoint.model.items():
        if not tensor.isfinite().all():
            raise NumericError(
                f"step {checkpoint.state.step}: {name} is not finite, so no checkpoint is written; "
                "try a smaller learning rate"
            )
    with writing(folder):
        folder.mkdir(exist_ok=True)
    target = folder / f"step-{checkpoint.state.step:08d}"
    if target.is_dir():
        return
    state = {
        "format_version": FORMAT_VERSION,
        "state": dataclasses.asdict(checkpoint.state),
        "must_match": checkpoint.must_match,
        "should_match": checkpoint.should_match,
    }
    writers: dict[str, Callable[[Path], object]] = {
        "model.safetensors": partial(save_tensors, checkpoint.model),
        "optimizer.safetensors": partial(save_tensors, checkpoint.optimizer),
        "state.json": lambda path: path.write_text(to_json(state), encoding="utf-8"),
    }
    if checkpoint.best is not None:
        writers["best.safetensors"] = partial(save_tensors, checkpoint.best)
    commit_directory(target, writers)
    for old in checkpoint_folders(folder)[keep:]:
        remove(old)


def newest_checkpoint(
    folder: Path, obstacle: Callable[[Checkpoint], str | None] = lambda _: None
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint whose manifest verifies, and one warning for each newer checkpoint that is damaged.

    A checkpoint is skipped if `obstacle` returns why the run cannot continue from it. Damaged checkpoints are renamed to
    `*.damaged`. The checkpoint is None if the folder has none. Raises ModelError if all checkpoints are damaged. Raises
    UsageError with the first obstacle if all others have one.
    """
    _check_no_link(folder)
    for leftover in folder.glob(".step-*.tmp"):
        remove(leftover)
    damaged: list[tuple[Path, str]] = []
    obstacles: list[str] = []
    for path in checkpoint_folders(folder):
        try:
            found = _load(path)
        except ModelError as error:
            damaged.append((path, str(error)))
            continue
        if reason := obstacle(found):
            obstacles.append(reason)
            continue
        for bad, _ in damaged:
            aside = bad.with_name(bad.name + ".damaged")
            remove(aside)
            with writing(aside):
                bad.rename(aside)
        return found, [f"{reason}; resuming from {path.name}" for _, reason in damaged]
    if obstacles:
        raise UsageError(
            f"{folder.parent}: cannot be resumed: {obstacles[0]}; undo that, or start again with --overwrite"
        )
    if damaged:
        raise ModelError(f"{damaged[0][1]}; no checkpoint is left to resume from; start again with --overwrite")
    return None, []


def stored_facts(folder: Path) -> Mapping[str, Any] | None:
    """Return the facts that a resume from the newest checkpoint should match; None if no checkpoint can be read."""
    for path in checkpoint_folders(folder):
        with contextlib.suppress(ModelError, OSError):
            _check_no_link(path)
            verify_manifest(path, _REQUIRED)
            return _read_state(path)[2]
    return None


def remove_newer_checkpoints(folder: Path, step: int) -> None:
    """Delete the checkpoints after `step`."""
    for path in checkpoint_folders(folder):
        if path.name > f"step-{step:08d}":
            remove(path)


def _check_no_link(folder: Path) -> None:
    """Raise ModelError if `folder` is a symbolic link or a file. Through a link, files elsewhere would be overwritten."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ModelError(
            f"{folder}: is a file or a symbolic link, not a folder; links are not followed; put a folder there"
        )


def _load(path: Path) -> Checkpoint:
    _check_no_link(path)
    listed = verify_manifest(path, _REQUIRED)
    state, must_match, should_match = _read_state(path)
    return Checkpoint(
        model=load_tensors(path / "model.safetensors"),
        optimizer=load_tensors(path / "optimizer.safetensors"),
        best=load_tensors(path / "best.safetensors") if "best.safetensors" in listed else None,
        state=state,
        must_match=must_match,
        should_match=should_match,
    )


def _read_state(path: Path) -> tuple[TrainingState, dict[str, Any], dict[str, Any]]:
    """Return the training state, `must_match` and `should_match` of the checkpoint `path`."""
    try:
        stored = json.loads(read_limited(path / "state.json", limit=1 << 22))
        check_format(stored["format_version"], path)
        state = parse_config(TrainingState, {"cpu_seconds": None, **stored["state"]})
        return state, dict(stored["must_match"]), dict(stored["should_match"])
    except (ValueError, KeyError, TypeError, RecursionError, UsageError) as error:
        raise ModelError(f"{path / 'state.json'}: is damaged: {escaped(error)}") from None
