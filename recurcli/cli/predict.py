"""The `recur predict` command: its options and help."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from recurcli.cli.app import command
from recurcli.requests.options import Computation, Debug, Delimiter, Fast, Header, Pair, Quiet, Quote, Run, Text


@command(
    "recur predict runs/starsaber-tnews texts.tsv > labels.tsv",
    "cut -f2 rows.tsv | recur predict runs/starsaber-tnews --no-header",
)
def predict(
    *,
    run: Run,
    source: Annotated[
        Path,
        typer.Argument(
            help="TSV, CSV, JSON lines, fastText (also .gz) or Parquet; '-' is standard input.", metavar="INPUT"
        ),
    ] = Path("-"),
    output: Annotated[
        Path,
        typer.Option(
            help="File to write, in the format of its ending: .tsv, .csv or .jsonl, each also with .gz; "
            "'-' is standard output.",
            metavar="FILE",
        ),
    ] = Path("-"),
    format: Annotated[
        Literal["tsv", "csv", "jsonl", "clue"] | None,
        typer.Option(
            help="Format of the output. Default: from the ending of --output, else that of the input; jsonl for "
            "Parquet and fastText."
        ),
    ] = None,
    input_format: Annotated[
        Literal["tsv", "csv", "jsonl", "fasttext", "parquet"] | None,
        typer.Option(
            help="Format of the input. Default: from the file name, else detected; a CSV in a pipe is not detected."
        ),
    ] = None,
    text: Text = None,
    pair: Pair = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the ids that --format clue writes.", metavar="COLUMN")
    ] = None,
    header: Header = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of the input, such as latin-1, cp1252, gb18030 or utf-16. Default: UTF-8, as the output.",
            metavar="NAME",
        ),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each label.")] = False,
    top_k: Annotated[
        int | None, typer.Option(help="Add the K best labels with their probabilities.", min=1, metavar="K")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Leave `prediction` empty where the score is lower.", min=0, max=1, metavar="SCORE"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a row that cannot be read.")] = False,
    unbuffered: Annotated[
        bool,
        typer.Option("--unbuffered", help="Predict rows of a pipe as soon as no more wait; default on a terminal."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Add the parts of the row with the largest share in the linear model's score of its label.",
        ),
    ] = False,
    fast: Fast = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a stopped prediction to --output; start it if there is none; pass over a complete one.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")] = False,
    computation: Computation,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Label the rows of a file or a pipe, one row out for each row in.

    Writes the input's columns, then `prediction` and `score`. A row that cannot be read keeps its place. Its label
    comes from the part that could be read, and the last column `reason` says what is wrong (a TSV from a pipe always
    has this column); --strict stops there instead. A FILE given as --output appears when it is complete. After a stop
    or a kill, the same command with --resume writes the remaining rows; it leaves a hidden file beside FILE, by which a
    later --resume knows that the complete FILE is of the same run, options and input.
    """
    from recurcli.commands.predict import PredictRequest
    from recurcli.commands.predict import predict as run_predict
    from recurcli.commands.prediction.output import naming_the_resume
    from recurcli.data.columns import ColumnOptions

    request = PredictRequest(
        run=run,
        source=source,
        output=output,
        format=format,
        input_format=input_format,
        delimiter=delimiter,
        quote=quote,
        encoding=encoding,
        columns=ColumnOptions(tuple(text or ()), tuple(pair or ()), id_column, header),
        probabilities=probabilities,
        top_k=top_k,
        threshold=threshold,
        strict=strict,
        unbuffered=unbuffered,
        explain=explain,
        fast=fast,
        resume=resume,
        overwrite=overwrite,
        **computation.given(),
    )
    from recurcli.display import progress

    rows_on_screen = str(output) == "-" and sys.stdout.isatty()
    with naming_the_resume(output):
        with progress.Screen(quiet=quiet, bar=not rows_on_screen) as log:
            run_predict(request, log)
        log.summary()
