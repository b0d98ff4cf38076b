"""Reports of a training run: the plan of a dry run, a warning about disk space, result.json and the model card."""

import math
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors
import tokenizers
import torch

from recurcli import __version__
from recurcli.commands.training.request import COMMANDS, Section
from recurcli.commands.training.setup import TrainingSetup
from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.distributed.group import Ranks
from recurcli.errors import escaped
from recurcli.evaluation.metrics import METRICS
from recurcli.events import Note
from recurcli.model.device import choose_precision
from recurcli.model.models import Backbone
from recurcli.model.saved import count_parameters, total_bytes
from recurcli.preset import Preset
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.fit import TrainingLoop, TrainingState
from recurcli.training.optimizer import ngram_table
from recurcli.training.schedule import learning_rate


def plan_of(setup: TrainingSetup) -> dict[str, Any]:
    """Return the plan that a dry run prints: data, model size, steps and machine."""
    request, loop, preset = setup.request, setup.loop, setup.request.resolved.preset
    mean_length = float(loop.objective.lengths.mean())
    return {
        "command": COMMANDS[setup.section],
        "preset": request.resolved.name,
        "output": str(request.output),
        "values": preset.to_dict(),
        "data": setup.data,
        "vocabulary": setup.tokenizer.vocab_size,
        "mean_length": round(mean_length, 1),
        "parameters": count_parameters(loop.model),
        "forward_flops_per_token": _flops(loop),
        "steps_per_epoch": loop.steps_per_epoch,
        "steps": loop.total_steps,
        "checkpoint_bytes": _checkpoint_bytes(loop.model, setup.section),
        "machine": machine_facts(loop.device, preset, loop.ranks),
    }


def _flops(loop: TrainingLoop) -> int | None:
    """Return the forward FLOPs per token of a row of the mean length of the training rows.

    None: torch cannot count those of this encoder, which may be another package's; a training must not fail for that.
    """
    length = max(1, math.ceil(float(loop.objective.lengths.mean())))
    try:
        return round(forward_flops_per_token(loop.model.config, length))
    except Exception:
        return None


def _checkpoint_bytes(model: Backbone, section: Section) -> int:
    """Return the approximate size of a checkpoint: weights, optimizer state, and the best weights in fine-tuning.

    The optimizer has two moments of a weight, and one number of a row of the n-gram table.
    """
    weights, table = total_bytes(model.state_dict()), ngram_table(model)
    numbers = sum(len(p) if p is table else 2 * p.numel() for p in model.parameters() if p.requires_grad)
    return weights + 4 * numbers + (weights if section == "finetuning" else 0)


def notes_on_disk_space(setup: TrainingSetup) -> Iterator[Note]:
    """Yield a warning if the checkpoints need more than the free disk space.

    They need space for one more than `keep_checkpoints`, because the newest is written before the oldest is deleted.
    """
    run, count = RunDirectory(setup.request.output), setup.loop.config.keep_checkpoints + 1
    needed = count * _checkpoint_bytes(setup.loop.model, setup.section)
    held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(run.path).free
    if free + held < needed:
        yield Note(
            f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, but {count} checkpoints need {needed / 1e6:,.1f} MB; "
            "free some space, or training will stop when the disk is full",
            "warning",
        )


def result_of(setup: TrainingSetup, state: TrainingState, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of result.json: settings, data, speed, and the dev metrics in `report`."""
    request, loop, preset = setup.request, setup.loop, setup.request.resolved.preset
    return {
        "command": COMMANDS[setup.section],
        "preset": request.resolved.name,
        "task": preset.task,
        "encoder": preset.encoder["name"],
        "seed": preset.runtime.seed,
        **report,
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "epochs": round(state.step / loop.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": count_parameters(loop.model),
        "forward_flops_per_token": _flops(loop),
        "checkpoints_kept": request.keep_checkpoints,
        "init": None if request.init is None else str(request.init.absolute()),
        "data": setup.data,
        "machine": machine_facts(loop.device, preset, loop.ranks),
        "versions": {
            "recurcli": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tokenizers": tokenizers.__version__,
            "safetensors": safetensors.__version__,
        },
        "command_line": sys.argv,
    }


def notes_on_result(setup: TrainingSetup, result: Mapping[str, Any]) -> Iterator[Note]:
    """Yield notes on early stopping, a best model that is the last, a missed floor, and classes that are never predicted."""
    steps, total, config = result["steps"], setup.loop.total_steps, setup.loop.config
    if steps < total:
        assert config.learning_rate is not None, "settle_schedule replaces null"
        rate = learning_rate(steps - 1, total, config) / config.learning_rate
        hint = f"; the learning rate was still {rate:.0%} of its peak; it falls to 0 with fewer epochs and no patience"
        yield Note(
            f"stopped early at step {steps:,} of {total:,}: no better model in {setup.loop.patience} evaluations"
            + (hint if config.lr_scheduler != "constant" and rate > 0.1 else "")
        )
    elif setup.dev is not None and result["best_step"] == steps and steps > setup.loop.steps_per_epoch:
        whose = "encoder" if "prior" in result else "model"
        yield Note(f"the last {whose} is the best: more finetuning.epochs may give a better one")
    if "dev" not in result:
        return
    if prior := result.get("prior"):
        yield Note(_in_words(prior))
    whose, scores = ("encoder's ", result["parts"]["encoder"]) if prior else ("", result["dev"])
    for name, floor in sorted(result["floors"].items(), key=lambda item: item[1]):
        if (accuracy := scores["accuracy"]) < floor:
            yield Note(
                f"the {whose}accuracy is below the floor '{name.replace('_', ' ')}': {accuracy:.4f} < {floor:.4f}"
            )
            break
    names, confusion = result["dev"]["names"], result["dev"]["confusion"]
    missing = [name for index, name in enumerate(names) if not any(row[index] for row in confusion)]
    if sum(any(row) for row in confusion) == 1:
        return  # one class of dev rows shows nothing; a warning said so before the training
    if len(missing) == len(names) - 1:
        only = next(name for name in names if name not in missing)
        yield Note(f"every dev row is predicted as '{escaped(only)}': the model tells no classes apart", "warning")
    elif missing:
        shown = ", ".join(f"'{escaped(name)}'" for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        yield Note(f"{len(missing):,} of {len(names):,} classes are never predicted on the dev rows: {shown}")


def _in_words(prior: Mapping[str, Any]) -> str:
    """Return what the model with this `prior` (prior.json) computes."""
    encoder, linear = prior["encoder_weight"], prior["linear_weight"]
    if not encoder:
        return (
            f"the linear model alone is the best on the {prior['rows']:,} dev rows; predictions do not run the encoder"
        )
    if not linear:
        return f"the encoder alone is the best on the {prior['rows']:,} dev rows; the linear model is not used"
    return f"logits = {encoder:.3g} encoder + {linear:.3g} linear model, fitted on the {prior['rows']:,} dev rows"


def model_card(result: Mapping[str, Any]) -> str:
    """Return the README.md of a run with the content `result` of result.json: Markdown with Hugging Face's front matter."""
    pretrained = result["command"] == "pretrain"
    kind = "masked-token model" if pretrained else "text classifier"
    lines = [
        "---",
        "library_name: recurcli",
        f"pipeline_tag: {'fill-mask' if pretrained else 'text-classification'}",
        f"tags: [{result['encoder']}, {result['task']}]",
        "---",
        "",
        f"# {escaped(result['preset'])}",
        "",
        f"A {kind} with the encoder `{result['encoder']}`, made by `recur {result['command']}` "
        f"(recurcli {result['versions']['recurcli']}) on the task `{result['task']}`, seed {result['seed']}.",
        "",
        "| | |",
        "|---|---|",
        f"| parameters | {result['parameters']['total']:,} |",
        f"| steps | {result['steps']:,} ({result['epochs']} epochs), model of step {result['best_step']:,} |",
        f"| training | {result['seconds']:,} s, {result['tokens_per_second']:,} tokens/s, "
        f"{result['machine']['precision']} on {result['machine']['device']} |",
    ]
    lines += [
        f"| {split} rows | {facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`) |"
        for split, facts in result["data"].items()
    ]
    if pretrained:
        lines += ["", "## Use", "", "    recur finetune --preset PRESET --init THIS_FOLDER"]
    else:
        parts = result.get("parts")
        lines += [f"| dev {metric.words} | {result['dev'][name]:.4f} |" for name, metric in METRICS.items()]
        lines += [
            *([f"| dev accuracy of the encoder alone | {parts['encoder']['accuracy']:.4f} |"] if parts else []),
            *(f"| floor: {name.replace('_', ' ')} | {value:.4f} |" for name, value in result["floors"].items()),
            *_test_lines(result.get("test")),
            "",
            *([f"Prior: {_in_words(result['prior'])}.", ""] if parts else []),
            "The model was selected on the dev rows, so its dev metrics are slightly too high."
            + (
                " The test rows selected nothing: they were scored once, after the training."
                if "test" in result
                else ""
            ),
            "",
            "## Use",
            "",
            "    recur predict THIS_FOLDER texts.tsv",
            "    recur eval THIS_FOLDER",
        ]
    return "\n".join(lines) + "\n"


def _test_lines(test: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines of the model card's table on the test rows."""
    if test is None:
        return
    yield from (f"| test {metric.words} | {test[name]:.4f} |" for name, metric in METRICS.items())
    if "parts" in test:
        yield f"| test accuracy of the encoder alone | {test['parts']['encoder']['accuracy']:.4f} |"
    yield from (f"| test floor: {name.replace('_', ' ')} | {value:.4f} |" for name, value in test["floors"].items())


def machine_facts(device: torch.device, preset: Preset, ranks: Ranks) -> dict[str, Any]:
    """Return the facts about the machine that a bit-identical result depends on."""
    return {
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "device": device.type,
        "precision": choose_precision(preset.runtime.precision, device),
        "threads": torch.get_num_threads(),
        "compile": preset.runtime.compile,
        "world size": ranks.world_size,
    }
