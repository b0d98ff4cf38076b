"""The `recur pretrain` and `recur finetune` commands: their options and help."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
)
from recurcli.errors import UsageError

if TYPE_CHECKING:
    from recurcli.commands.training.request import Event, Section, TrainingRequest


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
    overrides = _overrides("pretraining", settings or [], given)
    resolved = compose(preset, data=data, settings=settings or [], overrides=overrides, section="pretraining")
    from recurcli.commands.training.request import TrainingRequest

    output = output or Path("runs") / f"{resolved.name}-pretrained"
    request = TrainingRequest(
        resolved, output, resume=resume, overwrite=overwrite, dry_run=dry_run, keep_checkpoints=keep_checkpoints
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

    if train is not None and data is not None:
        others = "; --dev and --test name the other files" if data.is_dir() else ""
        raise UsageError(f"--data {data} and --train {train} both name the training rows; leave out one{others}")
    _refuse_same_files({"--data": data, "--train": train, "--dev": dev, "--test": test})
    given: dict[str, object] = {
        "encoding": encoding,
        "seed": seed,
        "epochs": epochs,
        "learning-rate": learning_rate,
        "batch-size": batch_size,
    }
    given |= {"device": device, "precision": precision}
    for split, path in (("train", train), ("dev", dev), ("test", test)):
        given[split] = path and str(path.expanduser().absolute())
    overrides = _overrides("finetuning", settings or [], given)
    resolved = compose(preset, data=data, settings=settings or [], overrides=overrides, section="finetuning")
    from recurcli.commands.training.request import TrainingRequest

    output = output or Path("runs") / resolved.name
    request = TrainingRequest(
        resolved, output, init, resume=resume, overwrite=overwrite, dry_run=dry_run, keep_checkpoints=keep_checkpoints
    )
    _show(_events(request, "finetuning"), request, json=json, quiet=quiet)


def _refuse_same_files(files: Mapping[str, Path | None]) -> None:
    """Raise UsageError if two options name the same file: rows that are trained on, or choose the model, must not be scored."""
    named = [(option, path) for option, path in files.items() if path is not None and path.exists()]
    for (one, first), (two, second) in combinations(named, 2):
        if first.samefile(second):
            drawn = ", and the dev rows are drawn from the file" if two == "--dev" else ", or name other rows"
            raise UsageError(f"{one} {first} and {two} {second} are the same; leave out {two}{drawn}")


def _overrides(section: str, settings: Sequence[str], given: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """Return the keys of the preset that options set, each with its option and value. `given` maps an option's name to its
    value, which is None if it was not given.

    --device, --precision and --batch-size come after --set. Raises UsageError if --set sets the key of another one.
    """
    from recurcli.strict_yaml import parse_value

    keys = {
        **dict.fromkeys(("seed", "device", "precision"), "runtime"),
        **dict.fromkeys(("epochs", "learning-rate", "batch-size"), section),
        **dict.fromkeys(("train", "dev", "test"), "data.files"),
        "encoding": "data",
    }
    overrides = {}
    for name, value in given.items():
        key = f"{keys[name]}.{name.replace('-', '_')}"
        if value is None:
            continue
        twice = any(setting.partition("=")[0].strip() == key for setting in settings)
        if twice and name not in ("device", "precision", "batch-size"):
            raise UsageError(f"--{name} and --set {key} set the same key; give one of them")
        overrides[key] = (f"--{name}", parse_value(str(value), f"--{name}") if name == "epochs" else value)
    return overrides


def _events(request: "TrainingRequest", section: "Section") -> "Iterator[Event]":
    """Return the events of the training. A finished run is repeated without importing torch, so it takes no time."""
    from recurcli.commands.training.request import repeat_finished_run, repeats_finished_run

    if repeats_finished_run(request, section):
        return repeat_finished_run(request)
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
