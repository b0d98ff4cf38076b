"""The `recur pretrain` and `recur finetune` commands: their options and help."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recurcli.allocator import keep_freed_memory
from recurcli.cli.app import app, example
from recurcli.cli.options import (
    BatchSize,
    Data,
    Debug,
    Delimiter,
    Dev,
    Device,
    DryRun,
    Encoding,
    Epochs,
    Header,
    Id,
    Json,
    KeepCheckpoints,
    Label,
    LearningRate,
    MatchParameters,
    Output,
    Overwrite,
    Pair,
    PrecisionOption,
    Preset,
    Quiet,
    Resume,
    Seed,
    Settings,
    Test,
    Text,
    Train,
    named_files,
    overrides_of,
)

if TYPE_CHECKING:
    from recurcli.commands.training.request import Event, Section, TrainingRequest


@app.command(epilog=example("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5"))
def pretrain(
    preset: Preset,
    data: Data = None,
    text: Text = None,
    pair: Pair = None,
    header: Header = None,
    delimiter: Delimiter = None,
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

    The text is that of the task's train, dev and test rows, or a text file (.txt) given as --data. Masked tokens are predicted,
    or with pretraining.objective causal the next token: then the model is selected by its perplexity on the dev text.
    """
    request = _request(
        "pretraining",
        preset,
        data,
        output,
        settings or [],
        match_parameters,
        text=text,
        pair=pair,
        header=header,
        delimiter=delimiter,
        encoding=encoding,
        seed=seed,
        epochs=epochs,
        learning_rate=learning_rate,
        device=device,
        precision=precision,
        batch_size=batch_size,
        resume=resume,
        overwrite=overwrite,
        keep_checkpoints=keep_checkpoints,
        dry_run=dry_run,
    )
    _show(_events(request, "pretraining"), request, "pretraining", json=json, quiet=quiet)


@app.command(
    epilog=example("recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained")
)
def finetune(
    preset: Preset,
    data: Data = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    id_column: Id = None,
    header: Header = None,
    delimiter: Delimiter = None,
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
    request = _request(
        "finetuning",
        preset,
        data,
        output,
        settings or [],
        match_parameters,
        init,
        **named_files(data, train=train, dev=dev, test=test),
        text=text,
        pair=pair,
        label=label,
        id=id_column,
        header=header,
        delimiter=delimiter,
        encoding=encoding,
        seed=seed,
        epochs=epochs,
        learning_rate=learning_rate,
        device=device,
        precision=precision,
        batch_size=batch_size,
        resume=resume,
        overwrite=overwrite,
        keep_checkpoints=keep_checkpoints,
        dry_run=dry_run,
    )
    _show(_events(request, "finetuning"), request, "finetuning", json=json, quiet=quiet)


def _request(
    section: "Section",
    preset: str,
    data: Path | None,
    output: Path | None,
    settings: list[str],
    match: str | None,
    init: Path | None = None,
    *,
    resume: bool,
    overwrite: bool,
    keep_checkpoints: bool,
    dry_run: bool,
    **given: object,
) -> "TrainingRequest":
    """Return the request of a training. Raises UsageError with the place of a fault in the preset or the options.

    `given` maps the names of options to their values, as `overrides_of` takes them.
    """
    from recurcli.preset import compose

    overrides = overrides_of(section, settings, {name.replace("_", "-"): value for name, value in given.items()})
    resolved = compose(preset, data=data, settings=settings, overrides=overrides, section=section)
    from recurcli.commands.training.request import TrainingRequest, stored_matching

    output = output or Path("runs") / (f"{resolved.name}-pretrained" if section == "pretraining" else resolved.name)
    matched = None
    if match is not None:
        from recurcli.preset.matching import match_parameters

        resolved, matched = match_parameters(resolved, match, stored_matching(output, resume=resume))
    return TrainingRequest(
        resolved,
        output,
        init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
        keep_checkpoints=keep_checkpoints,
        matched=matched,
    )


def _events(request: "TrainingRequest", section: "Section") -> "Iterator[Event]":
    """Return the events of the training. The repetition of a finished run takes no time, because it does not import torch."""
    from recurcli.commands.training.request import repeat_finished_run, repeats_finished_run

    if repeats_finished_run(request, section):
        return repeat_finished_run(request)
    keep_freed_memory()
    if section == "pretraining":
        from recurcli.commands.pretrain import pretrain as pretrain_command

        return pretrain_command(request)
    from recurcli.commands.finetune import finetune as finetune_command

    return finetune_command(request)


def _show(
    events: "Iterator[Event]", request: "TrainingRequest", section: "Section", *, json: bool, quiet: bool
) -> None:
    """Show the progress of a training as it runs, and print its result."""
    from recurcli.display import progress, tables
    from recurcli.evaluation.metrics import PERPLEXITY

    preset, finetunes = request.resolved.preset, section == "finetuning"
    of = " of the encoder" if finetunes and preset.ensemble is not None else ""
    metric = preset.finetuning.metric if finetunes else PERPLEXITY
    result = progress.follow(events, quiet=quiet, metric=metric, of=of)
    if json:
        tables.print_json(result)
    elif request.dry_run:
        tables.print_plan(result)
    else:
        tables.print_training(result, request.output)
