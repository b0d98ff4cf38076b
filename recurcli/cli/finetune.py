"""The `recur finetune` command: its options and help."""

from pathlib import Path
from typing import Annotated

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
from recurcli.cli.training import as_settings, train, training_request


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
    settings = [*(settings or []), *as_settings("finetuning", device, precision, batch_size)]
    request = training_request(
        preset,
        data=data,
        settings=settings,
        output=output,
        init=init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
    )
    from recurcli.commands.finetune import finetune as command

    train(command, request, json=json, quiet=quiet)
