"""The `recur pretrain` and `recur finetune` commands: their options and help."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recurcli.allocator import keep_freed_memory
from recurcli.cli.app import app, example
from recurcli.cli.options import (
    BatchSize,
    Data,
    Debug,
    Dev,
    Device,
    DryRun,
    Encoding,
    Epochs,
    Json,
    KeepCheckpoints,
    LearningRate,
    MatchParameters,
    Output,
    Overwrite,
    PrecisionOption,
    Preset,
    Quiet,
    Resume,
    Seed,
    Settings,
    Test,
    Train,
    named_files,
    overrides_of,
)

if TYPE_CHECKING:
    from recurcli.commands.training.request import Event, Section, TrainingRequest
    from recurcli.preset import ResolvedPreset


@app.command(epilog=example("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5"))
def pretrain(
    preset: Preset,
    data: Data = None,
    encoding: Encoding = None,
    output: Output = None,
    settings: Settings = None,
    seed: Seed = None,
    epochs: Epochs = None,
    learning_rate: LearningRate = None,
    match_parameters: MatchParameters = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    keep_checkpoints: KeepCheckpoints = False,
    dry_run: DryRun = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train an encoder on text without labels.

    The text is that of the task's train, dev and test rows, or a text file (.txt) given as --data.
    """
    from recurcli.preset import compose

    given = {
        "encoding": encoding,
        "seed": seed,
        "epochs": epochs,
        "learning-rate": learning_rate,
        "batch-size": batch_size,
    }
    given |= {"device": device, "precision": precision}
    overrides = overrides_of("pretraining", settings or [], given)
    resolved = compose(preset, data=data, settings=settings or [], overrides=overrides, section="pretraining")
    from recurcli.commands.training.request import TrainingRequest

    output = output or Path("runs") / f"{resolved.name}-pretrained"
    resolved, matched = _match(resolved, match_parameters, output, resume=resume)
    request = TrainingRequest(
        resolved,
        output,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
        keep_checkpoints=keep_checkpoints,
        matched=matched,
    )
    _show(_events(request, "pretraining"), request, json=json, quiet=quiet)


@app.command(
    epilog=example("recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained")
)
def finetune(
    preset: Preset,
    data: Data = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    encoding: Encoding = None,
    output: Output = None,
    settings: Settings = None,
    seed: Seed = None,
    epochs: Epochs = None,
    learning_rate: LearningRate = None,
    init: Annotated[
        Path | None, typer.Option(help="Pretrained run to start from: its tokenizer and encoder.", metavar="RUN")
    ] = None,
    match_parameters: MatchParameters = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    keep_checkpoints: KeepCheckpoints = False,
    dry_run: DryRun = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a classifier on labelled rows.

    Starts from scratch or from a pretrained run, and keeps the model of the best dev metric.
    """
    from recurcli.preset import compose

    given: dict[str, object] = {
        "encoding": encoding,
        "seed": seed,
        "epochs": epochs,
        "learning-rate": learning_rate,
        "batch-size": batch_size,
    }
    given |= {"device": device, "precision": precision}
    given |= named_files(data, train=train, dev=dev, test=test)
    overrides = overrides_of("finetuning", settings or [], given)
    resolved = compose(preset, data=data, settings=settings or [], overrides=overrides, section="finetuning")
    from recurcli.commands.training.request import TrainingRequest

    output = output or Path("runs") / resolved.name
    resolved, matched = _match(resolved, match_parameters, output, resume=resume)
    request = TrainingRequest(
        resolved,
        output,
        init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
        keep_checkpoints=keep_checkpoints,
        matched=matched,
    )
    _show(_events(request, "finetuning"), request, json=json, quiet=quiet)


def _match(
    resolved: "ResolvedPreset", asked: str | None, output: Path, *, resume: bool
) -> "tuple[ResolvedPreset, Mapping[str, Any] | None]":
    """Return the preset with the size that --match-parameters asks for, and what that came to."""
    if asked is None:
        return resolved, None
    from recurcli.commands.training.request import stored_matching
    from recurcli.preset.matching import match_parameters

    return match_parameters(resolved, asked, stored_matching(output, resume=resume))


def _events(request: "TrainingRequest", section: "Section") -> "Iterator[Event]":
    """Return the events of the training. A finished run is repeated without importing torch, so it takes no time."""
    from recurcli.commands.training.request import repeat_finished_run, repeats_finished_run

    if repeats_finished_run(request, section):
        return repeat_finished_run(request)
    keep_freed_memory()
    if section == "pretraining":
        from recurcli.commands.pretrain import pretrain as pretrain_command

        return pretrain_command(request)
    from recurcli.commands.finetune import finetune as finetune_command

    return finetune_command(request)


def _show(events: "Iterator[Event]", request: "TrainingRequest", *, json: bool, quiet: bool) -> None:
    """Show the progress of a training as it runs, and print its result."""
    from recurcli.display import progress, tables

    preset = request.resolved.preset
    of = "" if preset.prior is None else " of the encoder"
    result = progress.follow(events, quiet=quiet, metric=preset.finetuning.metric, of=of)
    if json:
        tables.print_json(result)
    elif request.dry_run:
        tables.print_plan(result)
    else:
        tables.print_training(result, request.output)
