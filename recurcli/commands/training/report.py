"""Writes what a training reports: its notes, the plan of a dry run, result.json and the model card."""

import math
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import safetensors
import tokenizers
import torch
from tokenizers.models import WordPiece

from recurcli.commands.training.estimate import estimate
from recurcli.commands.training.request import COMMANDS
from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.encoders import LINEAR
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.metrics import METRICS, PERPLEXITY, cells_of, words_of
from recurcli.facts import parameters_in_words
from recurcli.linear.ensemble import FEWEST_ROWS
from recurcli.log import Log, Note
from recurcli.model.saved import count_parameters, total_bytes
from recurcli.preset import Preset
from recurcli.runs.run_directory import KNOWN_ROWS, PREDICTIONS
from recurcli.training.config import LENGTH_FREE_SCHEDULES
from recurcli.training.fit import TrainingLoop, TrainingState, learning_rate, ngram_table
from recurcli.validation import flatten
from recurcli.version import __version__

if TYPE_CHECKING:
    from recurcli.commands.training.trainer import TrainingSetup

OFF_TARGET = 0.02
"""The relative difference from the target number of parameters above which a warning says so."""


def checkpoint_bytes(setup: "TrainingSetup") -> int:
    """Return the approximate size of a checkpoint in bytes.

    A checkpoint has the weights, the optimizer's state and, if the model is selected, the best weights. The optimizer stores
    two numbers for a weight, and one for a row of the n-gram table.
    """
    model = setup.loop.model
    weights, table = total_bytes(model.state_dict()), ngram_table(model)
    numbers = sum(len(p) if p is table else 2 * p.numel() for p in model.parameters() if p.requires_grad)
    return weights + 4 * numbers + (0 if setup.dev is None else weights)


def notes_on_matching(matched: Mapping[str, Any] | None, log: Log) -> None:
    """Log a note on the encoder size that `--match-parameters` has found. `matched` None yields nothing.

    The note is a warning if the number of parameters differs from the target by more than OFF_TARGET.
    """
    if matched is None:
        return
    keys = ", ".join(f"encoder.{key} {value:,}" for key, value in matched["keys"].items())
    text = f"--match-parameters: {keys}, with {matched_counts(matched)}"
    off = abs(matched["parameters"] / matched["target"] - 1) > OFF_TARGET
    log.add(Note(f"{text}; no other size is nearer" if off else text, "warning" if off else "info"))


def notes_on_full_attention(setup: "TrainingSetup", log: Log) -> None:
    """Log a note if no row is long enough for what distinguishes the encoder, such as sparse attention or a memory.

    With `pretraining.carry` a memory is that of the windows before; a note says if its pieces do not fit the windows.
    """
    model = setup.loop.model
    below, most = model.encoder.min_effective_length, model.config.max_length
    if setup.loop.objective.carry is not None:
        piece = model.encoder.carried_piece
        if piece is not None and most > piece and most % piece:
            log.note(
                f"data.max_length {most:,} is no multiple of the encoder's {piece:,} tokens, so each window begins a new piece"
            )
        return
    if below is not None and most < below:
        name, (holds, same) = escaped(model.config.encoder["name"]), model.encoder.effect_on_short_texts
        log.note(f"{name}: {holds} below {below:,} tokens, and data.max_length is {most:,}, so it computes what {same}")


def matched_counts(matched: Mapping[str, Any]) -> str:
    """Return the number of encoder parameters, the target and their relative difference as text."""
    count, target, asked = matched["parameters"], matched["target"], matched["question"]["asked"]
    of = "" if matched["question"]["other"] is None else f", as in {escaped(asked)}"
    return f"{count:,} encoder parameters (wanted: {target:,}{of}; {count / target - 1:+.1%})"


def notes_on_disk_space(setup: "TrainingSetup", log: Log) -> None:
    """Warn if the checkpoints need more than the free disk space.

    They need space for one more than `keep_checkpoints`, because the newest is written before the oldest is deleted.
    """
    run, count = setup.run, setup.loop.config.keep_checkpoints + 1
    needed = count * checkpoint_bytes(setup)
    held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(run.path).free
    if free + held < needed:
        log.warn(
            f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, but {count} checkpoints need {needed / 1e6:,.1f} MB; "
            "free some space, or training will stop when the disk is full",
        )


def notes_on_result(setup: "TrainingSetup", state: TrainingState, result: Mapping[str, Any], log: Log) -> None:
    """Log notes on early stopping, a best model in the last step, a missed baseline, and classes that are never predicted."""
    steps, total, config = result["steps"], setup.loop.total_steps, setup.loop.config
    whose = "encoder" if "ensemble" in result else "model"
    if stopped := result["early_stopping"]:
        assert config.learning_rate is not None, "resolve_schedule replaces null"
        rate = learning_rate(steps - 1, total, config, setup.loop.steps_per_epoch) / config.learning_rate
        hint = f"; the learning rate was still {rate:.0%} of its peak; it falls to 0 with fewer epochs and no patience"
        metric, change = words_of(stopped["metric"]), "fall" if setup.loop.minimize else "rise"
        since = f"in {pluralize(stopped['evaluations'], 'evaluation')} since step"
        log.note(
            f"stopped early at step {steps:,} of {total:,}: the {whose}'s dev {metric} did not {change} {since} "
            f"{result['best_step']:,}, where it was {stopped['best']:.4f} ({setup.section}.patience {setup.loop.patience})"
            + (hint if config.lr_scheduler not in LENGTH_FREE_SCHEDULES and rate > 0.1 else "")
        )
    elif (
        state.best_step == steps
        and state.best_dev_metric is not None
        and state.second_dev_metric is not None
        and state.best_dev_metric != state.second_dev_metric
    ):
        log.note(f"the last {whose} is the best: more {setup.section}.epochs may give a better one")
    if "dev" not in result or setup.section == "pretraining":
        return
    if (ensemble := result.get("ensemble")) and "parts" in result:
        log.note(ensemble_in_words(ensemble))
    if rows := result.get("linear_baseline", {}).get("refit_rows"):
        of = "dev scores and the linear baseline's" if "parts" in result else "dev scores"
        log.note(
            f"for predictions the linear model was fitted again on {rows:,} rows, dev rows too; {of} are the first fit's"
        )
    whose, scores = ("encoder's ", result["parts"]["encoder"]) if "parts" in result else ("", result["dev"])
    baselines = sorted(result["baselines"].items(), key=lambda item: item[1])
    above = [
        f"'{name.replace('_', ' ')}' ({baseline:.4f})" for name, baseline in baselines if scores["accuracy"] < baseline
    ]
    if above:
        baseline = "baseline" if len(above) == 1 else "baselines"
        log.note(f"the {whose}accuracy, {scores['accuracy']:.4f}, is below the {baseline} {' and '.join(above)}")
    names, cells = result["dev"]["names"], cells_of(result["dev"])
    predicted = {prediction for _, prediction in cells}
    labelled = {label for label, _ in cells}
    if len(labelled) == 1:
        return  # one class of dev rows shows nothing; a warning said so before the training
    if without := len(names) - len(labelled):
        log.note(f"{without:,} of {len(names):,} classes have no dev row, so the dev scores do not show them")
    missing = [name for index, name in enumerate(names) if index in labelled - predicted]
    if len(predicted) == 1:
        only = names[predicted.pop()]
        log.warn(f"every dev row is predicted as '{escaped(only)}': the model tells no classes apart")
    elif missing:
        shown = ", ".join(f"'{escaped(name)}'" for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        log.note(
            f"never predicted on the dev rows: {shown} ({len(missing):,} of {len(labelled):,} classes with dev rows)"
        )


def ensemble_in_words(ensemble: Mapping[str, Any]) -> str:
    """Return how the model joins its two parts, by their weights in `ensemble` (the content of ensemble.json)."""
    encoder, linear, rows = (
        ensemble["encoder_weight"],
        ensemble["linear_weight"],
        pluralize(ensemble["rows"], "dev row"),
    )
    few = ensemble["rows"] < FEWEST_ROWS
    reason = (
        f"a sum takes {FEWEST_ROWS} dev rows, and there are {ensemble['rows']}"
        if few
        else f"no sum is significantly better on the {rows}"
    )
    if not encoder:
        return f"the linear model alone is kept, as the better part: {reason}; predictions do not run the encoder"
    if not linear:
        return f"the encoder alone is kept, as the better part on the dev rows: {reason}"
    weights = f"logits = {encoder:.3g} encoder + {linear:.3g} linear model"
    return f"a weighted sum is kept, whose log loss or accuracy is significantly better on the {rows}: {weights}"


def plan_of(setup: "TrainingSetup") -> dict[str, Any]:
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
        "estimate": estimate(loop, setup.dev) if loop.total_steps else None,
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


def result_of(setup: "TrainingSetup", state: TrainingState, report: Mapping[str, Any]) -> dict[str, Any]:
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
        "keep_texts": preset.finetuning.keep_texts,
        "early_stopping": _early_stopping(setup, state),
        "epochs": round(state.step / loop.steps_per_epoch, 2),
        "seconds": round(state.seconds, 2),
        "cpu_seconds": round(state.cpu_seconds, 2),
        "tokens": state.tokens,
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
        "parameters": _parameters(setup),
        "match_parameters": request.matched,
        "forward_flops_per_token": _flops(loop),
        "checkpoints_kept": request.keep_checkpoints,
        "init": None if request.init is None else str(request.init.absolute()),
        "data": setup.data,
        "teacher": setup.teacher,
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


def _parameters(setup: "TrainingSetup") -> dict[str, int]:
    """Return the number of parameters of each part of the model; without an encoder they are the linear model's."""
    if not setup.loop.model.config.is_linear:
        return count_parameters(setup.loop.model)
    assert setup.linear is not None, "a model without an encoder is a linear one"
    size = setup.linear.weights.size + setup.linear.bias.size
    return {"embedding": 0, "linear": size, "total": size}


def _settled(setup: "TrainingSetup") -> dict[str, Any]:
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


def _early_stopping(setup: "TrainingSetup", state: TrainingState) -> dict[str, Any] | None:
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
    has_steps = result["encoder"] != LINEAR
    with_what = f"with the encoder `{result['encoder']}`" if has_steps else "of a linear model on n-grams"
    steps = [
        f"| steps | {result['steps']:,} ({result['epochs']} epochs), "
        f"{'encoder' if result.get('ensemble') else 'model'} of step {result['best_step']:,} |",
        f"| training | {result['seconds']:,} s, {result['tokens_per_second']:,} tokens/s, "
        f"{result['machine']['precision']} on {result['machine']['device']} |",
    ]
    lines = [
        "---",
        "library_name: recurcli",
        f"pipeline_tag: {pipeline}",
        f"tags: [{result['encoder']}, {result['task']}]",
        "---",
        "",
        f"# {escaped(result['preset'])}",
        "",
        f"A {kind} {with_what}, made by `recur {result['command']}` "
        f"(recurcli {result['versions']['recurcli']}) on the task `{result['task']}`, seed {result['seed']}.",
        "",
        "| | |",
        "|---|---|",
        f"| parameters | {parameters_in_words(result)} |",
        *([f"| --match-parameters | {matched_counts(matched)} |"] if (matched := result["match_parameters"]) else []),
        *(steps if has_steps else []),
    ]
    lines += [
        f"| {split} rows | {facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`) |"
        for split, facts in result["data"].items()
    ]
    if causal:
        dev = result["dev"]
        how = "; state carried over windows" if result.get("carry") else ""
        lines += [f"| dev perplexity | {dev['perplexity']:.2f} (of {dev['tokens']:,} tokens, `<eos>` included{how}) |"]
        lines += ["", "The model was selected on the dev text, so its dev perplexity is slightly too low."]
    if pretrained:
        way = " --set pretraining.objective=causal" if causal else ""
        lines += [
            "",
            _kept_in_words(result),
            "",
            "## Use",
            "",
            f"    recur finetune --preset PRESET --init THIS_FOLDER{way}",
        ]
        lines += ["    recur eval THIS_FOLDER"] if causal else []
    else:
        parts = result.get("parts")
        selected = "The model was selected on the dev rows, so its dev metrics are slightly too high."
        if not has_steps:
            selected = "The dev rows selected nothing; the model of the dev metrics was fitted without them."
        if again := result.get("linear_baseline", {}).get("refit_rows"):
            selected += f" For predictions the linear model was fitted again on {again:,} rows, the dev rows too."
        tested = (
            " The test rows selected nothing: they were scored once, after the training." if "test" in result else ""
        )
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
            f"{selected}{tested}",
            "",
            _kept_in_words(result),
            "",
            "## Use",
            "",
            "    recur predict THIS_FOLDER texts.tsv",
            "    recur eval THIS_FOLDER",
        ]
    return "\n".join(lines) + "\n"


def _kept_in_words(result: Mapping[str, Any]) -> str:
    """Return sentences on what the run keeps of its rows, for those who share it."""
    words = "Its vocabulary and its linear model, if it has one, hold words and n-grams of the training rows."
    if result["command"] == "pretrain":
        return f"{KNOWN_ROWS} holds hashes of the training and dev lines. {words}"
    if not result.get("keep_texts", True):
        return f"This folder holds no texts of rows and no hashes of them (`finetuning.keep_texts: false`). {words}"
    return (
        f"This folder holds the texts of the dev rows in clear ({PREDICTIONS}) and hashes of those of the training and dev "
        f"rows ({KNOWN_ROWS}), which tell whether a given text is among them. `--set finetuning.keep_texts=false` trains a "
        f"model without both. {words}"
    )


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
