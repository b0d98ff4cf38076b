"""The `recur pretrain` and `recur finetune` commands: their options and help."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recurcli.cli.app import app, example
from recurcli.cli.options import (
    BatchSize,
    Data,
    Debug,
    Device,
    DryRun,
    Json,
    Output,
    Overwrite,
    PrecisionOption,
    Preset,
    Quiet,
    Resume,
    Settings,
)

if TYPE_CHECKING:
    from recurcli.commands.training.request import Event, TrainingRequest


@app.command(epilog=example("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5"))
def pretrain(
    preset: Preset,
    data: Data = None,
    output: Output = None,
    settings: Settings = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
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

    settings = [*(settings or []), *_as_settings("pretraining", device, precision, batch_size)]
    resolved = compose(preset, data=data, settings=settings)
    from recurcli.commands.training.request import TrainingRequest, repeat_finished_run, repeats_finished_run

    output = output or Path("runs") / f"{resolved.name}-pretrained"
    request = TrainingRequest(resolved, output, resume=resume, overwrite=overwrite, dry_run=dry_run)
    if repeats_finished_run(request, "pretraining"):
        events = repeat_finished_run(request)  # in an instant, because torch is not imported
    else:
        from recurcli.commands.pretrain import pretrain as command

        events = command(request)
    _show(events, request, json=json, quiet=quiet)


@app.command(
    epilog=example("recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained")
)
def finetune(
    preset: Preset,
    data: Data = None,
    output: Output = None,
    settings: Settings = None,
    init: Annotated[
        Path | None, typer.Option(help="Pretrained run to start from: its tokenizer and encoder.", metavar="RUN")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
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

    settings = [*(settings or []), *_as_settings("finetuning", device, precision, batch_size)]
    resolved = compose(preset, data=data, settings=settings)
    from recurcli.commands.training.request import TrainingRequest, repeat_finished_run, repeats_finished_run

    output = output or Path("runs") / resolved.name
    request = TrainingRequest(resolved, output, init, resume=resume, overwrite=overwrite, dry_run=dry_run)
    if repeats_finished_run(request, "finetuning"):
        events = repeat_finished_run(request)  # in an instant, because torch is not imported
    else:
        from recurcli.commands.finetune import finetune as command

        events = command(request)
    _show(events, request, json=json, quiet=quiet)


def _as_settings(section: str, device: str | None, precision: str | None, batch_size: int | None) -> list[str]:
    """Return the options --device, --precision and --batch-size as KEY=VALUE settings of the preset."""
    values = {"runtime.device": device, "runtime.precision": precision, f"{section}.batch_size": batch_size}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


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
