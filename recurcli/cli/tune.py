"""The `recur tune` command: its options and help."""

from pathlib import Path
from typing import Annotated

import typer

from recurcli.allocator import keep_freed_memory
from recurcli.cli.app import command
from recurcli.requests.options import (
    Columns,
    Data,
    Debug,
    Dev,
    Json,
    Preset,
    Quiet,
    Seed,
    Settings,
    Train,
    named_files,
    overrides_of,
)


@command(
    "recur tune --preset starsaber-custom --data reviews.csv --trials 20",
    "recur tune --preset rsa-tnews --range finetuning.learning_rate=1e-4..3e-3:log --range 'pooling=max|mean'",
)
def tune(
    *,
    preset: Preset,
    data: Data = None,
    train: Train = None,
    dev: Dev = None,
    columns: Columns,
    trials: Annotated[
        int, typer.Option(help="Number of trials, with those before a --resume.", min=1, metavar="N")
    ] = 20,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="A key and the values to choose among: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B; may be repeated. "
            "Default (ours): finetuning.learning_rate=1e-4..3e-3:log, encoder.dropout=0..0.5, embedding.dropout=0..0.5, "
            "finetuning.epochs (logarithmic, from half the preset's to 20), finetuning.batch_size=16|32|64|128 and "
            "pooling=mean|max, without what --set fixes.",
            metavar="KEY=VALUES",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write. Default: runs/ and the name of the preset with -tuned.", metavar="FOLDER"),
    ] = None,
    settings: Settings = None,
    seed: Seed = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study; the trial that was interrupted is run again.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the study in the folder.")] = False,
    keep_runs: Annotated[bool, typer.Option("--keep-runs", help="Keep the run directories of the trials.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Search the settings of a preset for the best dev metric.

    It needs Optuna. The first trial is the preset itself. Each trial is a fine-tuning run of the encoder alone, without
    ensemble, and reads no test rows. A trial that is below the median of the complete ones at the same share of their steps
    is pruned, at its second evaluation at the earliest. runtime.seed seeds the choice of the settings and each run. The
    best preset is written to best.yaml. Its dev score chose it, so it is no test score.
    """
    from recurcli.commands.tune import tune as run_tune
    from recurcli.commands.tuning import TuningRequest
    from recurcli.display import progress, tables, tuning

    keep_freed_memory()
    given = {**columns.given(), "seed": seed, **named_files(data, train=train, dev=dev)}
    overrides = overrides_of("finetuning", settings or [], given)
    request = TuningRequest(
        preset,
        data,
        trials,
        output,
        ranges or (),
        settings or [],
        overrides,
        resume=resume,
        overwrite=overwrite,
        keep_runs=keep_runs,
    )
    metric = request.resolved.preset.finetuning.metric
    with progress.Screen(quiet=quiet, metric=metric) as log:
        result = run_tune(request, log)
    if json:
        tables.print_json(result)
    else:
        tuning.print_study(result)
