"""The `recur pretrain` and `recur finetune` commands: their options and help."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recurcli.cli.app import command
from recurcli.process import keep_freed_memory
from recurcli.requests.options import (
    Columns,
    Computation,
    Data,
    Debug,
    Dev,
    Json,
    Preset,
    Quiet,
    Seed,
    Settings,
    TextColumns,
    Train,
    named_files,
    overrides_of,
)

if TYPE_CHECKING:
    from recurcli.commands.training.request import Section


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Computation):
    """The options on the run directory, the preset and an earlier run, which both commands have."""

    output: Annotated[
        Path | None,
        typer.Option(help="Run directory to write. Default: runs/ and the name of the preset.", metavar="RUN"),
    ] = None
    settings: Settings = None
    seed: Seed = None
    epochs: Annotated[
        str | None, typer.Option(help="Passes over the training rows: the key epochs of the preset.", metavar="N|auto")
    ] = None
    learning_rate: Annotated[
        float | None, typer.Option(help="Largest learning rate: the key learning_rate of the preset.", metavar="RATE")
    ] = None

    match_parameters: Annotated[
        str | None,
        typer.Option(
            help="Solve for encoder.hidden_size so that the encoder has N parameters (3000000, 3M, 800k), or as many as that "
            "of a preset, without the embedding. What --set gives stays; with encoder.hidden_size it is encoder.num_layers.",
            metavar="N|PRESET",
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run from its newest checkpoint; start it if there is none.")
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Train anew; the run that is there stays until the new one is finished.")
    ] = False
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep the newest checkpoints when the run is finished.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the settings of the run and write nothing.")] = False


@command("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5")
def pretrain(
    *,
    preset: Preset,
    data: Data = None,
    columns: TextColumns,
    options: TrainingOptions,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train an encoder on text without labels.

    The text is that of the task's train, dev and test rows, or a text file (.txt) given as --data. Masked tokens are predicted,
    or with pretraining.objective causal the next token: then the model is selected by its perplexity on the dev text.
    """
    _train("pretraining", preset, data, columns.given(), options, json=json, quiet=quiet)


@command("recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained")
def finetune(
    *,
    preset: Preset,
    data: Data = None,
    train: Train = None,
    dev: Dev = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="File with labelled rows on which the chosen model is scored once, after the training. "
            "Default: the task's test rows, if they have labels.",
            metavar="FILE",
        ),
    ] = None,
    columns: Columns,
    init: Annotated[
        Path | None, typer.Option(help="Pretrained run to start from: its tokenizer and encoder.", metavar="RUN")
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(
            help="File with another model's soft labels of rows, as `recur predict --probabilities` writes them: the key "
            "finetuning.teacher. Rows without a label of their own are trained on too.",
            metavar="FILE",
        ),
    ] = None,
    options: TrainingOptions,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a classifier on labelled rows.

    Starts from scratch or from a pretrained run. The dev rows choose the step of the encoder, and whether the run keeps it, the
    linear model beside it, or a weighted sum of both.
    """
    files = named_files(data, train=train, dev=dev, test=test)
    soft_labels = None if teacher is None else str(teacher.expanduser().absolute())
    given = {**files, **columns.given(), "teacher": soft_labels}
    _train("finetuning", preset, data, given, options, init, json=json, quiet=quiet)


def _train(
    section: "Section",
    preset: str,
    data: Path | None,
    given: dict[str, object],
    options: TrainingOptions,
    init: Path | None = None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Train, show the progress, and print the result. Raises UsageError with the place of a fault in preset or options.

    `given` maps the names of options to their values, as `overrides_of` takes them.
    """
    from recurcli.preset import compose

    settings, finetunes = options.settings or [], section == "finetuning"
    names = ("seed", "epochs", "learning_rate", "device", "precision", "batch_size")
    overrides = overrides_of(section, settings, {**given, **{name: getattr(options, name) for name in names}})
    resolved = compose(preset, data=data, settings=settings, overrides=overrides, section=section)
    output, matched = options.output or Path("runs") / f"{resolved.name}{'' if finetunes else '-pretrained'}", None
    if options.match_parameters is not None:
        from recurcli.preset.matching import match_parameters

        resolved, matched = match_parameters(resolved, options.match_parameters)
    from recurcli.commands.training.request import TrainingRequest, repeat_finished_run, repeats_finished_run

    request = TrainingRequest(
        resolved,
        output,
        init,
        resume=options.resume,
        overwrite=options.overwrite,
        dry_run=options.dry_run,
        keep_checkpoints=options.keep_checkpoints,
        matched=matched,
    )
    keep_freed_memory()
    if repeats_finished_run(request, section):  # within a second, because torch is not imported
        train = repeat_finished_run
    elif finetunes:
        from recurcli.commands.finetune import finetune as train
    else:
        from recurcli.commands.pretrain import pretrain as train
    from recurcli.display.screen import Screen, print_json, print_plan, print_training
    from recurcli.metrics import PERPLEXITY

    of = " of the encoder" if finetunes and resolved.preset.ensemble is not None else ""
    metric = resolved.preset.finetuning.metric if finetunes else PERPLEXITY
    with Screen(quiet=quiet, metric=metric, of=of) as log:
        result = train(request, log)
    if json:
        print_json(result)
    elif options.dry_run:
        print_plan(result)
    else:
        print_training(result, output)
