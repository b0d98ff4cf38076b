"""The request of `recur export`: its arguments and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from recurcli.requests.options import Data, Fast, Inference


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The arguments and options of `recur export`."""

    runs: Annotated[list[Path], typer.Argument(help="Run directories; one for onnx, one zip for all.", metavar="RUN")]
    output: Annotated[Path, typer.Option(help="File or, for onnx, folder to write.", metavar="PATH")]
    format: Annotated[
        str,
        typer.Option(
            help="Format to write: clue, a zip for CLUE's leaderboard; onnx, a folder that predicts without torch.",
            metavar="NAME",
        ),
    ] = "clue"
    data: Data = None
    fast: Fast = False
    quantize: Annotated[Literal["int8"] | None, typer.Option(help="Store the weights in 8 bits. For onnx.")] = None
    min_agreement: Annotated[
        float | None,
        typer.Option(
            help="Refuse int8 below this share of unchanged dev labels; default 0.98.", metavar="SHARE", min=0, max=1
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing output file. For onnx: an earlier export.")
    ] = False
    inference: Inference = field(default_factory=Inference)
