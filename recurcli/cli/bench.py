"""The `recur bench` command: its options and help."""

import os
from pathlib import Path
from typing import Annotated

import typer

from recurcli.allocator import keep_freed_memory
from recurcli.cli.app import command
from recurcli.requests.options import Debug, Json, Quiet, device_option


@command(
    "recur bench starsaber rsa --length 32,128,1024 --plot speed.png",
    "recur bench starsaber --match-parameters transformer-tnews --mode inference",
    "recur bench --preset starsaber-2-cmnli --batch-size 64 --precision fp32,bf16 --json",
)
def bench(
    *,
    encoders: Annotated[
        list[str] | None,
        typer.Argument(help="Encoders. Default: that of --preset, else all.", metavar="ENCODER"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Also measure the encoder of this preset with its settings.", metavar="NAME|FILE"),
    ] = None,
    length: Annotated[str, typer.Option(help="Tokens per row; a list.", metavar="N,…")] = "32,128",
    batch_size: Annotated[str, typer.Option(help="Rows per batch; a list.", metavar="N,…")] = "32",
    hidden_size: Annotated[
        str | None, typer.Option(help="Width of all; a list. Default: the preset's, else 256.", metavar="N,…")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Depth of all; a list. Default: the preset's, else 4.", metavar="N,…")
    ] = None,
    match_parameters: Annotated[
        str | None,
        typer.Option(
            help="In place of one width for all, solve for the width that gives each as many parameters (800k, 3M), or as "
            "many as the encoder of a preset.",
            metavar="N|PRESET",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(help="fp32, bf16 or auto, which is bf16 where the machine supports it; a list.", metavar="NAME,…"),
    ] = "auto",
    mode: Annotated[str, typer.Option(help="training, inference or both.", metavar="NAME,…")] = "training,inference",
    dropout: Annotated[
        float | None,
        typer.Option(help="Dropout probability of encoders and peers. Default: the preset's, else 0.1.", metavar="P"),
    ] = None,
    attention_dropout: Annotated[
        float,
        typer.Option(
            help="The same on the attention weights, of the peers and the encoders that have it.", metavar="P"
        ),
    ] = 0.0,
    rounds: Annotated[int, typer.Option(help="Turns of each candidate.", min=1, metavar="N")] = 7,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Whether the peers are measured too.")] = True,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw speed and memory over length into this .png, .svg or .pdf (needs [report]).", metavar="FILE"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing --plot.")] = False,
    device: Annotated[str, device_option] = "auto",
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the speed and memory of encoders beside their peers.

    The peers are torch's TransformerEncoder and, if transformers is installed, Hugging Face's BERT with eager and with
    SDPA attention. A setting is printed when it is measured; with --json there is one object at the end, also of a
    benchmark that is stopped. All get the same random embeddings without padding, in one process with one thread. In each round
    every candidate has one turn, and each round starts with the next one. The table has medians over the rounds, their
    interquartile range, and the peak memory of the tensors. Times are CPU times; on a GPU they are those between CUDA
    events.
    """
    from recurcli.commands.benchmark.request import MODES, PRECISIONS, BenchRequest, whole_numbers, words
    from recurcli.files import PLOT, check_writable

    request = BenchRequest(
        encoders=tuple(dict.fromkeys(encoders or [])),
        preset=preset,
        lengths=whole_numbers("--length", length),
        batch_sizes=whole_numbers("--batch-size", batch_size),
        hidden_sizes=None if hidden_size is None else whole_numbers("--hidden-size", hidden_size),
        layers=None if layers is None else whole_numbers("--layers", layers),
        precisions=words("--precision", precision, PRECISIONS),
        modes=words("--mode", mode, MODES),
        dropout=dropout,
        attention_dropout=attention_dropout,
        match=match_parameters,
        rounds=rounds,
        peers=peers,
        device=device,
    )
    if plot is not None:
        check_writable(plot, PLOT, overwrite=overwrite, option="--plot")
    for variable, value in {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}.items():
        os.environ.setdefault(variable, value)  # read with `import torch`: else its profiler writes to stderr
    keep_freed_memory()  # as in a training
    from recurcli.commands.bench import bench as run_bench
    from recurcli.display import bench as display
    from recurcli.display import progress

    with display.BenchmarkScreen(quiet=quiet, json=json) as log:
        result = run_bench(request, log)
    if plot is not None:
        display.draw_benchmark(result, plot)
        progress.tell_written(plot, quiet=quiet)
