"""The words of `recur eval`, `recur predict` and `recur export`: what a trained model is used for."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from recurcli.cli.app import app, example
from recurcli.cli.options import BatchSize, Data, Debug, Device, Json, Overwrite, PrecisionOption, Quiet, Resume, Run


@app.command(name="eval", epilog=example("recur eval runs/starsaber-tnews --data $RECUR_DATA --json"))
def evaluate(
    run: Run,
    split: Annotated[Literal["dev", "test", "train"], typer.Option(help="Which rows to score.")] = "dev",
    data: Data = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Tell layer by layer what the encoder does to distances and attention.")
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(help="Draw the diagnosis into this .png, .svg or .pdf (needs [report]).", metavar="FILE"),
    ] = None,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score a trained classifier on labelled rows.

    Accuracy, precision, recall and F1 by class, MCC, loss, and the confusion table. Computes in fp32 unless
    --precision says otherwise, so that no score depends on a row's neighbours.
    """
    from recurcli.commands.evaluate import evaluate as command

    events = command(
        run,
        split=split,
        data=data,
        device=device or "auto",
        precision=precision or "fp32",
        batch_size=batch_size or 64,
        diagnosed=diagnose,
        plots=plots,
    )
    from recurcli.display import diagnosis, evaluation, progress, tables

    result = progress.follow(events, quiet=quiet)
    if json:
        tables.print_json(result)
    elif result:  # one process of several has it
        evaluation.print_evaluation(result)
        if diagnose:
            diagnosis.print_diagnosis(result["diagnosis"])


@app.command(
    epilog=example(
        "recur predict runs/starsaber-tnews texts.tsv > labels.tsv",
        "cut -f2 rows.tsv | recur predict runs/starsaber-tnews --no-header",
    )
)
def predict(
    run: Run,
    source: Annotated[
        Path, typer.Argument(help="TSV, CSV, JSON lines (also .gz) or Parquet; '-' is standard input.", metavar="INPUT")
    ] = Path("-"),
    output: Annotated[Path, typer.Option(help="File to write; '-' is standard output.", metavar="FILE")] = Path("-"),
    format: Annotated[
        Literal["tsv", "csv", "jsonl", "clue"] | None,
        typer.Option(help="Form of the output; default: that of the input (Parquet: jsonl)."),
    ] = None,
    input_format: Annotated[
        Literal["tsv", "csv", "jsonl", "parquet"] | None,
        typer.Option(help="Form of the input; default: as its name ends, else found out (a CSV in a pipe is not)."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text, by name or number from 1.", metavar="COLUMN")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.", metavar="COLUMN")] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the ids that --format clue writes.", metavar="COLUMN")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="Whether the first row names the columns of a TSV or CSV; default: found."
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="What separates the fields of a CSV or TSV, if not a comma or TAB.", metavar="MARK"),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each label.")] = False,
    top_k: Annotated[
        int | None, typer.Option(help="Add the K best labels with their probabilities.", min=1, metavar="K")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a row that cannot be read.")] = False,
    unbuffered: Annotated[
        bool, typer.Option("--unbuffered", help="Answer each row of a pipe when no other waits; default on a terminal.")
    ] = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Label the rows of a file or a pipe, one row out for each row in.

    Writes the input's columns, then `prediction` and `score`. A row that cannot be read keeps its place, is labelled
    by what could be read of it, and has the reason in a last column `reason` (which a TSV from a pipe always has);
    --strict stops there instead. A FILE given as --output appears when it is complete; after a stop, or a kill, the
    same command with --resume makes the rest.
    """
    from recurcli.commands.predict import PredictRequest
    from recurcli.commands.predict import predict as command
    from recurcli.commands.prediction.columns import ColumnOptions
    from recurcli.commands.prediction.resumable_file import telling_the_way_out

    request = PredictRequest(
        run=run,
        source=source,
        output=output,
        format=format,
        input_format=input_format,
        delimiter=delimiter,
        columns=ColumnOptions(text=text, pair=pair, id=id_column, header=header),
        probabilities=probabilities,
        top_k=top_k,
        strict=strict,
        unbuffered=unbuffered,
        resume=resume,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "auto",
        batch_size=batch_size or 64,
    )
    from recurcli.display import progress

    rows_on_screen = str(output) == "-" and sys.stdout.isatty()
    with telling_the_way_out(output):
        progress.follow(command(request), quiet=quiet, bar=not rows_on_screen, count=True)


@app.command(
    epilog=example("recur export runs/starsaber-tnews runs/starsaber-afqmc --data $RECUR_DATA --output clue.zip")
)
def export(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories; one zip holds the files of all.", metavar="RUN...")
    ],
    output: Annotated[Path, typer.Option(help="File to write.", metavar="PATH")],
    format: Annotated[Literal["clue"], typer.Option(help="What to make: a CLUE leaderboard zip.")] = "clue",
    data: Data = None,
    overwrite: Overwrite = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Pack predictions of CLUE's test rows for its leaderboard.

    Predicts the test rows of each run's task and writes them as the leaderboard wants them, checked before they are
    written. Computes in fp32 unless --precision says otherwise, so that the same runs give the same bytes.
    """
    from recurcli.commands.export import export as command

    events = command(
        runs,
        output=output,
        data=data,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "fp32",
        batch_size=batch_size or 64,
    )
    from recurcli.display import progress, tables

    result = progress.follow(events, quiet=quiet)
    if json:
        tables.print_json(result)
    else:
        tables.print_export(result)
