"""The `recur pretrain` command: its options and help."""

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
    settings = [*(settings or []), *as_settings("pretraining", device, precision, batch_size)]
    request = training_request(
        preset,
        data=data,
        settings=settings,
        output=output,
        suffix="-pretrained",
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
    )
    from recurcli.commands.pretrain import pretrain as command

    train(command, request, json=json, quiet=quiet)
