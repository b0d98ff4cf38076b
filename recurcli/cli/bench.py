"""The `recur bench` command: its options and help."""

import os

from recurcli.cli.app import command
from recurcli.process import keep_freed_memory
from recurcli.requests.bench import BenchRequest
from recurcli.requests.options import Debug, Json, Quiet


@command(
    "recur bench starsaber rsa --length 32,128,1024",
    "recur bench starsaber --match-parameters transformer-tnews --mode inference",
    "recur bench mingru --mode step --length 1,1024 --json",
)
def bench(
    *,
    request: BenchRequest,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the speed and memory of encoders beside their peers.

    The peers are torch's TransformerEncoder and, if transformers is installed, Hugging Face's BERT with eager and with
    SDPA attention. A setting is printed when it is measured; with --json there is one object at the end. All get the
    same random embeddings without padding, in one process with one thread. In each round every candidate has one turn.
    The table has medians, their interquartile range over the median (spread), the peak memory of all tensors of a step
    (in training those of the optimizer too), and the tokens/s over those of the best peer, which is in bold. Times are
    CPU times; on a GPU they are those of the clock, which waits for it.
    """
    for variable, value in {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}.items():
        os.environ.setdefault(variable, value)  # read with `import torch`: else its profiler writes to stderr
    keep_freed_memory()  # as in a training
    from recurcli.commands.bench import bench as run_bench
    from recurcli.display.bench import print_setting
    from recurcli.display.screen import Screen, print_json

    with Screen(quiet=quiet) as log:
        result = run_bench(request, log, (lambda setting, result: None) if json else print_setting)
    if json:
        print_json(result)
