"""Notes that a training yields: on the size of its encoder, on disk space, and on what its result shows."""

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from recurcli.commands.training.setup import TrainingSetup
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.metrics import cells_of, words_of
from recurcli.events import Note
from recurcli.model.saved import total_bytes
from recurcli.runs.run_directory import RunDirectory
from recurcli.training.fit import TrainingState
from recurcli.training.optimizer import ngram_table
from recurcli.training.schedule import learning_rate

OFF_TARGET = 0.02
"""The relative difference from the target number of parameters above which a warning says so."""


def checkpoint_bytes(setup: TrainingSetup) -> int:
    """Return the approximate size of a checkpoint in bytes.

    A checkpoint has the weights, the optimizer's state and, if the model is selected, the best weights. The optimizer stores
    two numbers for a weight, and one for a row of the n-gram table.
    """
    model = setup.loop.model
    weights, table = total_bytes(model.state_dict()), ngram_table(model)
    numbers = sum(len(p) if p is table else 2 * p.numel() for p in model.parameters() if p.requires_grad)
    return weights + 4 * numbers + (0 if setup.dev is None else weights)


def notes_on_matching(matched: Mapping[str, Any] | None) -> Iterator[Note]:
    """Yield a note on the encoder size that `--match-parameters` has found. `matched` None yields nothing.

    The note is a warning if the number of parameters differs from the target by more than OFF_TARGET.
    """
    if matched is None:
        return
    keys = ", ".join(f"encoder.{key} {value:,}" for key, value in matched["keys"].items())
    text = f"--match-parameters: {keys}, with {matched_counts(matched)}"
    off = abs(matched["parameters"] / matched["target"] - 1) > OFF_TARGET
    yield Note(f"{text}; no other size is nearer" if off else text, "warning" if off else "info")


def notes_on_full_attention(setup: TrainingSetup) -> Iterator[Note]:
    """Yield a note if no row is long enough for what distinguishes the encoder, such as sparse attention or a memory."""
    model = setup.loop.model
    below, most = model.encoder.full_below, model.config.max_length
    if below is not None and most < below:
        name, (holds, same) = escaped(model.config.encoder["name"]), model.encoder.when_full
        yield Note(
            f"{name}: {holds} below {below:,} tokens, and data.max_length is {most:,}, so it computes what {same}"
        )


def matched_counts(matched: Mapping[str, Any]) -> str:
    """Return the number of encoder parameters, the target and their relative difference as text."""
    count, target, asked = matched["parameters"], matched["target"], matched["question"]["asked"]
    of = "" if matched["question"]["other"] is None else f", as in {escaped(asked)}"
    return f"{count:,} encoder parameters (wanted: {target:,}{of}; {count / target - 1:+.1%})"


def notes_on_longer_training(setup: TrainingSetup) -> Iterator[Note]:
    """Yield a note if only `warmup_ratio` keeps a run from being trained longer later.

    Such a run is new, keeps its checkpoints and has a constant learning rate after the warm-up.
    """
    config, kept = setup.loop.config, setup.request.keep_checkpoints and setup.status == "new"
    if kept and config.lr_scheduler == "constant" and config.warmup_steps is None and config.warmup_ratio:
        ratio = f"{setup.section}.warmup_ratio {config.warmup_ratio:g}"
        yield Note(f"{ratio}: the run can be trained longer only with {setup.section}.warmup_steps in place of it")


def notes_on_kept_checkpoints(setup: TrainingSetup) -> Iterator[Note]:
    """Yield a warning if a finished run with checkpoints is trained longer without --keep-checkpoints."""
    run = RunDirectory(setup.request.output)
    if run.is_finished and setup.status == "unfinished" and not setup.request.keep_checkpoints:
        text = "its checkpoints are removed when it is finished; with --keep-checkpoints it can be trained still longer"
        yield Note(f"{run.path}: {text}", "warning")


def notes_on_disk_space(setup: TrainingSetup) -> Iterator[Note]:
    """Yield a warning if the checkpoints need more than the free disk space.

    They need space for one more than `keep_checkpoints`, because the newest is written before the oldest is deleted.
    """
    run, count = RunDirectory(setup.request.output), setup.loop.config.keep_checkpoints + 1
    needed = count * checkpoint_bytes(setup)
    held = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(run.path).free
    if free + held < needed:
        yield Note(
            f"{run.path}: {free / 1e6:,.1f} MB are free on its disk, but {count} checkpoints need {needed / 1e6:,.1f} MB; "
            "free some space, or training will stop when the disk is full",
            "warning",
        )


def notes_on_result(setup: TrainingSetup, state: TrainingState, result: Mapping[str, Any]) -> Iterator[Note]:
    """Yield notes on early stopping, a best model in the last step, a missed baseline, and classes that are never predicted."""
    steps, total, config = result["steps"], setup.loop.total_steps, setup.loop.config
    whose = "encoder" if "ensemble" in result else "model"
    if stopped := result["early_stopping"]:
        assert config.learning_rate is not None, "resolve_schedule replaces null"
        rate = learning_rate(steps - 1, total, config) / config.learning_rate
        hint = f"; the learning rate was still {rate:.0%} of its peak; it falls to 0 with fewer epochs and no patience"
        metric, change = words_of(stopped["metric"]), "fall" if setup.loop.minimize else "rise"
        since = f"in {pluralize(stopped['evaluations'], 'evaluation')} since step"
        yield Note(
            f"stopped early at step {steps:,} of {total:,}: the {whose}'s dev {metric} did not {change} {since} "
            f"{result['best_step']:,}, where it was {stopped['best']:.4f} ({setup.section}.patience {setup.loop.patience})"
            + (hint if config.lr_scheduler != "constant" and rate > 0.1 else "")
        )
    elif (
        state.best_step == steps
        and state.best_dev_metric is not None
        and state.second_dev_metric is not None
        and state.best_dev_metric != state.second_dev_metric
    ):
        yield Note(f"the last {whose} is the best: more {setup.section}.epochs may give a better one")
    if "dev" not in result or setup.section == "pretraining":
        return
    if ensemble := result.get("ensemble"):
        yield Note(ensemble_in_words(ensemble))
    whose, scores = ("encoder's ", result["parts"]["encoder"]) if ensemble else ("", result["dev"])
    baselines = sorted(result["baselines"].items(), key=lambda item: item[1])
    above = [
        f"'{name.replace('_', ' ')}' ({baseline:.4f})" for name, baseline in baselines if scores["accuracy"] < baseline
    ]
    if above:
        baseline = "baseline" if len(above) == 1 else "baselines"
        yield Note(f"the {whose}accuracy, {scores['accuracy']:.4f}, is below the {baseline} {' and '.join(above)}")
    names, cells = result["dev"]["names"], cells_of(result["dev"])
    predicted = {prediction for _, prediction in cells}
    missing = [name for index, name in enumerate(names) if index not in predicted]
    if len({label for label, _ in cells}) == 1:
        return  # one class of dev rows shows nothing; a warning said so before the training
    if len(missing) == len(names) - 1:
        only = next(name for name in names if name not in missing)
        yield Note(f"every dev row is predicted as '{escaped(only)}': the model tells no classes apart", "warning")
    elif missing:
        shown = ", ".join(f"'{escaped(name)}'" for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        yield Note(f"never predicted on the dev rows: {shown} ({len(missing):,} of {len(names):,} classes)")


def ensemble_in_words(ensemble: Mapping[str, Any]) -> str:
    """Return how the model joins its two parts, by their weights in `ensemble` (the content of ensemble.json)."""
    encoder, linear, rows = (
        ensemble["encoder_weight"],
        ensemble["linear_weight"],
        pluralize(ensemble["rows"], "dev row"),
    )
    if not encoder:
        return f"the linear model alone is the best on the {rows}; predictions do not run the encoder"
    if not linear:
        return f"the encoder alone is the best on the {rows}; the linear model is not used"
    return f"logits = {encoder:.3g} encoder + {linear:.3g} linear model, fitted on the {rows}"
