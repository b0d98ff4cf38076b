"""What a training tells of itself: the plan of a dry run, and the result at the end."""

import math
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors
import tokenizers
import torch
from torch import nn

from recurcli import __version__
from recurcli.commands.training.setup import Section, TrainingRequest, TrainingSetup
from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.distributed.group import Ranks, current
from recurcli.events import Note
from recurcli.model.device import choose_precision
from recurcli.model.saved import count_parameters, total_bytes
from recurcli.preset import Preset
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import Plan
from recurcli.training.session import Session

COMMANDS: Mapping[Section, str] = {"pretraining": "pretrain", "finetuning": "finetune"}


def plan_of(
    request: TrainingRequest, section: Section, prepared: TrainingSetup, device: torch.device
) -> dict[str, Any]:
    """What a dry run tells: what would be read, built and done."""
    preset = request.resolved.preset
    config: OptimizationConfig = getattr(preset, section)
    plan = Plan(prepared.objective.lengths, config, preset.runtime.seed)
    mean_length = max(1, math.ceil(prepared.objective.lengths.mean()))
    return {
        "command": COMMANDS[section],
        "preset": request.resolved.name,
        "output": str(request.output),
        "values": preset.to_dict(),
        "data": prepared.data,
        "vocabulary": prepared.tokenizer.vocab_size,
        "mean_length": round(float(prepared.objective.lengths.mean()), 1),
        "parameters": count_parameters(prepared.model),
        "forward_flops_per_token": round(forward_flops_per_token(prepared.config, mean_length)),
        "steps_per_epoch": plan.steps_per_epoch,
        "steps": plan.total_steps,
        "checkpoint_bytes": checkpoint_bytes(prepared.model, section),
        "machine": machine_facts(device, preset, current()),
    }


def checkpoint_bytes(model: nn.Module, section: Section) -> int:
    """About what a checkpoint takes: weights, two moments of those that learn, and the best weights if rows are scored."""
    weights = total_bytes(model.state_dict())
    learning = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + 2 * learning + (weights if section == "finetuning" else 0)


def notes_on_room(run: RunDirectory, model: nn.Module, section: Section, keep: int) -> Iterator[Note]:
    """A warning where the disk will not hold the checkpoints: the newest is written before the oldest is deleted."""
    wanted = (keep + 1) * checkpoint_bytes(model, section)
    held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(run.path).free
    if free + held < wanted:
        yield Note(
            f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, and {keep + 1} checkpoints take {wanted / 1e6:,.1f} MB: "
            "make room, or the training will stop where the disk is full",
            "warning",
        )


def result_of(
    request: TrainingRequest, section: Section, prepared: TrainingSetup, session: Session, scores: Mapping[str, Any]
) -> dict[str, Any]:
    """The contents of result.json: what was done, on what, how fast, and `scores`."""
    preset, state = request.resolved.preset, session.state
    return {
        "command": COMMANDS[section],
        "preset": request.resolved.name,
        "task": preset.task,
        "encoder": preset.encoder["name"],
        "seed": preset.runtime.seed,
        **scores,
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "epochs": round(state.step / session.fitting.plan.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": count_parameters(prepared.model),
        "init": None if request.init is None else str(request.init.absolute()),
        "data": prepared.data,
        "machine": machine_facts(session.fitting.device, preset, session.fitting.ranks),
        "versions": versions(),
        "command_line": sys.argv,
    }


def machine_facts(device: torch.device, preset: Preset, ranks: Ranks) -> dict[str, Any]:
    """What a run's bits depend on besides preset and data."""
    return {
        "torch": torch.__version__,
        "device": device.type,
        "precision": choose_precision(preset.runtime.precision, device),
        "threads": torch.get_num_threads(),
        "compile": preset.runtime.compile,
        "world size": ranks.world_size,
    }


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    return {
        "recurcli": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "safetensors": safetensors.__version__,
    }
