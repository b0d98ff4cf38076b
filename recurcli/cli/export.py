"""The `recur export` command: its options and help."""

from pathlib import Path
from typing import Annotated

import typer

from recurcli.cli.app import command
from recurcli.cli.options import Computation, Data, Debug, Fast, Json, Quiet


@command(
    "recur export runs/starsaber-tnews runs/starsaber-afqmc --data $RECUR_DATA --output clue.zip",
    "recur export runs/starsaber-tnews --format onnx --output tnews-onnx",
    "recur export runs/starsaber-tnews --format onnx --quantize int8 --output tnews-int8",
)
def export(
    *,
    runs: Annotated[list[Path], typer.Argument(help="Run directories; one for onnx, one zip for all.", metavar="RUN")],
    output: Annotated[Path, typer.Option(help="File or, for onnx, folder to write.", metavar="PATH")],
    format: Annotated[
        str,
        typer.Option(
            help="Format to write: clue, a zip for CLUE's leaderboard; onnx, a folder that predicts without torch.",
            metavar="NAME",
        ),
    ] = "clue",
    data: Data = None,
    fast: Fast = False,
    quantize: Annotated[
        str | None, typer.Option(help="Store the weights in 8 bits: int8. For onnx.", metavar="TYPE")
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option(help="Refuse int8 below this share of unchanged dev labels; default 0.98.", metavar="SHARE"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing output file. For onnx: an earlier export.")
    ] = False,
    json: Json = False,
    computation: Computation,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write predictions for CLUE's leaderboard, or an ONNX model.

    clue predicts the test rows of each run's task and writes them as the leaderboard wants them, checked before they are
    written. It computes in fp32 unless --precision says otherwise, so that the same runs give the same bytes.

    onnx writes a folder with the model in fp32, checked against the run, and a script predict.py that needs onnxruntime,
    tokenizers and numpy only. It needs the packages of recurcli[onnx], and no data. With --quantize int8 the folder is about a
    quarter as large, its linear model is in half precision, and its accuracy on the run's dev rows is compared with fp32.
    """
    from recurcli.commands.export import export as run_export
    from recurcli.display import progress, tables, training

    with progress.Screen(quiet=quiet) as log:
        result = run_export(
            runs,
            log,
            format=format,
            output=output,
            data=data,
            overwrite=overwrite,
            fast=fast,
            quantize=quantize,
            min_agreement=min_agreement,
            **computation.given(),
        )
    if json:
        tables.print_json(result)
    else:
        training.print_export(result)
