"""The request of `recur compare`: its arguments and options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """The arguments and options of `recur compare`."""

    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.", metavar="RUN")]
    part: Annotated[
        Literal["model", "encoder"],
        typer.Option(help="What is compared where a run has an ensemble: the model, or its encoder alone."),
    ] = "model"
    split: Annotated[
        Literal["dev", "test"],
        typer.Option(
            help="Rows that are compared: those that chose the model, or those of finetune --test, which chose nothing."
        ),
    ] = "dev"
    metric: Annotated[
        str | None,
        typer.Option(help="Metric, such as macro_f1 or f1:LABEL. Default: finetuning.metric.", metavar="NAME"),
    ] = None
    over: Annotated[
        str | None,
        typer.Option(
            help="Also show the scores over a numeric key that differs, such as data.train_share.", metavar="KEY"
        ),
    ] = None
