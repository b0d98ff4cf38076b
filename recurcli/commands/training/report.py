"""What a training reports: its notes, the plan of a dry run, and the contents of result.json and of the model card."""

import math
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import tokenizers
import torch

from recurcli.encoders.encoder import Encoder
from recurcli.encoders.registry import LINEAR, PRETRAINED
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.result_block import result_block
from recurcli.linear.static_vectors import vectors_of_tokens
from recurcli.log import Log
from recurcli.metrics import PERPLEXITY, format_score, result_rows, words_of
from recurcli.model.models import forward_flops_per_token
from recurcli.preset import Preset
from recurcli.runs.model_files import count_parameters
from recurcli.runs.run_directory import KNOWN_ROWS, LINEAR_MODEL, PREDICTIONS, held_in_words, training_facts
from recurcli.targets import TARGETS
from recurcli.training.fit import TrainingLoop
from recurcli.validation import flatten
from recurcli.version import __version__

if TYPE_CHECKING:
    from recurcli.commands.training.trainer import Training


def checkpoint_bytes(training: "Training") -> int:
    """Return the approximate size of a checkpoint in bytes.

    A checkpoint has the weights, the optimizer's state and, if the model is selected, the best weights. The optimizer stores
    two numbers for a weight.
    """
    model = training.loop.model
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    numbers = sum(2 * p.numel() for p in model.parameters() if p.requires_grad)
    return weights + 4 * numbers + (0 if training.dev is None else weights)


def notes_on_model(training: "Training", log: Log) -> None:
    """Log notes on the size that `--match-parameters` has found, and on rows that are too short for what distinguishes the
    encoder, such as sparse attention."""
    if training.request.matching is not None:
        matched = training.request.matching[1]
        keys = ", ".join(f"encoder.{key} {value:,}" for key, value in matched["keys"].items())
        count, target = matched["parameters"], matched["target"]
        log.note(
            f"--match-parameters: {keys}, with {count:,} encoder parameters, {count / target - 1:+.1%} of {target:,}"
        )
    model = training.loop.model
    below, most = model.encoder.min_effective_length, model.config.max_length
    if training.loop.objective.carry is None and below is not None and most < below:
        why = f"a text below {below:,} tokens is too short for it, and data.max_length is {most:,}"
        name = escaped(model.config.encoder["name"])
        log.note(f"{name}: {why}; its attention is full, and no memory or state is used")


def notes_on_disk_space(training: "Training", log: Log) -> None:
    """Warn if the checkpoints need more than the free disk space.

    They need space for one more than `keep_checkpoints`, because the newest is written before the oldest is deleted.
    """
    run, count = training.run, training.loop.config.keep_checkpoints + 1
    needed = count * checkpoint_bytes(training)
    held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(run.path).free
    if free + held < needed:
        log.warn(
            f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, but {count} checkpoints need {needed / 1e6:,.1f} MB; "
            "free some space, or training will stop when the disk is full",
        )


def notes_on_result(training: "Training", result: Mapping[str, Any], log: Log) -> None:
    """Log notes on early stopping, a best model in the last step, a missed baseline, and a single predicted class."""
    state, section = training.loop.state, training.request.section
    steps, best_step = result["steps"], result["best_step"]
    note_on_capped_layers(training.loop.model.encoder, section, log)
    whose = "encoder" if "parts" in result else "model"
    if stopped := result["early_stopping"]:
        metric, change = stopped["metric"], "fall" if training.loop.minimize else "rise"
        since = f"in {pluralize(stopped['evaluations'], 'evaluation')} since step {best_step:,}"
        patience = f"{section}.patience {training.loop.config.patience}"
        log.note(
            f"stopped early at step {steps:,} of {stopped['steps']:,}: the {whose}'s dev {words_of(metric)} did not {change} "
            f"{since}, where it was {format_score(metric, stopped['best'])} ({patience})"
        )
    elif state.best_step == steps and state.second_dev_metric not in (None, state.best_dev_metric):
        key = "max_steps" if training.loop.config.max_steps else "epochs"
        log.note(f"the last {whose} is the best: more {section}.{key} may give a better one")
    if "dev" not in result or section == "pretraining":
        return
    if "parts" in result:
        log.note(kept_in_words(result["kept"]))
    of, scores = ("encoder's ", result["parts"]["encoder"]) if "parts" in result else ("", result["dev"])
    own = {"linear": "the linear model", "majority": "the majority class"}
    above = [
        f"{own.get(name, name.replace('_', ' '))} ({format_score('accuracy', least)})"
        for name, least in result["baselines"].items()
        if scores["accuracy"] < least
    ]
    if above:
        accuracy = format_score("accuracy", scores["accuracy"])
        log.note(f"the {of}accuracy, {accuracy}, is below that of {' and '.join(above)}")
    log.add(*TARGETS[result["target"]].notes(result["dev"]))
    warn_of_thresholds(result.get("thresholds"), "leave finetuning.thresholds out", log)


def note_on_capped_layers(encoder: Encoder, section: str, log: Log) -> None:
    """Log a note on layers whose scalar weight is at its cap."""
    if numbers := encoder.capped_layers():
        where = f"{'layer' if len(numbers) == 1 else 'layers'} {', '.join(map(str, numbers))}"
        log.note(
            f"encoder.{where}: the weight of the update is at its cap, where it has hardly a gradient; a smaller "
            f"{section}.scalar_lr_factor may give a better model"
        )


def warn_of_thresholds(chosen: Mapping[str, Any] | None, way_out: str, log: Log) -> None:
    """Warn if the `chosen` thresholds are no better than the most probable labels, by cross-validation."""
    if chosen and chosen["cross_validated"] <= chosen["most_probable"]:
        log.warn(f"thresholds do not raise the dev {words_of(chosen['metric'])} by cross-validation; {way_out}")


def kept_in_words(kept: Mapping[str, Any]) -> str:
    """Return which model is kept beside another one, by the content of kept.json."""
    name, rows = kept["name"], pluralize(kept["rows"], "dev row")
    if name == "ensemble":
        encoder, linear = kept["weights"]["encoder"], kept["weights"]["linear"]
        return f"the ensemble is kept: logits = {encoder:.3g} encoder + {linear:.3g} linear model, fitted on {rows}"
    other = "linear model" if name == "encoder" else "encoder"
    return f"the {name} is kept: {rows} give the {other} no weight beside it"


def _facts_of(training: "Training") -> dict[str, Any]:
    """Return what a plan and a result have in common."""
    loop = training.loop
    parameters = count_parameters(loop.model)
    if loop.model.config.is_linear and training.linear is not None:
        size = training.linear.model.parameters
        parameters = {"embedding": 0, "linear": size, "total": size}
    return {
        "command": training.request.command,
        "preset": training.resolved.name,
        "data": training.data,
        "parameters": parameters,
        "match_parameters": training.request.matching and training.request.matching[1],
        "forward_flops_per_token": _flops(loop),
        "machine": machine_facts(loop, training.preset),
    }


def plan_of(training: "Training") -> dict[str, Any]:
    """Return the plan that a dry run prints: data, model size, steps and machine."""
    loop = training.loop
    return {
        **_facts_of(training),
        "output": str(training.request.folder),
        "values": training.resolved.preset.to_dict(),
        "vocabulary": training.tokenizer.vocab_size,
        "mean_length": round(float(loop.objective.lengths.mean()), 1),
        "steps_per_epoch": loop.steps_per_epoch,
        "steps": loop.total_steps,
        "checkpoint_bytes": checkpoint_bytes(training),
    }


def _flops(loop: TrainingLoop) -> int | None:
    """Return the forward FLOPs per token of a row of the mean length of the training rows.

    None: there is no encoder, or torch cannot count those of another package's; a training must not fail for that.
    """
    if loop.model.config.is_linear:
        return None
    length = max(1, math.ceil(float(loop.objective.lengths.mean())))
    try:
        return round(forward_flops_per_token(loop.model.config, length))
    except Exception:
        return None


def result_of(training: "Training", report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of result.json: settings, data, speed, and the dev metrics in `report`."""
    request, loop, preset = training.request, training.loop, training.preset
    state, stopped, given = loop.state, None, dict(flatten(training.resolved.preset.to_dict()))
    static = vectors_of_tokens(preset)
    holds = {
        "tokenizer.json": static is None and preset.encoder["name"] not in (LINEAR, PRETRAINED),
        LINEAR_MODEL: training.linear is not None,
        KNOWN_ROWS: training.known is not None,
        PREDICTIONS: request.section == "finetuning" and preset.finetuning.keep_texts,
    }
    if training.dev is not None and state.step < loop.total_steps:
        stopped = {
            "metric": training.dev.metric_name,
            "best": state.best_dev_metric,
            "evaluations": state.stale_evaluations,
            "steps": loop.total_steps,
        }
    return {
        **_facts_of(training),
        "task": preset.task,
        "pairs": bool(loop.model.config.source.get("columns", {}).get("pair")),
        "encoder": preset.encoder["name"],
        "seed": preset.runtime.seed,
        "embedding_vectors": static and static.about,
        **report,
        "steps": state.step,
        "best_step": state.best_step or state.step,
        "settled": {".".join(key): value for key, value in flatten(preset.to_dict()) if value != given.get(key)},
        "holds": [name for name, is_held in holds.items() if is_held],
        "early_stopping": stopped,
        "epochs": round(state.step / loop.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "cpu_seconds": round(state.cpu_seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "checkpoints_kept": request.keep_checkpoints,
        "export_obstacle": loop.model.encoder.export_obstacle,
        "init": None if request.init is None else str(request.init.absolute()),
        "teacher": training.teacher,
        "versions": {
            "recurcli": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tokenizers": tokenizers.__version__,
            "safetensors": safetensors.__version__,
        },
        "command_line": sys.argv,
    }


def model_card(result: Mapping[str, Any]) -> str:
    """Return the README.md of a run with the content `result` of result.json: Markdown with Hugging Face's front matter."""
    pretrained, causal = result["command"] == "pretrain", result.get("metric") == PERPLEXITY
    kind, pipeline, use = "text classifier", "text-classification", "recur predict THIS_FOLDER texts.tsv"
    if pretrained:
        kind, pipeline = ("causal language model", "text-generation") if causal else ("masked-token model", "fill-mask")
        use = f"recur finetune --preset PRESET --init THIS_FOLDER{' --set pretraining.objective=causal' if causal else ''}"
    held, selected = held_in_words(result["holds"]), pretrained and "dev" in result
    if PREDICTIONS in result["holds"]:
        held += " `--set finetuning.keep_texts=false` trains a model without whole texts and their hashes."
    block = None if pretrained else result_block(Path("THIS_FOLDER"), result)
    lines = [
        "---",
        "library_name: recurcli",
        f"pipeline_tag: {pipeline}",
        f"tags: [{result['encoder']}, {result['task']}]",
        "---",
        "",
        f"# {escaped(result['preset'])}",
        "",
        f"A {kind} with the model `{result['encoder']}`, made by `recur {result['command']}` "
        f"(recurcli {result['versions']['recurcli']}) on the task `{result['task']}`, seed {result['seed']}.",
        "",
        *([] if block is None else [*_markdown(block.columns, block.rows), *(f"{note}\n" for note in block.notes)]),
        *(["The dev text selected the model, so its dev score is slightly too high.", ""] if selected else []),
        *_markdown(["", ""], [*model_facts(result), *result_rows(result)]),
        "## Use",
        "",
        f"    {use}",
        *([] if pretrained and not causal else ["    recur eval THIS_FOLDER"]),
        "",
        held,
    ]
    return "\n".join(lines) + "\n"


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one."""
    for line in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(line)} |"
    yield ""


def model_facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the facts on a model and its data that the model card and the HTML page show."""
    yield "model", result["encoder"]
    yield from training_facts(result)
    if vectors := result.get("linear_baseline", {}).get("vectors"):
        of = f"{vectors['share']:.0%} of the distance between the two best labels in the linear model, on dev rows"
        yield "static vectors", f"{escaped(vectors['source'])}, licence {escaped(vectors['licence'])}: {of}"
    if embedding := result.get("embedding_vectors"):
        yield "vectors of the embedding", f"{escaped(embedding['source'])}, licence {escaped(embedding['licence'])}"
    exact = "; a repeated training gives the same bits" if result["machine"]["device"] == "cpu" else ""
    yield "machine", f"{result['machine']['device']}, {result['machine']['precision']}{exact}"
    for split, facts in result["data"].items():
        yield f"{split} rows", f"{facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`)"


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
