"""The request of `recur check`: its arguments and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from recurcli.requests.options import TrainedColumns, argument, flag, option, reads


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The arguments and options of `recur check`."""

    paths: Annotated[
        list[Path] | None,
        reads(argument("PATH", "Data files, folders of a task's files, CLUE predictions or zips of them.")),
    ] = None
    train: Annotated[
        list[Path] | None, reads(option("FILE", "Training rows, compared with --dev and --test; may be repeated."))
    ] = None
    dev: Annotated[list[Path] | None, reads(option("FILE", "Dev rows. Default: drawn from those of --train."))] = None
    test: Annotated[list[Path] | None, reads(option("FILE", "Test rows."))] = None
    against: Annotated[
        Path | None, reads(option("RUN", "Are the texts of PATH like those of its training?"), hub=True)
    ] = None
    data: Annotated[Path | None, reads(option("FILE", "The training rows of --against, where they moved."))] = None
    task: Annotated[
        str | None, option("NAME", "The task of the rows; default: from the name of the folder, else custom.")
    ] = None
    preset: Annotated[str | None, option("NAME|FILE", "Preset with the task, columns, tokenizer and max_length.")] = (
        None
    )
    columns: TrainedColumns = field(default_factory=TrainedColumns)
    no_lengths: Annotated[bool, flag("--no-lengths", "Count no tokens; counting may first train a vocabulary.")] = False
    out_of_fold: Annotated[
        Path | None,
        option(
            "FILE", "Write the training rows with out-of-fold probabilities of the linear model to this .tsv or .csv."
        ),
    ] = None
    suspects: Annotated[
        Path | None, option("FILE", "Write the training rows whose labels may be wrong to this .tsv or .csv.")
    ] = None
    overwrite: Annotated[bool, flag("--overwrite", "Replace existing files of --out-of-fold and --suspects.")] = False
