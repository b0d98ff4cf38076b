"""The `recur check` command: its options and help."""

from pathlib import Path
from typing import Annotated

import typer

from recurcli.cli.app import command
from recurcli.errors import DataError
from recurcli.requests.options import Columns, Debug, Json, Quiet, named_files


@command(
    "recur check $RECUR_DATA/tnews",
    "recur check rows.tsv --text review --label stars",
    "recur check --train a.csv --test b.csv",
    "recur check clue.zip",
    "recur check rows.tsv --suspects suspects.tsv",
)
def check(
    *,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Data files, folders of a task's files, folders of such folders, CLUE predictions or zips of them.",
            metavar="PATH",
        ),
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(help="File of training rows; it is compared with those of --dev and --test.", metavar="FILE"),
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="File of dev rows. Default: they are drawn from --train.", metavar="FILE")
    ] = None,
    test: Annotated[Path | None, typer.Option(help="File of test rows.", metavar="FILE")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="The task of the rows; default: from the name of the folder or file, else custom.", metavar="NAME"
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Preset with the task, columns, tokenizer and max_length.", metavar="NAME|FILE"),
    ] = None,
    columns: Columns,
    no_lengths: Annotated[
        bool, typer.Option("--no-lengths", help="Count no tokens; counting may first train a vocabulary.")
    ] = False,
    out_of_fold: Annotated[
        Path | None,
        typer.Option(
            help="Write the training rows with out-of-fold probabilities of the linear model to this .tsv or .csv.",
            metavar="FILE",
        ),
    ] = None,
    suspects: Annotated[
        Path | None,
        typer.Option(help="Write the training rows whose labels may be wrong to this .tsv or .csv.", metavar="FILE"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files of --out-of-fold and --suspects.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find faults in data files and CLUE submissions.

    Data: rows that cannot be used, texts in two splits or with two labels, lengths, labels, invisible characters. Each PATH
    is checked by itself; the splits of a folder, and the files of --train, --dev and --test, are compared with each other.
    CLUE files and zips: why they would score 0. Exit code 3 where rows would be lost, a training on the files would stop
    or a file would score 0; warnings leave it 0.
    """
    from recurcli.commands.check import check as run_check
    from recurcli.display import progress, tables
    from recurcli.display.check import print_check

    labels = None
    if out_of_fold is not None or suspects is not None:
        from recurcli.commands.label_check import LabelCheck

        labels = LabelCheck(out_of_fold, suspects, overwrite)
    given = named_files(None, train=train, dev=dev, test=test)
    files = {split: str(file) for split, file in given.items() if file is not None}
    with progress.Screen(quiet=quiet) as log:
        result = run_check(
            paths or [],
            log,
            task=task,
            preset=preset,
            columns=columns.given(),
            files=files,
            lengths=not no_lengths,
            labels=labels,
        )
    if json:
        tables.print_json(result)
    else:
        print_check(result)
    if result["errors"]:
        findings = (finding for report in result["reports"] for finding in report["findings"])
        first = next(finding["message"] for finding in findings if finding["level"] == "error")
        count = "1 error was found" if result["errors"] == 1 else f"{result['errors']:,} errors were found, the first"
        raise DataError(f"{count}: {first}")
