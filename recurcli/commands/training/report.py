"""Reports of a training run: the plan of a dry run, result.json and the model card."""

import math
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors
import tokenizers
import torch
from tokenizers.models import WordPiece

from recurcli.commands.training.estimate import estimate
from recurcli.commands.training.notes import checkpoint_bytes, ensemble_in_words, matched_counts
from recurcli.commands.training.request import COMMANDS
from recurcli.commands.training.setup import TrainingSetup
from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.errors import escaped
from recurcli.evaluation.metrics import METRICS, PERPLEXITY
from recurcli.facts import parameters_in_words
from recurcli.model.saved import count_parameters
from recurcli.preset import Preset
from recurcli.strict_yaml import flatten
from recurcli.training.fit import TrainingLoop, TrainingState
from recurcli.version import __version__


def plan_of(setup: TrainingSetup) -> dict[str, Any]:
    """Return the plan that a dry run prints: data, model size, steps, an estimate of their time, and machine."""
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
        "match_parameters": request.matched,
        "forward_flops_per_token": _flops(loop),
        "steps_per_epoch": loop.steps_per_epoch,
        "steps": loop.total_steps,
        "checkpoint_bytes": checkpoint_bytes(setup),
        "machine": machine_facts(loop, preset),
        "estimate": estimate(setup),
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
        "settled": _settled(setup),
        "early_stopping": _early_stopping(setup, state),
        "epochs": round(state.step / loop.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "cpu_seconds": None if state.cpu_seconds is None else round(state.cpu_seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": count_parameters(loop.model),
        "match_parameters": request.matched,
        "forward_flops_per_token": _flops(loop),
        "checkpoints_kept": request.keep_checkpoints,
        "init": None if request.init is None else str(request.init.absolute()),
        "data": setup.data,
        "machine": machine_facts(loop, preset),
        "versions": {
            "recurcli": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tokenizers": tokenizers.__version__,
            "safetensors": safetensors.__version__,
        },
        "command_line": sys.argv,
    }


def _settled(setup: TrainingSetup) -> dict[str, Any]:
    """Return what each `auto` and `learning_rate: null` of the preset came to for these rows, by key."""
    stored, config = dict(flatten(setup.request.resolved.preset.to_dict())), setup.loop.config
    by_key = {
        (setup.section, "learning_rate"): config.learning_rate,
        (setup.section, "epochs"): config.epochs,
        (setup.section, "word_dropout"): getattr(config, "word_dropout", None),
        ("data", "max_length"): setup.loop.model.config.max_length,
        ("tokenizer", "kind"): "wordpiece" if isinstance(setup.tokenizer.backend.model, WordPiece) else "char",
    }
    return {".".join(key): value for key, value in by_key.items() if stored.get(key, "") in (None, "auto")}


def _early_stopping(setup: TrainingSetup, state: TrainingState) -> dict[str, Any] | None:
    """Return the metric that did not rise and the number of its evaluations if that ended the training early, else None."""
    if setup.dev is None or state.step >= setup.loop.total_steps:
        return None
    facts = {"metric": setup.dev.metric_name, "best": state.best_dev_metric, "evaluations": state.stale_evaluations}
    return {**facts, "steps": setup.loop.total_steps}


def model_card(result: Mapping[str, Any]) -> str:
    """Return the README.md of a run with the content `result` of result.json: Markdown with Hugging Face's front matter."""
    pretrained = result["command"] == "pretrain"
    causal = result.get("metric") == PERPLEXITY
    kind = "causal language model" if causal else "masked-token model" if pretrained else "text classifier"
    pipeline = "text-generation" if causal else "fill-mask" if pretrained else "text-classification"
    lines = [
        "---",
        "library_name: recurcli",
        f"pipeline_tag: {pipeline}",
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
        f"| parameters | {parameters_in_words(result)} |",
        *([f"| --match-parameters | {matched_counts(matched)} |"] if (matched := result["match_parameters"]) else []),
        f"| steps | {result['steps']:,} ({result['epochs']} epochs), "
        f"{'encoder' if result.get('ensemble') else 'model'} of step {result['best_step']:,} |",
        f"| training | {result['seconds']:,} s, {result['tokens_per_second']:,} tokens/s, "
        f"{result['machine']['precision']} on {result['machine']['device']} |",
    ]
    lines += [
        f"| {split} rows | {facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`) |"
        for split, facts in result["data"].items()
    ]
    if causal:
        dev = result["dev"]
        lines += [f"| dev perplexity | {dev['perplexity']:.2f} (of {dev['tokens']:,} tokens, `<eos>` included) |"]
        lines += ["", "The model was selected on the dev text, so its dev perplexity is slightly too low."]
    if pretrained:
        way = " --set pretraining.objective=causal" if causal else ""
        lines += ["", "## Use", "", f"    recur finetune --preset PRESET --init THIS_FOLDER{way}"]
        lines += ["    recur eval THIS_FOLDER"] if causal else []
    else:
        parts = result.get("parts")
        lines += [f"| dev {metric.words} | {result['dev'][name]:.4f} |" for name, metric in METRICS.items()]
        lines += [
            *([f"| dev accuracy of the encoder alone | {parts['encoder']['accuracy']:.4f} |"] if parts else []),
            *(
                f"| {name.replace('_', ' ')} baseline: accuracy | {value:.4f} |"
                for name, value in result["baselines"].items()
            ),
            *_test_lines(result.get("test")),
            "",
            *([f"Ensemble: {ensemble_in_words(result['ensemble'])}.", ""] if parts else []),
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
    yield from (
        f"| test {name.replace('_', ' ')} baseline: accuracy | {value:.4f} |"
        for name, value in test["baselines"].items()
    )


def machine_facts(loop: TrainingLoop, preset: Preset) -> dict[str, Any]:
    """Return the facts about the machine that a bit-identical result depends on."""
    return {
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "device": loop.device.type,
        "precision": loop.precision,
        "threads": torch.get_num_threads(),
        "compile": preset.runtime.compile,
        "world size": loop.ranks.world_size,
    }
