"""The words of `recur pretrain` and `recur finetune`."""

from collections.abc import Callable, Iterator
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
from recurcli.errors import UsageError

if TYPE_CHECKING:
    from recurcli.commands.training.run import Event
    from recurcli.commands.training.setup import TrainingRequest


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
    extra = _as_settings("pretraining", device, precision, batch_size)
    request = _training_request(
        preset, data, [*(settings or []), *extra], output, "-pretrained", None, resume, overwrite, dry_run
    )
    from recurcli.commands.pretrain import pretrain as command

    _train(command, request, json, quiet)


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

    Starts from scratch or from a pretrained run, and keeps the model of the best dev score.
    """
    extra = _as_settings("finetuning", device, precision, batch_size)
    request = _training_request(preset, data, [*(settings or []), *extra], output, "", init, resume, overwrite, dry_run)
    from recurcli.commands.finetune import finetune as command

    _train(command, request, json, quiet)


def _as_settings(section: str, device: str | None, precision: str | None, batch_size: int | None) -> list[str]:
    values = {"runtime.device": device, "runtime.precision": precision, f"{section}.batch_size": batch_size}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _training_request(
    preset: str,
    data: Path | None,
    settings: list[str],
    output: Path | None,
    suffix: str,
    init: Path | None,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
) -> "TrainingRequest":
    from recurcli.preset import compose

    resolved = compose(preset, data=None if data is None else str(data), settings=settings)
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    from recurcli.commands.training.setup import TrainingRequest

    return TrainingRequest(
        resolved=resolved,
        output=output or Path("runs") / f"{resolved.name}{suffix}",
        init=init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
    )


def _train(
    command: "Callable[[TrainingRequest], Iterator[Event]]", request: "TrainingRequest", json: bool, quiet: bool
) -> None:
    from recurcli.display import progress, tables

    result = progress.follow(command(request), quiet=quiet)
    if json:
        tables.print_json(result)
    elif request.dry_run:
        tables.print_plan(result)
    else:
        tables.print_training(result, request.output)
