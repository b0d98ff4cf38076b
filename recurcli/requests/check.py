"""The request of `recur check`: its arguments and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from recurcli.requests.options import Columns


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The arguments and options of `recur check`."""

    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Data files, folders of a task's files, CLUE predictions or zips of them.", metavar="PATH"),
    ] = None
    train: Annotated[
        Path | None,
        typer.Option(help="File of training rows; it is compared with those of --dev and --test.", metavar="FILE"),
    ] = None
    dev: Annotated[
        Path | None, typer.Option(help="File of dev rows. Default: they are drawn from --train.", metavar="FILE")
    ] = None
    test: Annotated[Path | None, typer.Option(help="File of test rows.", metavar="FILE")] = None
    task: Annotated[
        str | None,
        typer.Option(help="The task of the rows; default: from the name of the folder, else custom.", metavar="NAME"),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(help="Preset with the task, columns, tokenizer and max_length.", metavar="NAME|FILE"),
    ] = None
    columns: Columns = field(default_factory=Columns)
    no_lengths: Annotated[
        bool, typer.Option("--no-lengths", help="Count no tokens; counting may first train a vocabulary.")
    ] = False
    out_of_fold: Annotated[
        Path | None,
        typer.Option(
            help="Write the training rows with out-of-fold probabilities of the linear model to this .tsv or .csv.",
            metavar="FILE",
        ),
    ] = None
    suspects: Annotated[
        Path | None,
        typer.Option(help="Write the training rows whose labels may be wrong to this .tsv or .csv.", metavar="FILE"),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files of --out-of-fold and --suspects.")
    ] = False
